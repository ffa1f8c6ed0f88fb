"""Check points of popped messages (`POP_CK`): what names a lease when it is acknowledged or prolonged.

The rule of this file: values and texts, exactly as Java's `ExtraInfoUtil` and `MQClientAPIImpl.processPopResponse`. A
broker does not write a check point into a message (but for retried ones); it tells three short texts with the answer,
from which the client makes one for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from rocketstream.errors import ProtocolError
from rocketstream.message import ReceivedMessage
from rocketstream.property_names import PropertyName
from rocketstream.wire.headers.pop import PopMessageResponseHeader

ORDER_REVIVE_QUEUE: Final = 999
"""The revive queue of leases that were popped in order."""

_RETRY_PREFIX: Final = "%RETRY%"
_NORMAL, _RETRY_V1, _RETRY_V2 = "0", "1", "2"

_T = TypeVar("_T")
Place = tuple[str, str]
"""A kind of topic ("0" itself, "1", "2" its retry topic) and a queue id, or `qo<queue id>%<offset>` of one message."""


class CheckPoint(NamedTuple):
    """One message's lease."""

    start_offset: int
    """Of the first message that was popped with it from its queue."""
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    retry: str
    """"0": popped from the topic itself; "1", "2": from the group's retry topic, named in the old or the new way."""
    broker_name: str
    queue_id: int
    offset: int

    def encode(self) -> str:
        """The text of the property."""
        return " ".join(map(str, self))

    @classmethod
    def decode(cls, text: str) -> CheckPoint:
        """Read the property's text; `ProtocolError` if it is none."""
        parts = text.split(" ")
        try:
            start, popped, invisible, revive, retry, broker, queue, offset = parts[:8]
            return cls(int(start), int(popped), int(invisible), int(revive), retry, broker, int(queue), int(offset))
        except ValueError:
            raise ProtocolError(f"{text!r} is no check point of a popped message") from None

    def real_topic(self, topic: str, group: str) -> str:
        """Where the message lies that was popped for `topic`: there, or in the group's retry topic of it."""
        if self.retry == _RETRY_V1:
            return pop_retry_topic(topic, group)
        if self.retry == _RETRY_V2:
            return pop_retry_topic_v2(topic, group)
        return topic


def pop_retry_topic(topic: str, group: str) -> str:
    """Where messages of a topic wait that a group popped and did not acknowledge in time."""
    return f"{_RETRY_PREFIX}{group}_{topic}"


def pop_retry_topic_v2(topic: str, group: str) -> str:
    """The same by the newer name, of brokers with enableRetryTopicV2."""
    return f"{_RETRY_PREFIX}{group}+{topic}"


def set_check_points(
    messages: Sequence[ReceivedMessage], header: PopMessageResponseHeader, broker_name: str, *, order: bool
) -> list[CheckPoint]:
    """Give every message of an answer its check point, and those popped in order the times they failed.

    Returns the check points, in the order of the messages: they are needed again when the messages are done.
    """
    if header.start_offset_info:
        starts = _entries(header.start_offset_info, int)
        offsets = _entries(header.msg_offset_info or "", lambda text: [int(one) for one in text.split(",")])
        counts = _entries(header.order_count_info or "", int) if order else {}
        points = _from_info(messages, header, broker_name, starts, offsets, counts)
    else:
        points = _from_first_messages(messages, header, broker_name)
    popped_at = str(header.pop_time)
    for message in messages:
        message.properties.setdefault(PropertyName.FIRST_POP_TIME, popped_at)
    return points


def _from_info(
    messages: Sequence[ReceivedMessage],
    header: PopMessageResponseHeader,
    broker_name: str,
    starts: Mapping[Place, int],
    offsets: Mapping[Place, list[int]],
    counts: Mapping[Place, int],
) -> list[CheckPoint]:
    seen: dict[Place, int] = {}
    points: list[CheckPoint] = []
    for message in messages:
        given = message.properties.get(PropertyName.POP_CHECK_POINT)
        # A retried message may come under the name of its first topic; what its check point says of it holds.
        known = None if given is None else CheckPoint.decode(given)
        retry = _kind(message.topic) if known is None else known.retry
        place = (retry, str(message.queue_id))
        nth = seen[place] = seen.get(place, -1) + 1
        if known is not None:
            points.append(known)
            continue
        try:
            start, told = starts[place], offsets[place]
            # In a static topic they are other than those stored; then their order tells.
            offset = message.queue_offset if message.queue_offset in told else told[nth]
        except (KeyError, IndexError):
            raise ProtocolError(
                f"the broker's answer to a pop does not say where message {message.queue_offset} of queue"
                f" {message.queue_id} lies: startOffsetInfo {header.start_offset_info!r},"
                f" msgOffsetInfo {header.msg_offset_info!r}"
            ) from None
        point = CheckPoint(
            start,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            retry,
            broker_name,
            message.queue_id,
            offset,
        )
        points.append(point)
        message.properties[PropertyName.POP_CHECK_POINT] = point.encode()
        single = (retry, f"qo{message.queue_id}%{message.queue_offset}")
        failed = counts.get(single, counts.get(place, 0))
        if failed > 0:
            message.reconsume_times = failed
    return points


def _from_first_messages(
    messages: Iterable[ReceivedMessage], header: PopMessageResponseHeader, broker_name: str
) -> list[CheckPoint]:
    """The first brokers that popped told nothing: the first message of each queue is where its lease begins."""
    first: dict[tuple[str, int], int] = {}
    points: list[CheckPoint] = []
    for message in messages:
        start = first.setdefault((message.topic, message.queue_id), message.queue_offset)
        point = CheckPoint(
            start,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            _kind(message.topic),
            broker_name,
            message.queue_id,
            message.queue_offset,
        )
        points.append(point)
        message.properties[PropertyName.POP_CHECK_POINT] = point.encode()
    return points


def _kind(topic: str) -> str:
    if not topic.startswith(_RETRY_PREFIX):
        return _NORMAL
    return _RETRY_V2 if "+" in topic else _RETRY_V1


def _entries(text: str, read: Callable[[str], _T]) -> dict[Place, _T]:
    """`kind queue value;kind queue value`, as all three texts are written."""
    found: dict[Place, _T] = {}
    for entry in text.split(";") if text else ():
        try:
            kind, place, value = entry.split(" ")
            found[kind, place] = read(value)
        except ValueError:
            raise ProtocolError(f"{text!r} is not what a broker says of popped messages") from None
    return found
