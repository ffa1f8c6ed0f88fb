"""The pulls of one task: all its ranges at once, ahead of Spark, in bounded memory; all on the I/O thread.

A range that takes every message is cut into stretches; several stretches are pulled at a time, each by one request
after the other, and given out in their order. So one long queue is read as fast as many short ones, and a broker at
its default of 32 messages an answer has always something to do. A range with a filter is one stretch: how far an
answer reaches is known only when it is there.

The rule of this file: what a task was told to read, it reads, or it fails; it never ends early.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from rocketstream.cluster.brokers import MASTER_ID
from rocketstream.cluster.names import with_namespace
from rocketstream.errors import RocketStreamError, TopicRouteNotFoundError
from rocketstream.remoting.quick_request import Outcome
from rocketstream.remoting.replies import PullResult, read_pull_result
from rocketstream.spark.errors import DataLossError, UnreadableRangeError
from rocketstream.spark.link import Link, is_outage
from rocketstream.spark.pull_answers import next_ask, next_step
from rocketstream.spark.pull_settings import PullSettings
from rocketstream.spark.ranges import QueueRange
from rocketstream.wire.codes import PullFlag, RequestCode, ResponseCode
from rocketstream.wire.columns import Pulled
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.pull import PullMessageRequestHeader
from rocketstream.wire.record_table import record_starts

log = logging.getLogger("rocketstream.spark")

_PULL: Final = int(RequestCode.PULL_MESSAGE)
_GO_AWAY: Final = int(ResponseCode.GO_AWAY)
_TIMEOUT: Final = 15.0
_PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0)


class Flow:
    """One range, and its stretches that are under way, in their order."""

    __slots__ = ("ask", "cut", "end", "fields", "filtered", "queue", "stretches")

    def __init__(self, one: QueueRange, fields: dict[str, str], ask: int, *, filtered: bool) -> None:
        self.queue = one.queue
        self.end = one.end
        self.cut = one.start
        """Where the next stretch begins."""
        self.fields = fields
        self.ask = ask
        """How many messages to ask for."""
        self.filtered = filtered
        self.stretches: deque[Stretch] = deque()

    def __repr__(self) -> str:
        return f"<Flow {self.queue} cut up to {self.cut} of {self.end}, {len(self.stretches)} stretches under way>"

    def next_stretch(self, size: int) -> Stretch:
        """Cut the next stretch off."""
        end = self.end if self.filtered else min(self.cut + size, self.end)
        stretch = Stretch(self, self.cut, end)
        self.cut = end
        self.stretches.append(stretch)
        return stretch


class Stretch:
    """A part of a range that is pulled by one request after the other."""

    __slots__ = ("broker_id", "end", "flow", "held", "next", "tries", "trouble_since")

    def __init__(self, flow: Flow, start: int, end: int) -> None:
        self.flow = flow
        self.next = start
        self.end = end
        self.held: list[tuple[Pulled, int]] = []
        """Answers that wait until the stretches before this one are through."""
        self.broker_id = MASTER_ID
        self.tries = 0
        self.trouble_since: float | None = None

    def __repr__(self) -> str:
        return f"<Stretch {self.flow.queue} at {self.next} of {self.end}, {len(self.held)} answers held>"


class Pulls:
    """All pulls of a task. `groups` gives out lists of answers, then None at the end, or an error instead."""

    def __init__(self, link: Link, ranges: Sequence[QueueRange], settings: PullSettings) -> None:
        self.groups: SimpleQueue[list[Pulled] | BaseException | None] = SimpleQueue()
        self._link = link
        self._instance = link.instance
        self._settings = settings
        self._flows = deque(self._flow(one) for one in ranges if one.size)
        self._ready: deque[Stretch] = deque()
        self._under_way = 0
        """Stretches that are begun and not through."""
        self._in_flight = 0
        self._group: list[Pulled] = []
        self._group_rows = self._group_size = 0
        self._given = self._taken = self._held = 0
        """Bytes: given out and taken, as counted by either side; and held back for their order."""
        self._answer_size = settings.max_answer_bytes
        """How large the next answer may be: as the last one was; and before the first, the worst."""
        self._ended = False
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return (
            f"<Pulls of {len(self._flows)} ranges, {self._in_flight} in flight,"
            f" {self._given - self._taken} bytes given and {self._held} held>"
        )

    def _flow(self, one: QueueRange) -> Flow:
        settings = self._settings
        wanted = settings.subscription(one.queue.topic)
        fields = PullMessageRequestHeader(
            consumer_group=with_namespace(self._link.settings.namespace, settings.group),
            topic=one.queue.topic,
            queue_id=one.queue.queue_id,
            queue_offset=0,
            max_msg_nums=0,
            sys_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=wanted.sub_string,
            sub_version=1,
            expression_type=wanted.expression_type,
            max_msg_bytes=settings.max_answer_bytes,
            bname=one.queue.broker_name,
        ).to_fields()
        return Flow(one, fields, settings.pull_batch_size, filtered=settings.filters(one.queue.topic))

    # --- the other side ---------------------------------------------------------------------------------------------

    def took(self, size: int) -> None:
        """Whoever takes the groups is through with so many bytes; from its own thread."""
        self._taken += size
        self._link.io.call_soon(self._pump)

    def start(self) -> None:
        """Send the first pulls."""
        if not self._flows:
            self._end(None)
        else:
            self._pump()

    def stop(self) -> None:
        """Nobody takes what is pulled any more."""
        self._ended = True
        for task in self._tasks:
            task.cancel()

    def _end(self, error: BaseException | None) -> None:
        if not self._ended:
            self.stop()
            if error is None:
                self._give_group()
            self.groups.put(error)

    # --- what to pull next ------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        while not self._ended:
            stretch = self._next()
            if stretch is None:
                return
            self._send(stretch)

    def _next(self) -> Stretch | None:
        """The stretch to send a pull for now, if there is memory for its answer."""
        out = self._given - self._taken
        ahead = out + self._group_size + self._answer_size * (self._in_flight + 1)
        limit = self._settings.prefetch_bytes
        if ahead > limit and (out or self._in_flight):  # an answer larger than the limit comes all the same, alone
            return None
        if ahead + self._held <= limit or not (out or self._in_flight or self._held):
            if self._ready:
                return self._ready.popleft()
            return self._begin()
        # Only those in front: what they bring can be given out at once.
        for stretch in self._ready:
            if stretch.flow.stretches[0] is stretch:
                self._ready.remove(stretch)
                return stretch
        return None

    def _begin(self) -> Stretch | None:
        if not self._flows or self._under_way >= self._settings.pulls_at_once:
            return None
        flow = self._flows.popleft()
        self._under_way += 1
        stretch = flow.next_stretch(self._settings.stretch)
        if flow.cut < flow.end:
            self._flows.append(flow)
        return stretch

    # --- a pull -----------------------------------------------------------------------------------------------------

    def _send(self, stretch: Stretch) -> None:
        flow = stretch.flow
        self._in_flight += 1
        broker = self._instance.brokers.find(flow.queue.broker_name, stretch.broker_id)
        if broker is None:
            self._spawn(self._find_and_send(stretch))
            return
        self._send_to(stretch, broker.address)

    def _send_to(self, stretch: Stretch, address: str) -> None:
        fields = stretch.flow.fields.copy()
        fields["queueOffset"] = str(stretch.next)
        fields["maxMsgNums"] = str(min(stretch.flow.ask, stretch.end - stretch.next))
        command = request(_PULL, fields)
        remoting = self._instance.remoting
        answered = partial(self._answered, stretch, address)
        if not remoting.try_invoke(address, command, self._instance.clock.monotonic() + _TIMEOUT, answered):
            remoting.begin(address, command, _TIMEOUT).add_done_callback(partial(self._answered_late, answered))

    async def _find_and_send(self, stretch: Stretch) -> None:
        queue = stretch.flow.queue
        try:
            broker = await self._instance.routes.broker(queue.topic, queue.broker_name, stretch.broker_id)
        except RocketStreamError as error:
            self._in_flight -= 1
            self._failed(stretch, error)
        else:
            self._send_to(stretch, broker.address)

    def _answered_late(self, answered: partial[None], answer: asyncio.Future[Command]) -> None:
        if not answer.cancelled():
            error = answer.exception()
            answered(answer.result() if error is None else error)

    def _answered(self, stretch: Stretch, address: str, outcome: Outcome) -> None:
        self._in_flight -= 1
        if self._ended:
            return
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome.code == _GO_AWAY:
                self._ready.append(stretch)
            else:
                self._take(stretch, read_pull_result(address, _PULL, outcome))
        except RocketStreamError as error:
            self._failed(stretch, error)
        except Exception as error:  # a mistake of ours must end the task, not hang it
            self._end(error)
        self._pump()

    # --- its answer -------------------------------------------------------------------------------------------------

    def _take(self, stretch: Stretch, result: PullResult) -> None:
        flow, asked = stretch.flow, stretch.next
        step = next_step(asked, stretch.end, result, filtered=flow.filtered)
        if step.next_offset == asked:
            stretch.broker_id = MASTER_ID  # a slave may be behind
            self._trouble(stretch, step.why)
            return
        stretch.broker_id = result.suggested_broker_id
        stretch.trouble_since, stretch.tries = None, 0
        if step.lost is not None:
            self._lost(QueueRange(flow.queue, *step.lost))
        stretch.next = step.next_offset
        if step.take:
            self._answer_size = len(result.body)
            rows = result.next_offset - asked
            if flow.filtered:
                rows = len(record_starts(result.body, 0, len(result.body)) or ())
            else:
                flow.ask = next_ask(min(flow.ask, stretch.end - asked), rows, flow.ask, self._settings.pull_batch_size)
            self._give(stretch, Pulled(flow.queue, result.body, asked, stretch.end), rows)
        if stretch.next < stretch.end:
            self._ready.append(stretch)
        else:
            self._finish(stretch)

    def _give(self, stretch: Stretch, pulled: Pulled, rows: int) -> None:
        if stretch.flow.stretches[0] is not stretch:
            self._held += len(pulled.body)
            stretch.held.append((pulled, rows))
            return
        self._group.append(pulled)
        self._group_rows += rows
        self._group_size += len(pulled.body)
        if self._group_rows >= self._settings.rows_per_group or self._group_size >= self._settings.bytes_per_group:
            self._give_group()

    def _give_group(self) -> None:
        if self._group:
            self._given += self._group_size
            self.groups.put(self._group)
            self._group, self._group_rows, self._group_size = [], 0, 0

    def _finish(self, stretch: Stretch) -> None:
        """A stretch is through; so may be those behind it that were faster."""
        self._under_way -= 1
        flow = stretch.flow
        while flow.stretches:
            front = flow.stretches[0]
            for pulled, rows in front.held:
                self._held -= len(pulled.body)
                self._give(front, pulled, rows)
            front.held.clear()
            if front.next < front.end:
                break
            flow.stretches.popleft()
        if not self._under_way and not self._flows:
            self._end(None)

    # --- what goes wrong --------------------------------------------------------------------------------------------

    def _lost(self, gone: QueueRange) -> None:
        if self._settings.fail_on_data_loss:
            self._end(DataLossError(gone))
        else:
            log.warning("%s is gone from its broker and is passed over (failOnDataLoss=false)", gone)

    def _failed(self, stretch: Stretch, error: RocketStreamError) -> None:
        # The planner has seen the topic: that it is in no route is a broker that restarts.
        if not is_outage(error) and not isinstance(error, TopicRouteNotFoundError):
            self._end(UnreadableRangeError(self._rest(stretch), 0.0, str(error)))
            return
        stretch.broker_id = MASTER_ID
        self._trouble(stretch, str(error))

    def _trouble(self, stretch: Stretch, why: str) -> None:
        """Ask again in a moment; after as long as an outage may last, it is an error."""
        now = self._instance.clock.monotonic()
        if stretch.trouble_since is None:
            stretch.trouble_since = now
            log.info("%s: %s; asking again", self._rest(stretch), why)
        waited = now - stretch.trouble_since
        if waited >= self._settings.outage:
            self._end(UnreadableRangeError(self._rest(stretch), waited, why))
            return
        pause = _PAUSES[min(stretch.tries, len(_PAUSES) - 1)]
        stretch.tries += 1
        self._spawn(self._again(stretch, pause))

    async def _again(self, stretch: Stretch, pause: float) -> None:
        await self._instance.clock.sleep(pause)
        await self._instance.routes.refresh_all([stretch.flow.queue.topic])
        self._ready.appendleft(stretch)
        self._pump()

    def _rest(self, stretch: Stretch) -> QueueRange:
        return QueueRange(stretch.flow.queue, stretch.next, stretch.flow.end)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
