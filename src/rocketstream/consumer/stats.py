"""How fast a group consumes (RES-11): totals per topic, and rates over the last minute, as Java's `StatsItemSet`.

The rule of this file: counting is adding whole numbers, and only the I/O thread counts. Rates come from samples of the
totals that are taken each 10 s; asking is for any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from rocketstream.consumer.meters import GroupMeters, TopicMeters
from rocketstream.wire.bodies.running_info import ConsumeStatus

SAMPLE_INTERVAL: Final = 10.0
_HOUR_SAMPLE_INTERVAL: Final = 600.0
_SAMPLES: Final = 7  # six intervals lie between seven samples
# A timer is early or late at times: so much younger than the window a sample may be to begin it.
_SLACK: Final = SAMPLE_INTERVAL / 2


_TOTALS: Final = (
    "pulls",
    "pull_ms",
    "pulled_messages",
    "ok_messages",
    "failed_messages",
    "listener_calls",
    "listener_ms",
    *TopicMeters().counts(),
)
"""The names of what `ConsumeStats.metrics` tells of each topic."""


class _Totals(NamedTuple):
    at: float
    pulls: int = 0
    pull_ms: int = 0
    pulled: int = 0
    ok: int = 0
    failed: int = 0
    consumed: int = 0
    consume_ms: int = 0


class _TopicCounts:
    __slots__ = ("consume_ms", "consumed", "failed", "hour", "minute", "ok", "pull_ms", "pulled", "pulls")

    def __init__(self) -> None:
        self.pulls = self.pull_ms = self.pulled = self.ok = self.failed = self.consumed = self.consume_ms = 0
        self.minute: deque[_Totals] = deque(maxlen=_SAMPLES)
        self.hour: deque[_Totals] = deque(maxlen=_SAMPLES)

    def totals(self, at: float) -> _Totals:
        return _Totals(at, self.pulls, self.pull_ms, self.pulled, self.ok, self.failed, self.consumed, self.consume_ms)

    def sample(self, now: float) -> None:
        if not self.minute:
            # Nothing was counted before: what the first sample has is of the interval that ends with it.
            before = _Totals(now - SAMPLE_INTERVAL)
            self.minute.append(before)
            self.hour.append(before)
        totals = self.totals(now)
        self.minute.append(totals)
        if now - self.hour[-1].at >= _HOUR_SAMPLE_INTERVAL - _SLACK:
            self.hour.append(totals)


class ConsumeStats:
    """The counts of one group in this client. `sample` wants to be called each 10 s."""

    __slots__ = ("_topics", "group", "meters", "of_group")

    def __init__(self, group: str) -> None:
        self.group = group
        self._topics: dict[str, _TopicCounts] = {}
        self.meters: dict[str, TopicMeters] = {}
        """What else is counted of a topic; `of` makes what is missing."""
        self.of_group = GroupMeters()

    def __repr__(self) -> str:
        return f"ConsumeStats({self.group!r}, {self.snapshot()!r})"

    def add_pull(self, topic: str, rt_ms: int, n: int = 0) -> None:
        """A pull took so many milliseconds and brought `n` messages, unless `add_pulled` tells of them."""
        counts = self._topics.get(topic) or self._new(topic)
        counts.pulls += 1
        counts.pull_ms += rt_ms
        counts.pulled += n

    def add_found(self, topic: str, seconds: float, size: int) -> None:
        """A pull took so long, and its answer had messages and so many bytes; `add_pulled` tells how many were left."""
        self.add_pull(topic, round(seconds * 1000))
        meters = self.of(topic)
        meters.pull.observe(seconds)
        meters.pulled_bytes += size

    def add_pulled(self, topic: str, n: int) -> None:
        """So many messages of a pull were left once filters had seen them: Java counts these."""
        (self._topics.get(topic) or self._new(topic)).pulled += n

    def add_ok(self, topic: str, n: int) -> None:
        """So many messages were consumed well."""
        (self._topics.get(topic) or self._new(topic)).ok += n

    def add_failed(self, topic: str, n: int) -> None:
        """So many messages come again later."""
        (self._topics.get(topic) or self._new(topic)).failed += n

    def add_consume_rt(self, topic: str, ms_total: int, n: int) -> None:
        """`n` calls of the listener took so many milliseconds together."""
        counts = self._topics.get(topic) or self._new(topic)
        counts.consumed += n
        counts.consume_ms += ms_total

    def add_calls(self, topic: str, seconds: Sequence[float]) -> None:
        """Calls of the listener took so long, each."""
        # What rounds to 0 ms need not be added up one by one.
        slow = [round(took * 1000) for took in seconds if took >= 0.0005]
        self.add_consume_rt(topic, sum(slow), len(seconds))
        self.of(topic).listener.observe_all(seconds)

    def of(self, topic: str) -> TopicMeters:
        """The other counts of a topic, to be added to."""
        meters = self.meters.get(topic)
        if meters is None:
            meters = self.meters[topic] = TopicMeters()
        return meters

    def add_all(self, counted: Mapping[str, Mapping[str, int]]) -> None:
        """Add what others have counted, as their `snapshot` says it."""
        for topic, more in counted.items():
            counts = self._topics.get(topic) or self._new(topic)
            counts.pulls += more["pulls"]
            counts.pull_ms += more["pull_ms"]
            counts.pulled += more["pulled_messages"]
            counts.ok += more["ok_messages"]
            counts.failed += more["failed_messages"]
            counts.consumed += more["listener_calls"]
            counts.consume_ms += more["listener_ms"]

    def sample(self, now: float) -> None:
        """Keep the totals of this moment: seven each 10 s, and seven each 10 min."""
        for counts in self._topics.values():
            counts.sample(now)

    def status(self, topic: str, now: float) -> ConsumeStatus:
        """A topic's speed over the last minute, up to this moment, and its failures of the last hour.

        Before the first sample all but the failures are 0. A listener that was not called in the last minute shows the
        last hour's time, as in Java.
        """
        counts = self._topics.get(topic)
        if counts is None:
            return ConsumeStatus()
        end = counts.totals(now)
        hour = _begin(counts.hour, now, 6 * _HOUR_SAMPLE_INTERVAL) or _Totals(now)
        begin = _begin(counts.minute, now, 6 * SAMPLE_INTERVAL)
        if begin is None:
            return ConsumeStatus(consume_failed_msgs=end.failed - hour.failed)
        seconds = max(now - begin.at, SAMPLE_INTERVAL)
        consume_begin = begin if end.consume_ms > begin.consume_ms else hour
        return ConsumeStatus(
            pull_rt=_mean(end.pull_ms - begin.pull_ms, end.pulls - begin.pulls),
            pull_tps=(end.pulled - begin.pulled) / seconds,
            consume_rt=_mean(end.consume_ms - consume_begin.consume_ms, end.consumed - consume_begin.consumed),
            consume_ok_tps=(end.ok - begin.ok) / seconds,
            consume_failed_tps=(end.failed - begin.failed) / seconds,
            consume_failed_msgs=end.failed - hour.failed,
        )

    def snapshot(self) -> Mapping[str, Mapping[str, int]]:
        """The totals since the start, per topic; they only grow."""
        return {
            topic: {
                "pulls": counts.pulls,
                "pull_ms": counts.pull_ms,
                "pulled_messages": counts.pulled,
                "ok_messages": counts.ok,
                "failed_messages": counts.failed,
                "listener_calls": counts.consumed,
                "listener_ms": counts.consume_ms,
            }
            for topic, counts in self._topics.copy().items()
        }

    def metrics(self) -> Mapping[str, Mapping[str, int]]:
        """The totals of `snapshot`, and everything else that is counted per topic."""
        nothing = dict.fromkeys(_TOTALS, 0)
        told = {topic: {**nothing, **counted} for topic, counted in self.snapshot().items()}
        for topic, meters in self.meters.copy().items():
            told.setdefault(topic, nothing.copy()).update(meters.counts())
        return told

    def _new(self, topic: str) -> _TopicCounts:
        counts = self._topics[topic] = _TopicCounts()
        return counts


def _begin(samples: Iterable[_Totals], now: float, window: float) -> _Totals | None:
    """Where the window begins: the newest sample that is old enough, else the oldest."""
    begin = None
    for sample in tuple(samples):
        if begin is not None and now - sample.at < window - _SLACK:
            break
        begin = sample
    return begin


def _mean(total: int, times: int) -> float:
    return total / times if times else 0.0
