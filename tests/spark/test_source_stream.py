"""Streams by Spark itself: exact rows through restarts of queries and brokers, new queues, and what groups are told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from rocketstream.spark.link import Link, LinkSettings
from rocketstream.testing import EmbeddedCluster
from rocketstream.testing.cluster_proxy import ClusterProxy
from tests.bare_client import eventually
from tests.spark.filled import FilledTopic, Row

Filled = Callable[..., FilledTopic]


class Reading:
    """A stream whose batches a test keeps: what a sink that writes each batch once would have."""

    def __init__(self, spark: SparkSession, topic: FilledTopic, place: Path, **options: Any) -> None:
        self._spark = spark
        self._options = {"nameServers": topic.name_servers, "topic": topic.topic, **options}
        self.checkpoint = place / "checkpoint"
        self.batches: dict[int, list[Row]] = {}
        self.dies_in: int | None = None

    def writer(self, **options: Any) -> DataStreamWriter:
        frame = self._spark.readStream.format("rocketmq").options(**{**self._options, **options}).load()
        writer = frame.select(*Row._fields).writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self.checkpoint))

    def _take(self, batch: DataFrame, number: int) -> None:
        rows = [Row(*row[:4], bytes(row[4])) for row in batch.collect()]
        if number == self.dies_in:
            raise RuntimeError("the sink is broken")
        assert self.batches.setdefault(number, rows) == rows, "a batch that comes again is what it was"

    def run(self, **options: Any) -> StreamingQuery:
        """Read all there is now."""
        query = self.writer(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    @property
    def rows(self) -> list[Row]:
        return sorted(row for rows in self.batches.values() for row in rows)

    def until(self, query: StreamingQuery, expected: list[Row]) -> None:
        """Wait for exactly these rows."""
        eventually(lambda: query.exception() is not None or len(self.rows) >= len(expected))
        assert query.exception() is None
        assert self.rows == sorted(expected)

    def offsets(self, batch: int) -> str:
        """What the checkpoint says where a batch ends."""
        return (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]


def group_offsets(one: Link, topic: FilledTopic, group: str) -> dict[int, int]:
    found = one.committed(group, one.queues([topic.topic]))
    return {queue.queue_id: offset or 0 for queue, offset in found.items()}


@pytest.mark.feature("spark/stream")
@pytest.mark.rocketmq_versions("5.5.0")  # a smaller set on 4.9.7: batches, and all below Spark
@pytest.mark.slow(12, "starts a stream of Spark several times")
def test_a_stream_is_exactly_what_was_produced_through_restarts(
    spark: SparkSession, filled: Filled, linked: Callable[..., Link], unique_group: str, tmp_path: Path
) -> None:
    topic, one = filled(queues=4), linked()
    for queue_id, count in ((0, 900), (1, 40), (3, 700)):
        topic.put(queue_id, count, tags=("a", "b"))
    reading = Reading(spark, topic, tmp_path, group=unique_group, startingOffsets="earliest", maxOffsetsPerTrigger=600)

    # In batches whose limit the queues share, until the third one dies in the middle.
    reading.dies_in = 2
    with pytest.raises(PySparkException, match="the sink is broken"):
        reading.run()
    assert [len(rows) for rows in reading.batches.values()] == [600, 600]
    assert json.loads(reading.offsets(0)) == {topic.topic: {"broker-a": {"0": 280, "1": 40, "2": 0, "3": 280}}}
    assert reading.offsets(0) == json.dumps(json.loads(reading.offsets(0)), sort_keys=True), "sorted, to be compared"
    finished = json.loads(reading.offsets(1))[topic.topic]["broker-a"]
    finished = {int(number): offset for number, offset in finished.items()}
    # The process that writes them is told to end, and ends in its own time.
    eventually(lambda: group_offsets(one, topic, unique_group) == finished)

    # More messages come; started again, the batch is read as it was planned, and then what is new.
    topic.put(2, 300)
    planned = json.loads(reading.offsets(2))
    reading.dies_in = None
    query = reading.run()
    assert json.loads(reading.offsets(2)) == planned
    assert [len(rows) for rows in reading.batches.values()] == [600, 600, 440, 300]
    assert reading.rows == sorted(topic.rows)
    assert group_offsets(one, topic, unique_group) == {0: 900, 1: 40, 2: 300, 3: 700}, "of the last batch too"
    progress = query.lastProgress
    assert progress is not None
    assert json.loads(progress["sources"][0]["latestOffset"])[topic.topic]["broker-a"]["0"] == 900

    # Running: new messages, and messages of a queue that was not there.
    query = reading.writer(maxOffsetsPerTrigger=100_000).start()
    topic.grow(6)
    topic.put(5, 200)
    topic.put(0, 100)
    reading.until(query, topic.rows)
    expected = {0: 1000, 1: 40, 2: 300, 3: 700, 4: 0, 5: 200}
    eventually(lambda: group_offsets(one, topic, unique_group) == expected)
    query.stop()


# --- on embedded brokers ----------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(segment_size=100_000, retention_bytes=600_000) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> Iterator[FilledTopic]:
    topic = FilledTopic(cluster.name_server_address, "orders", 2)
    yield topic
    topic.close()


@pytest.mark.slow(12, "starts a stream of Spark")
def test_a_stream_from_the_end_by_tags_through_a_broker_restart(
    spark: SparkSession, cluster: EmbeddedCluster, topic: FilledTopic, tmp_path: Path
) -> None:
    topic.put(0, 100, tags=("Aa",))
    reading = Reading(spark, topic, tmp_path, tags="Aa", group="readers")
    query = reading.writer().start()
    eventually(lambda: (reading.checkpoint / "commits" / "0").exists())
    assert reading.rows == [], "it begins at the end"
    topic.put(1, 300, tags=("Aa", "BB", "other"))  # "Aa" and "BB" have the same hash code
    wanted = [row for row in topic.rows[100:] if row.tags == "Aa"]
    reading.until(query, wanted)
    cluster.brokers[0].kill()
    cluster.brokers[0].start()
    topic.put(0, 300, tags=("other", "Aa"))
    reading.until(query, [row for row in topic.rows[100:] if row.tags == "Aa"])
    one = Link(LinkSettings((cluster.name_server_address,)))
    eventually(lambda: group_offsets(one, topic, "readers") == {0: 400, 1: 300})
    one.close()
    query.stop()


@pytest.mark.slow(12, "starts a stream of Spark")
def test_connections_are_kept_from_batch_to_batch(
    spark: SparkSession, cluster: EmbeddedCluster, topic: FilledTopic, tmp_path: Path
) -> None:
    with ClusterProxy(cluster.name_server_address) as proxy:
        topic.put(0, 50)
        reading = Reading(spark, topic, tmp_path, startingOffsets="earliest", nameServers=proxy.name_server_address)
        query = reading.writer().start()
        reading.until(query, topic.rows)
        line = proxy.broker(cluster.brokers[0].address)
        before = line.stats.connections_made
        for _ in range(4):
            topic.put(0, 50)
            reading.until(query, topic.rows)
        # One for the driver and one for each Python worker that Spark keeps, however many batches there are.
        assert line.stats.connections_made <= before + 1
        query.stop()


@pytest.mark.slow(12, "starts a stream of Spark")
def test_messages_that_retention_took_end_a_stream_or_are_passed_over(
    spark: SparkSession, cluster: EmbeddedCluster, topic: FilledTopic, tmp_path: Path
) -> None:
    topic.put(0, 10, size=200)
    reading = Reading(spark, topic, tmp_path, startingOffsets="earliest")
    reading.run()
    topic.put(0, 4_000, size=300)
    one = Link(LinkSettings((cluster.name_server_address,)))
    queue = topic.queue(0)
    eventually(lambda: one.min_offsets([queue])[queue] > 1_000)
    with pytest.raises(PySparkException) as caught:
        reading.run()
    told = re.search(r"messages are gone: offsets 10 to (\d+) of queue 0 of topic 'orders'", str(caught.value))
    assert told is not None
    assert 1_000 < int(told[1]) + 1 <= one.min_offsets([queue])[queue]
    reading.run(failOnDataLoss="false")
    left = [row for row in reading.rows if row.queue_offset >= 10]
    assert left == topic.rows[left[0].queue_offset :]
    assert int(told[1]) < left[0].queue_offset <= one.min_offsets([queue])[queue]
    one.close()


@pytest.mark.slow(12, "starts a stream of Spark")
def test_new_topics_of_a_pattern_appear_while_it_runs(
    spark: SparkSession, cluster: EmbeddedCluster, topic: FilledTopic, tmp_path: Path
) -> None:
    heard: list[tuple[str, int]] = []

    def take(batch: DataFrame, number: int) -> None:
        heard.extend((row.topic, row.queue_offset) for row in batch.collect())

    reader = (
        spark.readStream.format("rocketmq")
        .schema("topic string, queue_offset bigint")
        .options(nameServers=cluster.name_server_address, topicPattern="orders.*", startingOffsets="earliest")
    )
    query = reader.load().writeStream.foreachBatch(take).start()
    topic.put(0, 3)
    eventually(lambda: query.exception() is not None or len(heard) == 3)
    other = FilledTopic(cluster.name_server_address, "orders-2", 1)
    other.put(0, 2)
    eventually(lambda: query.exception() is not None or len(heard) == 5)
    assert sorted(heard) == [("orders", 0), ("orders", 1), ("orders", 2), ("orders-2", 0), ("orders-2", 1)]
    query.stop()
    other.close()


@pytest.mark.slow(12, "starts a stream of Spark")
def test_a_stream_that_cannot_be_says_why_at_once(
    spark: SparkSession, cluster: EmbeddedCluster, topic: FilledTopic, tmp_path: Path
) -> None:
    for options, why in (
        ({"topic": "nowhere"}, "topic 'nowhere' has no route at"),
        ({"endingOffsets": "latest"}, "are for batch reads: a stream has no end"),
        ({"startingOffset": "latest"}, "did you mean 'startingOffsets'?"),
    ):
        with pytest.raises(PySparkException) as caught:
            Reading(spark, topic, tmp_path).run(**options)
        assert why in str(caught.value)
