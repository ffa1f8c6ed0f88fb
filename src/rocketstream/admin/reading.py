"""Reading messages by plain pulls: no group joins, nothing is committed, nobody else notices."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from rocketstream.admin.asking import Node
from rocketstream.admin.moments import EARLIEST, LATEST, Moment, resolve_moment
from rocketstream.admin.topics import TopicOperations
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.remoting.replies import read_pull_result
from rocketstream.wire.bodies.stats import TopicStatsTable
from rocketstream.wire.bodies.subscription import SUBSCRIBE_ALL, SubscriptionData
from rocketstream.wire.codes import PullFlag, PullStatus, RequestCode
from rocketstream.wire.command import request
from rocketstream.wire.headers.offsets import OffsetResponseHeader, SearchOffsetRequestHeader
from rocketstream.wire.headers.pull import PullMessageRequestHeader
from rocketstream.wire.headers.topic import GetTopicStatsInfoRequestHeader
from rocketstream.wire.record_decoder import decode_records
from rocketstream.wire.subscription import subscription

log = logging.getLogger("rocketstream.admin")

# A group that every broker has from the start, for exactly this (Java's MixAll.TOOLS_CONSUMER_GROUP).
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
_PULL_BATCH: Final = 32
_IDLE_WAIT: Final = 0.2
_MAX_WANTED: Final = 100_000


@dataclass(slots=True)
class QueueReader:
    """A place in one queue, and where the reading ends."""

    node: Node
    queue: MessageQueue
    offset: int
    end: int | None
    """The first offset that is not read any more; None: never ends."""
    finished: bool = False


@dataclass(slots=True)
class TopicReader:
    """A place in every queue of a topic; `ReadingOperations.poll` moves it."""

    topic: str
    wanted: SubscriptionData
    queues: list[QueueReader]
    since: int | None
    """Messages that were stored before are left out: brokers find a place by time only nearly."""
    quiet: float = 0.0
    """For how many seconds `poll_until_quiet` has found nothing."""


class ReadingOperations(TopicOperations):
    """What an operator reads."""

    async def peek(
        self,
        topic: str,
        n: int = 10,
        *,
        start: Moment | None = None,
        until: Moment | None = None,
        offset: int | None = None,
        tags: str = SUBSCRIBE_ALL,
        broker_name: str | None = None,
        queue_id: int | None = None,
        scan: int = 10_000,
    ) -> list[ReceivedMessage]:
        """Up to `n` messages, oldest first: the newest ones, or with `start` or `offset` the first ones from there.

        `until` leaves out what was stored later. A tag that few messages have is looked for in up to `scan` messages
        of each queue; without one `scan` means nothing.
        """
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MAX_WANTED:
            raise ConfigurationError(f"n={n!r} must be from 1 to {_MAX_WANTED}")
        if start is not None and offset is not None:
            raise ConfigurationError("start and offset are two ways to say where to begin: give one")
        before = _later_than(until)
        newest = start is None and offset is None
        reader = await self.reader(
            topic, EARLIEST if newest else start, offset=offset, tags=tags, broker_name=broker_name, queue_id=queue_id
        )
        ends = await self._ranges(reader.topic, {one.node for one in reader.queues})
        # Where every message matches, it is `n` that says how many are read.
        most = scan if reader.wanted.tags_set else max(scan, n + 1)

        async def read(one: QueueReader) -> list[ReceivedMessage]:
            one.end = ends[one.queue][1]
            if not newest:
                return await self._forward(reader, one, n, before, most)
            if before is not None:
                # Not by reading back from the end: there may be millions of messages in between.
                one.end = min(one.end, await self.offset_at(one.node, one.queue, before))
            return await self._newest(reader, one, n, before, most)

        found = sorted_messages(chain.from_iterable(await self.for_all(reader.queues, read)))
        return found[-n:] if newest else found[:n]

    async def reader(
        self,
        topic: str,
        start: Moment | None = LATEST,
        *,
        offset: int | None = None,
        tags: str = SUBSCRIBE_ALL,
        broker_name: str | None = None,
        queue_id: int | None = None,
    ) -> TopicReader:
        """A place in every queue of a topic, from which `poll` reads on; `offset` wins over `start`."""
        full = self.full_topic(topic)
        wanted = subscription(full, tags, version=self._now_ms())
        place = resolve_moment("start", start) if offset is None else EARLIEST
        nodes = await self.readable_of(full)
        by_name = {node.name: node for node in nodes}
        ranges = await self._ranges(full, set(nodes))
        chosen = [
            queue
            for queue in sorted(ranges)
            if broker_name in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
        ]
        if not chosen:
            raise ConfigurationError(
                f"topic {topic!r} has no queue with broker_name={broker_name!r}, queue_id={queue_id!r}: it has"
                f" {len(ranges)} on {', '.join(sorted(by_name))}"
            )

        async def at(queue: MessageQueue) -> QueueReader:
            low, high = ranges[queue]
            node = by_name[queue.broker_name]
            if offset is not None:
                first = min(max(offset, low), high)
            elif place == EARLIEST:
                first = low
            elif place == LATEST:
                first = high
            else:
                first = await self.offset_near(node, queue, int(place) - 1)
            return QueueReader(node, queue, first, None)

        since = place if isinstance(place, int) else None
        return TopicReader(full, wanted, await self.for_all(chosen, at), since)

    async def poll(self, reader: TopicReader, timeout: float) -> list[ReceivedMessage]:
        """What has come since the last time, oldest first; empty when nothing came within `timeout` seconds."""
        deadline = self.clock.monotonic() + timeout
        while True:
            found = await self.for_all(reader.queues, lambda one: self._read(reader, one))
            if messages := sorted_messages(chain.from_iterable(found)):
                return messages
            remaining = deadline - self.clock.monotonic()
            if remaining <= 0:
                return []
            await self.clock.sleep(min(_IDLE_WAIT, remaining))

    async def poll_until_quiet(
        self, reader: TopicReader, idle: float | None, step: float
    ) -> list[ReceivedMessage] | None:
        """What has come, an empty list after `step` seconds without, None after `idle` seconds without."""
        if idle is not None and reader.quiet >= idle:
            return None
        wait = step if idle is None else min(step, idle - reader.quiet)
        messages = await self.poll(reader, wait)
        reader.quiet = 0.0 if messages else reader.quiet + wait
        return messages

    async def offset_near(self, node: Node, queue: MessageQueue, timestamp: int) -> int:
        """Where a broker thinks a time is in a queue; one message before the right place at most.

        5.x gives the first message of that time or later. 4.9 gives the nearest, any of several with the same time,
        and the last one for a time after all.
        """
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp, bname=queue.broker_name, lo=False
        )
        answer = await self.ask(node, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return max(OffsetResponseHeader.from_fields(answer.fields).offset, 0)

    async def offset_at(self, node: Node, queue: MessageQueue, timestamp: int) -> int:
        """The first offset whose message was stored at that time or later; the end of the queue if there is none."""
        place = QueueReader(node, queue, await self.offset_near(node, queue, timestamp - 1), None)
        everything = TopicReader(queue.topic, subscription(queue.topic), [place], None)
        while True:
            before = place.offset
            for message in await self._read(everything, place):
                if message.store_timestamp >= timestamp:
                    return message.queue_offset
            if place.offset == before:
                return place.offset

    # --- parts ------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self.clock.wall_ms()

    async def _ranges(self, full_topic: str, nodes: Iterable[Node]) -> dict[MessageQueue, tuple[int, int]]:
        header = GetTopicStatsInfoRequestHeader(topic=full_topic)
        ranges: dict[MessageQueue, tuple[int, int]] = {}
        for answer in await self.for_all(nodes, lambda node: self.ask(node, RequestCode.GET_TOPIC_STATS_INFO, header)):
            table = TopicStatsTable.decode(answer.body).offset_table
            ranges |= {queue: (known.min_offset, known.max_offset) for queue, known in table.items()}
        return ranges

    async def _newest(
        self, reader: TopicReader, one: QueueReader, n: int, before: int | None, scan: int
    ) -> list[ReceivedMessage]:
        """The last `n` that match, by windows that grow backwards."""
        first, end = one.offset, one.end or 0
        found: list[ReceivedMessage] = []
        window, scanned = n, 0
        while end > first and len(found) < n and scanned < scan:
            begin = max(first, end - min(window, scan - scanned))
            part = QueueReader(one.node, one.queue, begin, end)
            found = await self._forward(reader, part, end - begin, before, end - begin) + found
            scanned += end - begin
            end, window = begin, min(window * 2, 1024)
        return found[-n:]

    async def _forward(
        self, reader: TopicReader, one: QueueReader, n: int, before: int | None, scan: int
    ) -> list[ReceivedMessage]:
        """The first `n` that match."""
        found: list[ReceivedMessage] = []
        last = one.offset + scan
        while not one.finished and len(found) < n and one.offset < last:
            for message in await self._read(reader, one):
                if before is not None and message.store_timestamp >= before:
                    return found[:n]
                found.append(message)
        return found[:n]

    async def _read(self, reader: TopicReader, one: QueueReader) -> list[ReceivedMessage]:
        """One pull; moves the place. `finished` once its end, or the queue's with an end asked for, is reached."""
        if one.finished or (one.end is not None and one.offset >= one.end):
            one.finished = True
            return []
        code = RequestCode.PULL_MESSAGE
        command = request(code, _pull_header(reader, one))
        address = one.node.address
        result = read_pull_result(
            address, code, await self.instance.remoting.invoke(address, command, self.settings.api_timeout)
        )
        if one.end is not None and (result.status is PullStatus.NO_NEW_MSG or result.next_offset <= one.offset):
            one.finished = True
        # A queue whose oldest messages were deleted answers OFFSET_ILLEGAL and where it begins now.
        one.offset = result.next_offset
        if result.status is not PullStatus.FOUND:
            return []
        decoded = decode_records(
            result.body, queue=one.queue, min_offset=result.min_offset, max_offset=result.max_offset
        )
        for damaged in decoded.corrupt:
            log.warning("%s answered a damaged message of %s: %s", address, one.queue, damaged.reason)
        return [self._as_its_user_knows_it(message) for message in decoded.messages if _is_wanted(reader, one, message)]

    def _as_its_user_knows_it(self, message: ReceivedMessage) -> ReceivedMessage:
        message.topic = self.short(message.topic)
        return message


def sorted_messages(messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
    """By the time they were stored; the order within each queue is kept."""
    return sorted(messages, key=lambda message: (message.store_timestamp, message.queue, message.queue_offset))


def _pull_header(reader: TopicReader, one: QueueReader) -> PullMessageRequestHeader:
    count = _PULL_BATCH if one.end is None else max(1, min(_PULL_BATCH, one.end - one.offset))
    return PullMessageRequestHeader(
        consumer_group=TOOLS_GROUP,
        topic=reader.topic,
        queue_id=one.queue.queue_id,
        queue_offset=one.offset,
        max_msg_nums=count,
        sys_flag=int(PullFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=reader.wanted.sub_string,
        sub_version=reader.wanted.sub_version,
        expression_type=reader.wanted.expression_type,
        bname=one.queue.broker_name,
        lo=False,  # operators see the queues that brokers have, of static topics too
    )


def _is_wanted(reader: TopicReader, one: QueueReader, message: ReceivedMessage) -> bool:
    if one.end is not None and message.queue_offset >= one.end:
        return False
    if reader.since is not None and message.store_timestamp < reader.since:
        return False
    # Brokers compare the hash codes of tags, and two tags can have the same.
    return not reader.wanted.tags_set or message.tags in reader.wanted.tags_set


def _later_than(until: Moment | None) -> int | None:
    if until is None:
        return None
    end = resolve_moment("until", until)
    if end == EARLIEST:
        raise ConfigurationError("until='earliest' leaves nothing to read")
    return None if end == LATEST else int(end) + 1
