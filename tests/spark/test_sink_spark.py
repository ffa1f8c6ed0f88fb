"""`df.write` and `df.writeStream`: what arrives is the DataFrame, and what fails says which rows.

Rows are read back by the plain client, so that no mistake of the source hides one of the sink.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rocketstream import AdminClient
from rocketstream.broker import EmbeddedBroker
from rocketstream.message import ReceivedMessage
from rocketstream.producer.queue_choice import queue_for_key
from rocketstream.spark.row_ids import ROW_ID, parse_row_id
from rocketstream.testing import ClusterProxy
from rocketstream.wire.codes import ResponseCode
from tests.bare_client import eventually
from tests.contract.clusters import AnyCluster
from tests.spark.stock import messages_in, stored_in

BROKERS_OWN = {
    "UNIQ_KEY",
    "WAIT",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "CLUSTER",
    "MSG_REGION",
    "TRACE_ON",
    "REAL_TOPIC",
    "REAL_QID",
}


@pytest.fixture
def admin(rocketmq_cluster: AnyCluster) -> Iterator[AdminClient]:
    with AdminClient(rocketmq_cluster.name_server_address) as admin:
        yield admin


@pytest.fixture
def orders(admin: AdminClient, unique_topic: str) -> str:
    """A topic with four queues."""
    admin.create_topic(unique_topic, queues=4)
    return unique_topic


def write(rows: DataFrame, name_servers: str, **options: Any) -> None:
    rows.write.format("rocketmq").option("nameServers", name_servers).options(**options).mode("append").save()


def stream(rows: DataFrame, name_servers: str, checkpoint: Path, **options: Any) -> Any:
    mode = options.pop("mode", "append")
    writer = rows.writeStream.format("rocketmq").option("nameServers", name_servers).options(**options)
    writer = writer.option("checkpointLocation", str(checkpoint)).queryName(f"query-{checkpoint.parent.name}")
    return writer.outputMode(mode).trigger(availableNow=True).start()


def carried(message: ReceivedMessage) -> tuple[Any, ...]:
    """What a user gave a message."""
    own = {"TAGS", "KEYS", "DELAY", "__SHARDINGKEY", ROW_ID, "TIMER_OUT_MS", "TIMER_DELAY_LEVEL"} | BROKERS_OWN
    properties = sorted((name, value) for name, value in message.properties.items() if name not in own)
    return message.body, message.tags, message.keys, message.properties.get("__SHARDINGKEY"), properties


def arrived(admin: AdminClient, topic: str, rows: int) -> list[ReceivedMessage]:
    """What a topic has once so many rows are there: a queue learns of what is stored a moment after the answer."""
    eventually(lambda: stored_in(admin, topic) >= rows)
    eventually(lambda: len({message.properties[ROW_ID] for message in messages_in(admin, topic)}) >= rows, tries=500)
    return messages_in(admin, topic)


def copies_of(messages: list[ReceivedMessage]) -> dict[str, bytes]:
    """Bodies by row id; copies are the same."""
    bodies: dict[str, bytes] = {}
    for message in messages:
        assert bodies.setdefault(message.properties[ROW_ID], message.body) == message.body
    return bodies


@pytest.mark.feature("spark/write")
def test_what_arrives_is_the_dataframe(spark: SparkSession, rocketmq_cluster: AnyCluster, admin: AdminClient, orders):
    other = f"{orders}-other"
    admin.create_topic(other, queues=1)
    rows = spark.range(0, 3000, numPartitions=3).selectExpr(
        "CASE WHEN id % 100 = 7 THEN repeat('groß ', 1500) ELSE concat('körper ☃ ', id) END AS body",
        f"CASE WHEN id % 10 = 3 THEN '{other}' END AS topic",
        "CASE WHEN id % 3 > 0 THEN concat('tag-', id % 5) END AS tags",
        "CASE WHEN id % 4 > 0 THEN concat('key-', id, ' schlüssel') END AS keys",
        "CASE WHEN id % 2 > 0 THEN concat('user ', id % 17) END AS sharding_key",
        "CASE WHEN id % 500 = 1 THEN 1 WHEN id % 2 = 0 THEN 0 END AS delay_level",
        "CASE WHEN id % 6 > 0 THEN map('nummer', string(id), 'ü', '✓') END AS properties",
    )
    write(rows, rocketmq_cluster.name_server_address, topic=orders)
    eventually(lambda: stored_in(admin, orders) + stored_in(admin, other) == 3000)  # delayed ones come a second later
    expected = {orders: [], other: []}
    for row in rows.collect():
        expected[row.topic or orders].append(
            (row.body.encode(), row.tags, row.keys, row.sharding_key, sorted((row.properties or {}).items()))
        )
    for topic, wanted in expected.items():
        messages = messages_in(admin, topic)
        assert sorted(map(repr, map(carried, messages))) == sorted(map(repr, wanted))
        ids = [parse_row_id(message.properties[ROW_ID]) for message in messages]
        assert len(set(ids)) == len(ids)
        assert len({one.write_id for one in ids}) == 1
        assert {one.partition for one in ids} == {0, 1, 2}


def test_rows_with_one_key_are_in_one_queue_in_order(spark, rocketmq_cluster, admin, orders):
    rows = spark.range(0, 8000, numPartitions=2).selectExpr(
        "encode(string(id), 'utf-8') AS body", "concat('user-', id % 37) AS sharding_key"
    )
    write(rows, rocketmq_cluster.name_server_address, topic=orders, batchSize=100)
    messages = arrived(admin, orders, 8000)
    assert sorted(int(message.body) for message in messages) == list(range(8000))
    queues = [messages[0].queue._replace(queue_id=number) for number in range(4)]
    seen: dict[tuple[str, int], list[int]] = {}
    for message in messages:
        key = message.properties["__SHARDINGKEY"]
        assert message.queue == queue_for_key(queues, key)
        task = parse_row_id(message.properties[ROW_ID]).partition
        seen.setdefault((key, task), []).append(int(message.body))
    assert len(seen) == 2 * 37
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def files(spark: SparkSession, folder: Path, parts: int, rows: int) -> DataFrame:
    """A stream whose micro-batches are files of `rows` numbers each."""
    folder.mkdir()
    for part in range(parts):
        lines = "".join(f"{number}\n" for number in range(part * rows, (part + 1) * rows))
        (folder / f"{part:03}.txt").write_text(lines)
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder)).selectExpr("value AS body", "'t' AS tags")


@pytest.mark.feature("spark/write")
@pytest.mark.rocketmq_versions("5.5.0")
@pytest.mark.slow(12, "starts a stream of Spark several times")
def test_a_stream_that_fails_and_is_started_again_loses_nothing(spark, rocketmq_cluster, admin, orders, tmp_path):
    rows = files(spark, tmp_path / "in", 4, 1000)
    checkpoint = tmp_path / "checkpoint"
    sends = 0

    def third_batch(direction: str, command: Any) -> Any:
        nonlocal sends
        sends += direction == "up" and command.code == 320
        # Half of batch 2 (of four sends each) is stored; of the rest the broker never hears.
        return None if direction == "up" and command.code == 320 and sends > 10 else command

    with ClusterProxy(rocketmq_cluster.name_server_address, on_frame=third_batch) as proxy:
        query = stream(rows, proxy.name_server_address, checkpoint, topic=orders, batchSize=250, sendTimeout=1)
        with pytest.raises(Exception, match=r"rows that task .* were not acknowledged: rows"):
            query.awaitTermination(120)
        proxy.raise_hook_error()
    before = messages_in(admin, orders)
    assert 2000 < len(before) < 4000
    again = stream(rows, rocketmq_cluster.name_server_address, checkpoint, topic=orders, batchSize=250)
    again.awaitTermination(120)
    assert again.id == query.id
    messages = arrived(admin, orders, 4000)
    assert len(messages) > 4000, "what batch 2 had sent is sent again"
    bodies = copies_of(messages)
    assert sorted(map(int, bodies.values())) == list(range(4000))
    assert {one.write_id for one in map(parse_row_id, bodies)} == {query.id}
    assert {one.batch for one in map(parse_row_id, bodies)} == {0, 1, 2, 3}


@pytest.mark.rocketmq_real
@pytest.mark.rocketmq_versions("5.5.0")
@pytest.mark.long(45, "kills a broker in the middle of a write")
def test_an_outage_in_the_middle_of_a_write_is_ridden_out(spark, rocketmq_cluster, admin, orders):
    rows = spark.range(0, 20_000, numPartitions=2).selectExpr("string(id) AS body")
    over = threading.Event()

    def outage() -> None:
        (broker,) = proxy.brokers.values()
        broker.refuse()
        broker.cut()
        over.wait(1.5)  # for so long nobody can connect
        over.set()
        broker.refuse(False)

    sends = 0

    def count(direction: str, command: Any) -> Any:
        nonlocal sends
        if direction == "up" and command.code == 320:
            sends += 1
            if sends == 30:
                threading.Thread(target=outage).start()
            return None if sends >= 30 and not over.is_set() else command
        return command

    with ClusterProxy(rocketmq_cluster.name_server_address, on_frame=count) as proxy:
        write(rows, proxy.name_server_address, topic=orders, batchSize=100)
        proxy.raise_hook_error()
    assert sends > 200, "some were sent again"
    bodies = copies_of(arrived(admin, orders, 20_000))
    assert sorted(map(int, bodies.values())) == list(range(20_000))


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """One that creates no topics by itself, with topic `t`."""
    with EmbeddedBroker(auto_create_topics=False) as broker, AdminClient(broker.address) as admin:
        admin.create_topic("t", queues=2)
        yield broker


@pytest.mark.parametrize(
    ("columns", "options", "mode", "words"),
    [
        (["string(id) AS value"], {"topic": "t"}, "append", "the rocketmq sink has no column 'value'"),
        (["id AS body"], {"topic": "t"}, "append", "column body is bigint"),
        (["string(id) AS body"], {}, "append", "neither option topic nor a column topic"),
        (["string(id) AS body"], {"topic": "nowhere"}, "append", "topic 'nowhere' has no route at 127.0.0.1"),
        (["string(id) AS body"], {"topic": "t", "batchsize": "x"}, "append", "batchSize='x' must be a whole number"),
        (["string(id) AS body"], {"topic": "t", "tpic": "x"}, "append", "did you mean 'topic'?"),
        (["string(id) AS body"], {"topic": "t"}, "overwrite", 'mode("overwrite") cannot be had'),
        (["string(id) AS body"], {"topic": "t", "nameServers": "127.0.0.1:1"}, "append", "127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_refused_before_the_first_task(spark, broker, columns, options, mode, words):
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup(f"refused {words}", "no task may run")
    rows = spark.range(10).selectExpr(*columns)
    with pytest.raises(Exception, match="Failed to initialize Python data source writer") as refused:
        rows.write.format("rocketmq").options(**{"nameServers": broker.address, **options}).mode(mode).save()
    assert words in str(refused.value)
    assert tracker.getJobIdsForGroup(f"refused {words}") == []


def test_a_failing_task_says_which_rows_and_the_job_too(spark, broker):
    rows = spark.range(0, 100, numPartitions=1).selectExpr("CASE WHEN id <> 42 THEN string(id) END AS body")
    with pytest.raises(Exception, match=r"row 42 of the partition cannot be sent: body is null") as failed:
        write(rows, broker.address, topic="t")
    assert "BadRowError" in str(failed.value)
    broker.faults.answer("SEND_MESSAGE", ResponseCode.MESSAGE_ILLEGAL, "not today", times=1, after=1)
    rows = spark.range(0, 100, numPartitions=1).selectExpr("string(id) AS body")
    with pytest.raises(
        Exception, match=r"10 of the \d+ rows that task .*:0:0 sent were not acknowledged: rows \d+ to \d+"
    ):
        write(rows, broker.address, topic="t", batchSize=10, maxInFlight=1)


def test_writes_with_the_same_id_make_copies(spark, broker, tmp_path):
    rows = spark.range(0, 500, numPartitions=2).selectExpr("string(id % 100) AS body")
    for _ in range(2):
        write(rows, broker.address, topic="t", writeId="run-7")
    with AdminClient(broker.address) as admin:
        messages = messages_in(admin, "t")
        assert len(messages) == 1000
        bodies = copies_of(messages)
        assert len(bodies) == 500, "equal rows of a write are not copies"
        assert {parse_row_id(one).write_id for one in bodies} == {"run-7"}
        # The same in foreachBatch, where a batch may come again.
        source = files(spark, tmp_path / "in", 2, 50)

        def each(batch: DataFrame, number: int) -> None:
            for _ in range(2):
                write(batch, broker.address, topic="t", writeId=f"each-{number}")

        source.writeStream.foreachBatch(each).trigger(availableNow=True).start().awaitTermination(120)
        messages = messages_in(admin, "t")[0:]
        assert len(messages) == 1200
        assert len(copies_of(messages)) == 600


def test_complete_mode_sends_the_whole_result_with_every_batch(spark, broker, tmp_path):
    rows = files(spark, tmp_path / "in", 2, 10).groupBy("tags").count()
    result = rows.selectExpr("to_json(struct(*)) AS body", "tags AS keys")
    query = stream(result, broker.address, tmp_path / "checkpoint", topic="t", mode="complete")
    query.awaitTermination(120)
    with AdminClient(broker.address) as admin:
        found = sorted(messages_in(admin, "t"), key=lambda message: message.store_timestamp)
    assert sorted(json.loads(message.body)["count"] for message in found) == [10, 20]


def test_a_streams_rows_have_the_querys_ids_only(spark, broker, tmp_path):
    rows = files(spark, tmp_path / "in", 1, 5)
    query = stream(rows, broker.address, tmp_path / "checkpoint", topic="t", writeId="mine")
    with pytest.raises(Exception, match="option writeId is for batch writes"):
        query.awaitTermination(120)


@pytest.mark.rocketmq_real
@pytest.mark.rocketmq_versions("5.5.0")
@pytest.mark.slow(20, "runs several jobs of Spark")
def test_a_topic_can_be_copied_and_copies_of_rows_dropped(spark, rocketmq_cluster, admin, orders):
    address, copy = rocketmq_cluster.name_server_address, f"{orders}-copy"
    admin.create_topic(copy, queues=2)
    rows = spark.range(0, 600, numPartitions=2).selectExpr(
        "string(id) AS body",
        "concat('t', id % 3) AS tags",
        "concat('k', id) AS keys",
        "map('n', string(id)) AS properties",
    )
    for _ in range(2):
        write(rows, address, topic=orders, writeId="twice")
    arrived(admin, orders, 600)
    eventually(lambda: stored_in(admin, orders) == 1200)
    read = spark.read.format("rocketmq").option("nameServers", address)
    messages = read.option("topic", orders).load().selectExpr("*", "properties['SPARK_ROW_ID'] AS row_id")
    once = messages.dropDuplicates(["row_id"]).select("body", "tags", "keys", "properties")
    write(once, address, topic=copy, dropReservedProperties="true")
    copied = arrived(admin, copy, 600)
    expected = [(b"%d" % n, f"t{n % 3}", f"k{n}", None, [("n", str(n))]) for n in range(600)]
    assert sorted(map(repr, map(carried, copied))) == sorted(map(repr, expected))
