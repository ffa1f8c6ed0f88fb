"""What a consumer measures, as samples of the registry.

The rule of this file: it looks, on the I/O thread, when somebody asks; nothing is changed by being asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rocketstream.consumer.pop_request import PopRequest
from rocketstream.consumer.stats import ConsumeStats
from rocketstream.consumer.status import pop_status, queue_status
from rocketstream.metrics import catalogue
from rocketstream.metrics.values import Sample

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore


def stats_samples(stats: ConsumeStats, group: str) -> Iterator[Sample]:
    """What was counted so far."""
    # Of every topic that has anything: a counter that begins with 1 would hide its first message from `rate`.
    for topic, counted in stats.metrics().items():
        labels = (group, topic)
        yield Sample(catalogue.CONSUMER_PULLED, labels, counted["pulled_messages"])
        yield Sample(catalogue.CONSUMER_MESSAGES, (*labels, "ok"), counted["ok_messages"])
        yield Sample(catalogue.CONSUMER_MESSAGES, (*labels, "failed"), counted["failed_messages"])
    for topic, meters in stats.meters.copy().items():
        labels = (group, topic)
        yield Sample(catalogue.CONSUMER_PULLED_BYTES, labels, meters.pulled_bytes)
        yield Sample(catalogue.CONSUMER_LISTENER_SECONDS, labels, meters.listener.value)
        yield Sample(catalogue.CONSUMER_PULL_SECONDS, labels, meters.pull.value)
        yield Sample(catalogue.CONSUMER_SENT_BACK, (*labels, "ok"), meters.sent_back)
        yield Sample(catalogue.CONSUMER_SENT_BACK, (*labels, "failed"), meters.not_sent_back)
        yield Sample(catalogue.CONSUMER_DEAD_LETTERS, labels, meters.dead_letters)
        for reason, count in meters.waits.copy().items():
            yield Sample(catalogue.CONSUMER_WAITS, (*labels, reason), count)
        yield Sample(catalogue.CONSUMER_STALLS, labels, meters.stalls)
        yield Sample(catalogue.CONSUMER_QUEUES_WON, labels, meters.won)
        yield Sample(catalogue.CONSUMER_QUEUES_LOST, labels, meters.lost)
        if meters.expired:
            yield Sample(catalogue.POP_EXPIRED, labels, meters.expired)
    for metric, results in (
        (catalogue.CONSUMER_REBALANCES, stats.of_group.rebalances),
        (catalogue.POP_ACKS, stats.of_group.acks),
        (catalogue.POP_NACKS, stats.of_group.nacks),
    ):
        for result, count in results.copy().items():
            yield Sample(metric, (group, result), count)


class _Queues(NamedTuple):
    """The queues of a topic together."""

    queues: int = 0
    cached: int = 0
    size: int = 0
    lag: int = 0
    oldest_ms: int | None = None

    def plus(self, cached: int, size: int, lag: int, stored_ms: int | None) -> _Queues:
        known = [moment for moment in (self.oldest_ms, stored_ms) if moment is not None]
        return _Queues(
            self.queues + 1, self.cached + cached, self.size + size, self.lag + lag, min(known) if known else None
        )


def queue_samples(core: ConsumerCore) -> Iterator[Sample]:
    """What a running consumer has now; topics without a queue of ours are 0, not silent."""
    now, wall, group = core.clock.monotonic(), core.clock.wall_ms(), core.group
    topics = dict.fromkeys(core.subscriptions, _Queues())
    for queue, request in core.rebalancer.requests.items():
        pq = request.process_queue
        if pq.dropped:
            continue
        if isinstance(request, PopRequest):
            status, stored_ms = pop_status(request, now, shown=queue), None
        else:
            status = queue_status(request, -1, now, needs_lock=core.needs_locks, shown=queue)
            oldest = request.process_queue.oldest()
            stored_ms = None if oldest is None else oldest.store_timestamp
        topics[queue.topic] = topics.get(queue.topic, _Queues()).plus(
            status.cached_count, status.cached_bytes, status.lag, stored_ms
        )
    stalled = core.overview.stalled()
    for topic, queues in topics.items():
        labels = (group, topic)
        age = 0.0 if queues.oldest_ms is None else max(wall - queues.oldest_ms, 0) / 1000
        yield Sample(catalogue.CONSUMER_QUEUES, labels, queues.queues)
        yield Sample(catalogue.CONSUMER_CACHED, labels, queues.cached)
        yield Sample(catalogue.CONSUMER_CACHED_BYTES, labels, queues.size)
        yield Sample(catalogue.CONSUMER_LAG, labels, queues.lag)
        yield Sample(catalogue.CONSUMER_OLDEST, labels, age)
        yield Sample(catalogue.CONSUMER_STALLED, labels, stalled.get(topic, 0))
    yield Sample(catalogue.CONSUMER_THREADS, (group,), core.consumption.pool.size)
    yield Sample(catalogue.CONSUMER_BACKLOG, (group,), core.consumption.pool.backlog)
    yield Sample(catalogue.CONSUMER_PAUSED, (group,), int(core.paused))
