"""The remoting client: requests to any address, over one connection each, every caller with exactly one outcome.

It lives on an event loop (the I/O thread's) and is touched only there. A request takes a permit, finds or makes the
connection of its address, runs the hooks, enters the pending table, is written, and waits. It ends by its response, by
the end of its connection, by the scan that looks for time-outs, or because its caller went away; leaving the coroutine
gives everything back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from rocketstream.clock import Clock, SystemClock, Timer
from rocketstream.errors import (
    ConnectionLostError,
    RemotingClosedError,
    RequestTimeoutError,
    SendRequestError,
)
from rocketstream.metrics import catalogue
from rocketstream.metrics.values import Sample
from rocketstream.remoting.connection import Connection
from rocketstream.remoting.hooks import HookChain, RpcHook
from rocketstream.remoting.pending import PendingRequest, PendingTable
from rocketstream.remoting.permits import Permits
from rocketstream.remoting.pool import ConnectionPool
from rocketstream.remoting.processors import Processor, Processors
from rocketstream.remoting.quick_request import Callback, Outcome, QuickRequest
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.wire.codes import ResponseCode, RpcFlag
from rocketstream.wire.command import Command

log = logging.getLogger("rocketstream.remoting")


class RemotingClient:
    """Sends commands and awaits their answers."""

    def __init__(
        self,
        settings: RemotingSettings | None = None,
        *,
        clock: Clock | None = None,
        hooks: Sequence[RpcHook] = (),
    ) -> None:
        self.settings = settings or RemotingSettings()
        self._clock = clock or SystemClock()
        # Three pools, whose threads exist only once they are needed: a callback or a processor that blocks on a request
        # of its own must find the threads that run this request's hooks free.
        self._callback_threads = self._threads("callback")
        self._hook_threads = self._threads("hook")
        self._processor_threads = self._threads("processor")
        self._hooks = HookChain(hooks, self._hook_threads)
        self._processors = Processors(self._processor_threads)
        self._pending = PendingTable()
        self._async_permits = Permits(self.settings.max_async_requests, "asynchronous", self._clock)
        self._one_way_permits = Permits(self.settings.max_one_way_requests, "one-way", self._clock)
        self._pool = ConnectionPool(self, self.settings, self._clock, self._pending.waiting_on)
        self._tasks: set[asyncio.Task[None]] = set()
        self._scan_timer: Timer | None = None
        self._next_scan = 0.0
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "new" if self._scan_timer is None else "running"
        return (
            f"<RemotingClient {state}, {len(self._pool)} connections, {len(self._pending)} pending,"
            f" {self._async_permits.in_use} asynchronous and {self._one_way_permits.in_use} one-way permits in use>"
        )

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for time-outs (the first request does so too); call it on the event loop."""
        if self._scan_timer is None and not self._closed:
            self._schedule_scan(self.settings.scan_delay)

    async def close(self) -> None:
        """Fail what is under way, close the connections, let queued callbacks run out."""
        if self._closed:
            return
        self._closed = True
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        for connection in self._pool.close():
            self._take_announced(connection)
            self._fail_pending(connection)
            self._count_bytes(connection)
        for task in self._tasks:
            task.cancel()  # each hands its callback the news that the client was closed
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # the transports close in the loop's next turn
        for pool in (self._callback_threads, self._hook_threads, self._processor_threads):
            pool.shutdown(wait=False)

    def _threads(self, name: str) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.settings.callback_threads, thread_name_prefix=f"rocketstream-{name}")

    # --- what others look at ------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """How many requests wait for an answer."""
        return len(self._pending)

    @property
    def permits_in_use(self) -> tuple[int, int]:
        """Asynchronous and one-way permits that are out."""
        return self._async_permits.in_use, self._one_way_permits.in_use

    @property
    def connections(self) -> dict[str, Connection]:
        """The open connections by address (a copy)."""
        return self._pool.by_address

    def collect_metrics(self) -> Iterator[Sample]:
        """How requests ended, what is open, and what has passed."""
        counts, connections = self._pool.counts, self._pool.all()
        yield from self._pending.counts.samples()
        yield Sample(catalogue.PENDING, (), len(self._pending))
        yield Sample(catalogue.CONNECTIONS, (), len(connections))
        yield Sample(catalogue.CONNECTS, ("ok",), counts.made)
        yield Sample(catalogue.CONNECTS, ("failed",), counts.failed)
        yield Sample(catalogue.BYTES, ("in",), counts.bytes_in + sum(one.bytes_in for one in connections))
        yield Sample(catalogue.BYTES, ("out",), counts.bytes_out + sum(one.bytes_out for one in connections))

    def _count_bytes(self, connection: Connection) -> None:
        counts = self._pool.counts
        counts.bytes_in += connection.bytes_in
        counts.bytes_out += connection.bytes_out
        connection.bytes_in = connection.bytes_out = 0

    def register_processor(self, code: int, processor: Processor) -> None:
        """Answer requests of that code that brokers send us."""
        self._processors.register(code, processor)

    # --- requests -----------------------------------------------------------------------------------------------

    async def invoke(self, address: str, request: Command, timeout: float) -> Command:
        """Send a request and return its response, whatever its code; raise a `RemotingError` if there is none.

        A command belongs to one request at a time: its opaque is set here.
        """
        deadline = self._clock.monotonic() + timeout
        await self._async_permits.acquire(address, deadline)
        try:
            response, connection = await self._exchange(address, request, deadline)
            if response.code == ResponseCode.GO_AWAY:
                response = await self._exchange_elsewhere(connection, request, deadline)
            if self._hooks:
                await self._hooks.after_response(address, request, response)
            return response
        finally:
            self._async_permits.release()

    async def invoke_one_way(self, address: str, request: Command, timeout: float = 3.0) -> None:
        """Send a request that has no answer; return when it is on its way."""
        deadline = self._clock.monotonic() + timeout
        await self._one_way_permits.acquire(address, deadline)
        try:
            connection = await self._connection(address, deadline)
            request.flag |= RpcFlag.ONE_WAY
            request.opaque = self._pending.next_opaque()
            request.serialize_type = self.settings.serialize_type
            if self._hooks:
                await self._hooks.before_request(address, request)
            await connection.until_writable(deadline)
            connection.write(request)
            self._pending.counts.one_way[request.code] += 1
        finally:
            self._one_way_permits.release()

    def invoke_with_callback(self, address: str, request: Command, timeout: float, callback: Callback) -> None:
        """Send a request; `callback` gets the response or the error, exactly once, on a callback thread (REM-05, -11).

        Call it on the event loop. A callback that raises is logged.
        """
        task = asyncio.ensure_future(self._invoke_for(callback, address, request, timeout))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _invoke_for(self, callback: Callback, address: str, request: Command, timeout: float) -> None:
        outcome: Outcome
        try:
            outcome = await self.invoke(address, request, timeout)
        except asyncio.CancelledError:
            outcome = RemotingClosedError(address, f"the client was closed while {request.name} was under way")
        except Exception as error:
            outcome = error
        try:
            self._callback_threads.submit(_run_callback, callback, outcome, request)
        except RuntimeError:  # closed in the meantime; the callback is owed all the same
            threading.Thread(target=_run_callback, args=(callback, outcome, request), daemon=True).start()

    def try_invoke(self, address: str, request: Command, deadline: float, callback: Callback) -> bool:
        """Send a request at once, if nothing has to be waited for (a connection, a permit, a hook's thread).

        False: nothing was done, use `invoke`. Otherwise `callback` gets the response, GO_AWAY included, or the error,
        on the I/O thread: it must not block and is the client's own code, never a user's. This is what many small
        requests take: no task, no future, no timer each.
        """
        connection = self._pool.get(address)
        now = self._clock.monotonic()
        if (
            connection is None
            or connection.congested
            or now >= deadline
            or not self._hooks.inline
            or not self._async_permits.try_acquire()
        ):
            return False

        request.serialize_type = self.settings.serialize_type
        request.opaque = self._pending.next_opaque()
        quick = QuickRequest(connection, request, callback, self._pool, self._hooks, self._async_permits)
        entry = self._pending.add(request.opaque, connection, address, request.code, now, deadline, quick)
        try:
            if self._hooks:
                self._hooks.before_request_inline(address, request)
            connection.write(request)
        except Exception as error:
            self._pending.discard(entry)
            quick.set_exception(error)
            return True
        if deadline < self._next_scan:
            self._clock.call_later(deadline - now, self._expire)
        return True

    def try_invoke_here(self, address: str, request: Command, deadline: float, callback: Callback) -> bool:
        """The same from any thread, for a caller that waits: the request leaves before this returns.

        Such a caller has one request under way, so it needs no permit, as in Java. A time-out that would need a timer
        of its own is not for this way.
        """
        connection = self._pool.get(address)
        now = self._clock.monotonic()
        if (
            connection is None
            or connection.congested
            or deadline < max(self._next_scan, now)
            or not self._hooks.inline
            or self._closed
        ):
            return False
        request.serialize_type = self.settings.serialize_type
        request.opaque = self._pending.next_opaque()
        if self._hooks:
            self._hooks.before_request_inline(address, request)
        quick = QuickRequest(connection, request, callback, self._pool, self._hooks, None)
        entry = PendingRequest(request.opaque, connection, address, request.code, now, deadline, quick)
        return connection.write_here(request, entry)

    def _take_announced(self, connection: Connection) -> None:
        line = connection.line
        while line is not None and line.announced:
            self._pending.enter(line.announced.popleft())

    def flush(self) -> None:
        """Let what was written in this turn of the loop leave now, not at its end: somebody waits for the answer."""
        self._pool.flush()

    def begin(self, address: str, request: Command, timeout: float) -> asyncio.Future[Command]:
        """Send a request now and return a future of its response; it leaves before the caller's next `await` ends.

        What `invoke` is to a caller that has nothing else to do, this is to one that has: a consumer sends its next
        pull first and decodes the last one's messages while the broker is at work.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Command] = loop.create_future()
        deadline = self._clock.monotonic() + timeout

        def conclude(outcome: Outcome) -> None:
            if future.done():
                return
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            elif outcome.code == ResponseCode.GO_AWAY:
                self._begin_slowly(address, request, deadline, future)
            else:
                future.set_result(outcome)

        if not self.try_invoke(address, request, deadline, conclude):
            self._begin_slowly(address, request, deadline, future)
        return future

    def _begin_slowly(self, address: str, request: Command, deadline: float, future: asyncio.Future[Command]) -> None:
        async def invoke() -> None:
            try:
                response = await self.invoke(address, request, max(deadline - self._clock.monotonic(), 0.0))
            except asyncio.CancelledError:
                future.cancel()
                raise
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(response)

        task = asyncio.ensure_future(invoke())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def connect(self, address: str, timeout: float | None = None) -> Connection:
        """The open connection of an address, made if there is none."""
        limit = self.settings.connect_timeout if timeout is None else timeout
        return await self._connection(address, self._clock.monotonic() + limit)

    def disconnect(self, address: str, reason: str) -> None:
        """Close the connection of an address, if there is one."""
        connection = self._pool.get(address)
        if connection is not None:
            connection.close(reason)

    async def _exchange(self, address: str, request: Command, deadline: float) -> tuple[Command, Connection]:
        connection = await self._connection(address, deadline)
        request.serialize_type = self.settings.serialize_type
        request.opaque = self._pending.next_opaque()
        if self._hooks:
            await self._hooks.before_request(address, request)
        return await self._ask(connection, request, deadline), connection

    async def _exchange_elsewhere(self, connection: Connection, request: Command, deadline: float) -> Command:
        """Ask again on a new connection: the peer told us to leave the old one. Hooks have already run."""
        self._pool.retire(connection)
        replacement = await self._connection(connection.address, deadline)
        request.opaque = self._pending.next_opaque()
        response = await self._ask(replacement, request, deadline)
        if response.code == ResponseCode.GO_AWAY:
            self._pool.retire(replacement)
            raise SendRequestError(connection.address, "the peer is going away (it said so on a new connection too)")
        return response

    async def _ask(self, connection: Connection, request: Command, deadline: float) -> Command:
        if connection.congested:
            await connection.until_writable(deadline)
        now = self._clock.monotonic()
        if now >= deadline:
            raise RequestTimeoutError(connection.address, f"no time was left to send {request.name}")
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        entry = self._pending.add(request.opaque, connection, connection.address, request.code, now, deadline, future)
        try:
            connection.write(request)
            if deadline < self._next_scan:
                # Sooner than the next scan: an extra one, so that short time-outs are kept exactly.
                timer = self._clock.call_later(deadline - now, self._expire)
                try:
                    return await future
                finally:
                    timer.cancel()
            return await future
        finally:
            self._pending.discard(entry)
            self._pool.close_if_left(connection)

    # --- connections --------------------------------------------------------------------------------------------

    async def _connection(self, address: str, deadline: float) -> Connection:
        self.start()
        return await self._pool.obtain(address, deadline)

    def on_command(self, connection: Connection, command: Command) -> None:
        """A command has arrived (`ConnectionOwner`)."""
        if not command.is_response:
            loop = asyncio.get_running_loop()

            def answer(reply: Command) -> None:
                loop.call_soon_threadsafe(self._write_answer, connection, reply)

            self._processors.handle(connection.address, command, answer)
            return
        if connection.line is not None:
            self._take_announced(connection)
        if self._pending.complete(connection, command) is None:
            log.warning("%s answered %r, which no request waits for (any more)", connection.address, command)

    def on_closed(self, connection: Connection) -> None:
        """A connection has ended (`ConnectionOwner`): it leaves the table and its requests fail at once (REM-07)."""
        self._pool.forget(connection)
        self._count_bytes(connection)
        self._take_announced(connection)
        failed = self._fail_pending(connection)
        level = logging.WARNING if failed else logging.DEBUG
        log.log(level, "%r ended; %d requests were waiting on it", connection, failed)

    def _fail_pending(self, connection: Connection) -> int:
        reason = connection.reason
        kind = RemotingClosedError if self._closed else ConnectionLostError
        return self._pending.fail_connection(
            connection,
            lambda entry: kind(
                entry.address, f"the connection ended before {entry.request_name} was answered: {reason}"
            ),
        )

    def _write_answer(self, connection: Connection, reply: Command) -> None:
        try:
            connection.write(reply)
        except SendRequestError as error:
            log.warning("an answer could not be sent: %s", error)

    # --- the scan -----------------------------------------------------------------------------------------------

    def _schedule_scan(self, delay: float) -> None:
        self._next_scan = self._clock.monotonic() + delay
        self._scan_timer = self._clock.call_later(delay, self._scan)

    def _scan(self) -> None:
        self._schedule_scan(self.settings.scan_period)
        self._expire()
        self._pool.close_idle()

    def _expire(self) -> None:
        now = self._clock.monotonic()
        for connection in self._pool.all():
            self._take_announced(connection)
        for entry in self._pending.expire(now):
            log.warning("%s: no answer to %s within %.3g s", entry.address, entry.request_name, entry.timeout)
            if isinstance(entry.connection, Connection):
                self._give_up_if_silent(entry.connection, entry.sent_at)

    def _give_up_if_silent(self, connection: Connection, sent_at: float) -> None:
        silent = self._clock.monotonic() - max(connection.last_read, sent_at)
        if silent >= self.settings.dead_after and not connection.closed:
            # Otherwise each further request would wait out its time-out, until TCP gives up a quarter hour later.
            connection.close(f"nothing was heard for {silent:.3g} s")


def _run_callback(callback: Callback, outcome: Outcome, request: Command) -> None:
    try:
        callback(outcome)
    except Exception:
        log.exception("the callback of %r raised", request)
