"""A request without a task, a future or a timer of its own: how it ends.

What many small requests take (`RemotingClient.try_invoke`): the outcome goes to a callback of the client's own, on the
I/O thread, at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rocketstream.remoting.connection import Connection
from rocketstream.remoting.hooks import HookChain
from rocketstream.remoting.permits import Permits
from rocketstream.remoting.pool import ConnectionPool
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command

Outcome: TypeAlias = Command | BaseException
Callback: TypeAlias = Callable[[Outcome], None]

# A plain int: each response is compared with it, and an enum's member compares slowly.
_GO_AWAY = int(ResponseCode.GO_AWAY)


class QuickRequest:
    """Gives the outcome to its callback, once, and everything else back (a `Completion`)."""

    __slots__ = ("_callback", "_connection", "_hooks", "_permits", "_pool", "_request")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        callback: Callback,
        pool: ConnectionPool,
        hooks: HookChain,
        permits: Permits | None,
    ) -> None:
        self._connection = connection
        self._request = request
        self._callback: Callback | None = callback
        self._pool = pool
        self._hooks = hooks
        self._permits = permits  # of which it has one, unless its caller waits for it

    def done(self) -> bool:
        """Whether the callback was called."""
        return self._callback is None

    def set_result(self, outcome: Outcome, /) -> None:
        """Call it with the response, GO_AWAY included, or the error."""
        callback, self._callback = self._callback, None
        if callback is None:
            return
        connection = self._connection
        if self._permits is not None:
            self._permits.release()
        if isinstance(outcome, Command):
            if self._hooks:
                self._hooks.after_response_inline(connection.address, self._request, outcome)
            if outcome.code == _GO_AWAY:
                self._pool.retire(connection)
        if connection.going_away:
            self._pool.close_if_left(connection)
        callback(outcome)

    set_exception = set_result
