"""One tree of exceptions.

Everything that rocketstream raises on purpose descends from `RocketStreamError`. An error that a user can meet names
what was asked of whom (the setting, the address, the topic), what was seen, and what can be done. *Unknown* is an
error here, never a default: an offset that cannot be read is not -1, a route that cannot be had is not empty.
"""

from __future__ import annotations

from collections.abc import Sequence


class RocketStreamError(Exception):
    """The root of everything that rocketstream raises on purpose."""


# --- what the user asked for ------------------------------------------------------------------------------------


class ConfigurationError(RocketStreamError, ValueError):
    """A setting or an argument that cannot work; the text names it, its value and what is allowed."""


class ClientStateError(RocketStreamError):
    """The client is not in the state that the call needs (not started, already shut down, ...)."""


class ForkedClientError(ClientStateError):
    """A client made before `fork()` was used in the child: its I/O thread stayed in the parent."""

    def __init__(self, what: str, created_in: int, used_in: int) -> None:
        super().__init__(
            f"{what} was made in process {created_in} and cannot be used in its forked child {used_in}: threads and"
            " connections do not survive a fork. Create the client after the fork."
        )
        self.created_in = created_in
        self.used_in = used_in


class NotPicklableError(ClientStateError, TypeError):
    """A client was to be pickled or copied: as an argument of another process, or in a function sent to one."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} cannot be pickled or copied: its threads and connections belong to this process. Create a client"
            " in the process that uses it, and send that one only what it takes to make one."
        )


# --- bytes that are not what they should be ---------------------------------------------------------------------


class ProtocolError(RocketStreamError):
    """Bytes that are not RocketMQ's protocol; the text says what was wrong and where."""


class CorruptMessageError(ProtocolError):
    """A stored message whose bytes do not add up (length, magic, checksum, compression)."""

    def __init__(self, reason: str, *, position: int | None = None) -> None:
        super().__init__(reason if position is None else f"{reason} (record at byte {position} of the response)")
        self.reason = reason
        self.position = position


class MissingCodecError(RocketStreamError):
    """A message is compressed with a codec whose Python package is not installed."""


# --- requests that got no answer --------------------------------------------------------------------------------


class RemotingError(RocketStreamError):
    """A request that got no answer. `address` is the peer it was meant for."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class ConnectError(RemotingError):
    """No connection could be made; nothing was sent."""


class TlsError(ConnectError):
    """The two sides did not agree on TLS: one of them speaks it and the other does not, or trusts the other not."""


class SendRequestError(RemotingError):
    """The request could not be sent, or its connection broke before the answer came."""


class ConnectionLostError(SendRequestError):
    """The connection broke after the request was written: the peer may or may not have carried it out."""


class RequestTimeoutError(RemotingError, TimeoutError):
    """No answer within the time-out: the peer may or may not have carried the request out."""


class TooManyRequestsError(RemotingError):
    """As many requests as allowed were already under way, and none ended within the time-out."""


class RemotingClosedError(RemotingError):
    """The client was closed while the request was under way, or before it began."""


# --- requests that were answered with an error ------------------------------------------------------------------


class BrokerError(RocketStreamError):
    """A broker or name server answered with an error code. `code` and `remark` are its own words."""

    def __init__(self, address: str, code: int, remark: str | None, *, request: str = "", code_name: str = "") -> None:
        name = code_name or f"code {code}"
        asked = f" to {request}" if request else ""
        super().__init__(f"{address} answered {name} ({code}){asked}: {remark or 'no remark'}")
        self.address = address
        self.code = code
        self.remark = remark


class AccessDeniedError(BrokerError):
    """A broker's access control said no: to whom (`access_key`), for what (`resource`), and what would help.

    Trying again does not help, so nothing in rocketstream does; somebody has to change a permission or a key.
    """

    def __init__(
        self,
        address: str,
        code: int,
        remark: str | None,
        *,
        request: str = "",
        access_key: str | None = None,
        resource: str | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(address, code, remark, request=request)
        who = f"access key {access_key!r}" if access_key else "a client without credentials"
        what = f" {request}" if request else ""
        told = (remark or "no remark").rstrip(".")
        self.args = (f"{address} refused{what} to {who}: {told}{f' ({advice})' if advice else ''}",)
        self.access_key = access_key
        self.resource = resource


class AuthenticationFailedError(AccessDeniedError):
    """A broker does not know who asks: no credentials, an unknown access key, or a secret key that is not its own."""


def denial_behind(error: BaseException | None) -> AccessDeniedError | None:
    """The refusal of a broker's access control that an error was raised for, if it was."""
    while error is not None and not isinstance(error, AccessDeniedError):
        error = error.__cause__
    return error


# --- the cluster ------------------------------------------------------------------------------------------------


class NameServerError(RocketStreamError):
    """No name server is configured, or none of them answered."""


class TopicRouteNotFoundError(RocketStreamError):
    """The name servers know no route for a topic."""

    def __init__(self, topic: str, name_servers: str) -> None:
        super().__init__(
            f"topic {topic!r} has no route at {name_servers}: it does not exist there (create it, or allow the broker"
            " to create topics), or its broker is not registered"
        )
        self.topic = topic


class BrokerNotFoundError(RocketStreamError):
    """No address is known for a broker name, even after the route was fetched again."""


# --- sending ----------------------------------------------------------------------------------------------------


class SendFailedError(RocketStreamError):
    """A message was not sent, or nobody knows whether it was. `attempts` says who was tried and why it failed.

    After `maybe_stored` attempts (a connection lost, a time-out, a shutdown meanwhile) the broker may have stored it
    all the same.
    """

    def __init__(self, topic: str, attempts: Sequence[tuple[str, BaseException]], elapsed: float) -> None:
        tried = "; ".join(f"{where}: {_without_address(where, error)}" for where, error in attempts) or "no broker"
        super().__init__(
            f"a message for topic {topic!r} was not sent after {len(attempts)} attempts in {elapsed:.2f} s: {tried}"
        )
        self.topic = topic
        self.attempts = tuple(attempts)

    @property
    def maybe_stored(self) -> bool:
        """Whether one of the attempts may have been carried out."""
        unclear = ConnectionLostError | RequestTimeoutError | RemotingClosedError
        return any(isinstance(error, unclear) for _, error in self.attempts)


class UnsupportedByBrokerError(RocketStreamError):
    """A broker is too old for what it was to be asked, or is configured not to do it."""


class RecallFailedError(RocketStreamError):
    """A broker did not take a timer message back: it may have been delivered, or will be."""

    def __init__(self, address: str, message_id: str, why: str) -> None:
        super().__init__(f"{address} did not recall message {message_id}: {why}")
        self.address = address
        self.message_id = message_id


class ReplyTimeoutError(RocketStreamError, TimeoutError):
    """A request was sent, but no reply to it came within the time-out."""

    def __init__(self, topic: str, message_id: str, timeout: float) -> None:
        super().__init__(
            f"request {message_id} was sent to topic {topic!r}, but no reply came within {timeout:g} s: nobody consumes"
            " the topic, or whoever does was too slow or does not reply"
        )
        self.topic = topic
        self.message_id = message_id


# --- offsets ----------------------------------------------------------------------------------------------------


class OffsetStoreError(RocketStreamError):
    """An offset store could not be read or written: then it is not known where a group stands, which is not -1."""


class QueueNotAssignedError(ClientStateError):
    """A queue that this consumer does not have, or has lost to another member of its group."""


class OffsetOutOfRangeError(RocketStreamError, ValueError):
    """An offset that the broker of a queue does not have."""


class OffsetUnknownError(RocketStreamError):
    """Where to begin in a queue could not be found out; nothing is pulled from it, rather than from a guess."""

    def __init__(self, queue: tuple[str, str, int], why: str) -> None:
        topic, broker_name, queue_id = queue
        super().__init__(f"where to begin in queue {queue_id} of topic {topic!r} on broker {broker_name!r}: {why}")
        self.queue = queue
        self.why = why


def _without_address(where: str, error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text.removeprefix(f"{where}: ").removeprefix(f"{where} ")
