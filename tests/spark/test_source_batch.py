"""Batch reads by Spark itself: few and rich tests, because each costs seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketstream.spark.link import Link
from rocketstream.spark.source import RocketMQDataSource
from rocketstream.testing import EmbeddedCluster
from rocketstream.wire.columns import COLUMNS
from tests.spark.filled import FilledTopic, Row

Filled = Callable[..., FilledTopic]


def load(spark: SparkSession, source: FilledTopic, schema: str | None = None, **options: Any) -> DataFrame:
    chosen = {"nameServers": source.name_servers, "topic": source.topic, **options}
    reader = spark.read.format("rocketmq").options(
        **{name: chosen[name] for name in chosen if chosen[name] is not None}
    )
    return (reader.schema(schema) if schema else reader).load()


def rows(frame: DataFrame) -> list[Row]:
    collected = frame.select(*Row._fields).collect()
    return sorted(Row(*row[:4], bytes(row[4])) for row in collected)


@pytest.mark.feature("spark/read")
@pytest.mark.slow(12, "runs several jobs of Spark")
def test_a_batch_is_exactly_what_was_produced(
    spark: SparkSession, filled: Filled, linked: Callable[..., Link], unique_group: str
) -> None:
    topic = filled(queues=4)
    for queue_id, count in ((0, 2_500), (1, 40), (3, 1_200)):  # queue 2 stays empty
        topic.put(queue_id, count, tags=("a", None, "b"), properties={"amount": "7"})
    whole = load(spark, topic)
    assert whole.columns == list(COLUMNS)
    assert rows(whole) == sorted(topic.rows)
    assert whole.rdd.getNumPartitions() == 2, "as many tasks as slots"
    first = whole.where("queue_id = 1 and queue_offset = 7").first()
    assert first is not None
    assert (first.topic, first.broker_name, first.reconsume_times) == (topic.topic, "broker-a", 0)
    assert (first.properties["amount"], first.properties["KEYS"], first.tags) == ("7", "k7", None)
    assert first.born_timestamp <= first.store_timestamp

    # By offset: what is not named begins at the first and ends at the last message.
    given = f'{{"{topic.topic}": {{"broker-a": {{"0": 2000, "3": 1190}}}}}}'
    part = load(
        spark, topic, startingOffsets=given, endingOffsets=given.replace("1190", "1200").replace("2000", "2100")
    )
    wanted = [row for row in topic.rows if 2000 <= row.queue_offset < 2100 or row.queue_id == 1]
    wanted += [row for row in topic.rows if row.queue_id == 3 and row.queue_offset >= 1190]
    assert rows(part) == sorted(wanted)

    # By group, into more tasks, with tags and a choice of columns.
    one = linked()
    queues = {queue.queue_id: queue for queue in one.queues([topic.topic])}
    one.commit(unique_group, {queues[0]: 2400, queues[3]: 1000})
    by_group = load(
        spark,
        topic,
        "body binary, tags string",
        group=unique_group,
        startingOffsets="committed",
        tags="a || b",
        minPartitions=5,
        pullBatchSize=50,
    )
    left = {0: 2400, 1: 0, 3: 1000}
    after = [row for row in topic.rows if row.queue_offset >= left[row.queue_id] and row.tags]
    assert by_group.columns == ["body", "tags"]
    assert sorted((bytes(row.body), row.tags) for row in by_group.collect()) == sorted((r.body, r.tags) for r in after)
    assert by_group.rdd.getNumPartitions() == 5
    assert one.committed(unique_group, [queues[0]]) == {queues[0]: 2400}, "a batch read writes no offsets"

    # By time, and by a pattern of topics.
    moments = whole.where("queue_id = 0").orderBy("queue_offset").select("store_timestamp").collect()
    middle = moments[1500][0]
    millis = round(middle.timestamp() * 1000)
    later = load(spark, topic, startingTimestamp=millis).where("queue_id = 0").count()
    earlier = load(spark, topic, endingTimestamp=millis).where("queue_id = 0").count()
    assert later == sum(moment[0] >= middle for moment in moments)
    assert later + earlier == 2_500
    pattern = spark.read.format("rocketmq").options(nameServers=topic.name_servers, topicPattern=f"{topic.topic}.*")
    assert pattern.load().count() == len(topic.rows)
    assert load(spark, topic, startingOffsets="latest").count() == 0


@pytest.fixture
def small() -> Iterator[FilledTopic]:
    """Ten messages on an embedded broker."""
    with EmbeddedCluster() as cluster:
        topic = FilledTopic(cluster.name_server_address, "small", 1)
        topic.put(0, 10)
        yield topic
        topic.close()


@pytest.mark.slow(12, "asks Spark for many sources")
def test_what_is_wrong_is_said_in_one_sentence_before_the_first_task(spark: SparkSession, small: FilledTopic) -> None:
    topic = small

    def refused(schema: str | None = None, **options: Any) -> str:
        with pytest.raises(PySparkException) as caught:
            load(spark, topic, schema, **options).collect()
        assert isinstance(caught.value, AnalysisException), "it is found while the query is planned"
        lines = [line for line in str(caught.value).splitlines() if line.startswith("rocketstream.")]
        return lines[-1].partition(": ")[2]

    assert "has no option 'startingoffset': did you mean 'startingOffsets'?" in refused(startingOffset="latest")
    assert "topic 'nowhere' has no route at" in refused(topic="nowhere")
    assert "127.0.0.1:1: cannot connect" in refused(nameServers="127.0.0.1:1")
    assert "column 'bodies', which a message does not have" in refused("bodies binary")
    assert "column body as string: it is binary" in refused("body string")
    assert "brokers do not take sql='a >'" in refused(sql="a >")
    given = f'{{"{topic.topic}": {{"broker-a": {{"%s": %d}}}}}}'
    assert "there is no such queue" in refused(startingOffsets=given % ("7", 0))
    assert "offsets 10 to 10 of queue 0" in refused(endingOffsets=given % ("0", 11))
    assert "no queue of 'none-.*' can be read" in refused(topic=None, topicPattern="none-.*")
    assert load(spark, topic, endingOffsets=given % ("0", 11), failOnDataLoss="false").count() == 10


def test_the_source_is_found_by_its_name_and_never_breaks_the_look_up(tmp_path: Path) -> None:
    import pyspark_rocketmq

    assert pyspark_rocketmq.DefaultSource is RocketMQDataSource
    assert RocketMQDataSource.name() == "rocketmq"
    # Where the extra is not installed, the module is there all the same.
    (tmp_path / "pyarrow.py").write_text("raise ImportError('no pyarrow here')")
    script = "import pyspark_rocketmq; assert not hasattr(pyspark_rocketmq, 'DefaultSource')"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "format('rocketmq') is not available" in done.stderr


def test_the_client_does_not_need_spark() -> None:
    script = (
        "import sys, rocketstream, rocketstream.spark\n"
        "assert not {'pyspark', 'numpy', 'pyarrow'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
