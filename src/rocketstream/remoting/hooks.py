"""RPC hooks: what may look at, and add to, every request and response (REM-08)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from rocketstream.wire.command import Command

log = logging.getLogger("rocketstream.remoting")


class RpcHook:
    """Override what you need; hooks of users run on a callback thread, never on the I/O thread.

    `before_request` may add header fields; an exception from it fails the request before anything is sent.
    `after_response` is told of every answer; an exception from it is logged. One-way requests have no answer.
    """

    inline = False
    """True only for hooks that never block: they run on the I/O thread itself (the ACL signer does)."""

    def before_request(self, address: str, request: Command) -> None:
        """A request is about to be sent."""

    def after_response(self, address: str, request: Command, response: Command) -> None:
        """A request was answered."""


class HookChain:
    """Runs hooks in order, each where it belongs."""

    __slots__ = ("_executor", "_hooks", "inline")

    def __init__(self, hooks: Sequence[RpcHook], executor: Executor) -> None:
        self._hooks = tuple(hooks)
        self._executor = executor
        self.inline = all(hook.inline for hook in self._hooks)
        """Whether none of them needs another thread."""

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def before_request_inline(self, address: str, request: Command) -> None:
        """Run them here and now; only if they are all `inline`."""
        for hook in self._hooks:
            hook.before_request(address, request)

    def after_response_inline(self, address: str, request: Command, response: Command) -> None:
        """Run them here and now; only if they are all `inline`."""
        for hook in self._hooks:
            hook.after_response(address, request, response)

    async def before_request(self, address: str, request: Command) -> None:
        """Run every hook's `before_request`; the first exception ends it."""
        for hook in self._hooks:
            if hook.inline:
                hook.before_request(address, request)
            else:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._executor, _call, hook.before_request, address, request)

    async def after_response(self, address: str, request: Command, response: Command) -> None:
        """Run every hook's `after_response`."""
        for hook in self._hooks:
            try:
                if hook.inline:
                    hook.after_response(address, request, response)
                else:
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self._executor, _call, hook.after_response, address, request, response)
            except Exception:
                log.exception("the RPC hook %r raised in after_response of %r", hook, request)


def _call(function: Callable[..., None], *args: object) -> None:
    """`StopIteration` cannot leave a future: whoever awaits it would wait for ever."""
    try:
        function(*args)
    except StopIteration as error:
        raise RuntimeError(f"{function!r} raised StopIteration") from error
