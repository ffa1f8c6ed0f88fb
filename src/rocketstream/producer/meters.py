"""What a producer counts: messages by topic and outcome, bytes, retries, durations, verdicts on transactions.

The rule of this file: numbers only, added to on the I/O thread, once per request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from rocketstream.metrics import catalogue
from rocketstream.metrics.values import BATCHES, Histogram, Sample
from rocketstream.producer.outgoing import Outgoing


class TopicSends:
    """The counts of one topic."""

    __slots__ = ("batch", "failed", "ok", "one_way", "retries", "seconds", "size")

    def __init__(self) -> None:
        self.ok = self.failed = self.one_way = 0
        self.size = 0
        self.retries = 0
        self.seconds = Histogram()
        self.batch = Histogram(BATCHES)

    def __repr__(self) -> str:
        return f"<TopicSends {self.ok} ok, {self.failed} failed, {self.one_way} one way, {self.retries} retries>"


class ProducerMeters:
    """The counts of one producer."""

    __slots__ = ("_topics", "_transactions")

    def __init__(self) -> None:
        self._topics: dict[str, TopicSends] = {}
        self._transactions: dict[tuple[str, str], int] = defaultdict(int)

    def __repr__(self) -> str:
        return f"<ProducerMeters {self.metrics()!r}>"

    def of(self, topic: str) -> TopicSends:
        """The counts of a topic, to be added to."""
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = TopicSends()
        return counts

    def sent(self, out: Outgoing, seconds: float) -> None:
        """A request was stored, so long after its caller called."""
        counts = self._topics.get(out.topic) or self.of(out.topic)
        counts.ok += out.count
        counts.size += len(out.body)
        counts.seconds.observe(seconds)
        counts.batch.observe(out.count)

    def failed(self, out: Outgoing) -> None:
        """A request was given up."""
        self.of(out.topic).failed += out.count

    def one_way(self, out: Outgoing) -> None:
        """A request was written, and nobody will know more."""
        counts = self.of(out.topic)
        counts.one_way += out.count
        counts.size += len(out.body)

    def judged(self, state: str, by: str) -> None:
        """A transaction has a verdict."""
        self._transactions[state, by] += 1

    def metrics(self) -> Mapping[str, Mapping[str, int]]:
        """The totals per topic, as `producer.metrics` has them."""
        return {
            topic: {
                "ok_messages": counts.ok,
                "failed_messages": counts.failed,
                "one_way_messages": counts.one_way,
                "requests": sum(counts.seconds.value.counts),
                "send_ms": round(counts.seconds.value.total * 1000),
                "sent_bytes": counts.size,
                "retries": counts.retries,
            }
            for topic, counts in self._topics.copy().items()
        }

    def samples(self, group: str) -> Iterator[Sample]:
        """What was counted so far, for the registry."""
        for topic, counts in self._topics.copy().items():
            labels = (group, topic)
            yield Sample(catalogue.PRODUCER_MESSAGES, (*labels, "ok"), counts.ok)
            yield Sample(catalogue.PRODUCER_MESSAGES, (*labels, "failed"), counts.failed)
            if counts.one_way:
                yield Sample(catalogue.PRODUCER_MESSAGES, (*labels, "one_way"), counts.one_way)
            yield Sample(catalogue.PRODUCER_BYTES, labels, counts.size)
            yield Sample(catalogue.PRODUCER_SEND_SECONDS, labels, counts.seconds.value)
            yield Sample(catalogue.PRODUCER_BATCH, labels, counts.batch.value)
            yield Sample(catalogue.PRODUCER_RETRIES, labels, counts.retries)
        for (state, by), count in self._transactions.copy().items():
            yield Sample(catalogue.PRODUCER_TRANSACTIONS, (group, state, by), count)
