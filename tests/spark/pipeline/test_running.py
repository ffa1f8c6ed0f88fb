"""Pipelines on brokers: everything at once, stopped in the middle and resumed; and what goes wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketstream import AdminClient, Message, Producer
from rocketstream.spark.pipeline import PipelineFailedError, PipelineFileError, PipelineRun, load_pipeline
from rocketstream.spark.row_ids import ROW_ID, parse_row_id
from rocketstream.testing import EmbeddedCluster, RocketMQCluster
from tests.bare_client import eventually
from tests.spark.stock import committed, messages_in

Cluster = RocketMQCluster | EmbeddedCluster

ORDERS = 600
PATIENCE = 15_000  # looks, of 20 ms: the first batch of three queries takes its time on a busy machine
REGIONS = ("eu", "us", "xx")

FILE = """
name = "{topic}"
checkpoint = "state"

[rocketmq]
nameServers = "{servers}"

[[sources]]
name = "orders"
topics = ["{topic}"]
options = {{ startingOffsets = "earliest", group = "{group}", maxOffsetsPerTrigger = 150 }}
schema = "order_id STRING NOT NULL, region STRING, amount INT, created_at TIMESTAMP"
dead_letter = {{ path = "dead" }}
watermark = {{ column = "created_at", delay = "60 minutes" }}
dedupe = {{ columns = ["order_id"] }}

[[lookups]]
name = "regions"
path = "regions.csv"

[[steps]]
name = "known"
sql = "SELECT order_id, title, amount, created_at, queue_offset FROM orders JOIN regions USING (region)"

[[steps]]
name = "per_minute"
sql = '''
    SELECT window.start AS minute, region, count(*) AS orders, sum(amount) AS amount
    FROM orders
    GROUP BY window(created_at, '1 minute'), region
'''

[[sinks]]
name = "files"
from = "known"
type = "parquet"
path = "out"
partition_by = ["title"]

[[sinks]]
name = "minutes"
from = "per_minute"
type = "rocketmq"
output_mode = "update"
topic = "{back}"
keys = "region"
tags = "region"
"""


@pytest.fixture
def admin(rocketmq_cluster: Cluster) -> Iterator[AdminClient]:
    with AdminClient(rocketmq_cluster.name_server_address) as admin:
        yield admin


@pytest.fixture
def producer(rocketmq_cluster: Cluster, unique_group: str) -> Iterator[Producer]:
    with Producer(
        f"{unique_group}-producer", name_servers=rocketmq_cluster.name_server_address, send_timeout=10.0
    ) as producer:
        yield producer


def order(number: int) -> bytes:
    """An order a second; every 50th is poison."""
    if number % 50 == 7:
        return b"poison %d" % number
    created = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    told = {"order_id": f"o{number}", "region": REGIONS[number % 3], "amount": number, "created_at": created}
    return json.dumps(told).encode()


@pytest.mark.timeout(900)
@pytest.mark.rocketmq_versions("5.5.0")
@pytest.mark.slow(25, "runs a pipeline twice")
def test_a_pipeline_that_is_stopped_in_the_middle_and_resumed(
    spark: SparkSession,
    rocketmq_cluster: Cluster,
    admin: AdminClient,
    producer: Producer,
    unique_topic: str,
    unique_group: str,
    tmp_path: Path,
) -> None:
    back = f"{unique_topic}-back"
    admin.create_topic(unique_topic, queues=3)
    admin.create_topic(back, queues=2)
    queues = sorted(producer.queues(unique_topic))
    for number in range(ORDERS):
        producer.send(Message(unique_topic, order(number)), queue=queues[number % 3])
    for number in range(0, ORDERS, 10):  # some come twice
        producer.send(Message(unique_topic, order(number)), queue=queues[number % 3])
    poison = {number for number in range(ORDERS) if number % 50 == 7}
    twice = set(range(0, ORDERS, 10))
    (tmp_path / "regions.csv").write_text("region,title\neu,Europe\nus,America\n", "utf-8")
    file = tmp_path / "pipeline.toml"
    servers = rocketmq_cluster.name_server_address
    file.write_text(FILE.format(topic=unique_topic, group=unique_group, servers=servers, back=back), "utf-8")

    # The first run ends in the middle, between two batches.
    with PipelineRun(load_pipeline(file), spark) as first:
        eventually(lambda: not first.wait(0.0) and all(query.rows for query in first.progress().queries), PATIENCE)
        middle = first.progress()
        assert first.stop(timeout=120.0)
        assert {query.state for query in first.progress().queries} == {"ended"}
        stopped = first.progress()
    assert [query.name for query in stopped.queries] == ["files", "minutes", "orders.dead_letter"]
    assert middle.query("files").rows >= 150
    done = min(query.rows for query in stopped.queries)
    assert sum(committed(admin, unique_group, unique_topic).values()) == done

    # The second one goes on, does what is left, and ends by itself.
    file.write_text(f"trigger = {{ available_now = true }}\n{file.read_text('utf-8')}", "utf-8")
    second = PipelineRun(load_pipeline(file), spark)
    second.start()
    assert second.wait(280.0)
    ended = second.progress()
    for query in stopped.queries:
        assert query.rows + ended.query(query.name).rows == ORDERS + len(twice)
    assert not ended.lag  # unknown for a query that only did a planned batch again
    assert stopped.dead_letters + ended.dead_letters == len(poison) + len(poison & twice)
    assert sum(committed(admin, unique_group, unique_topic).values()) == ORDERS + len(twice)
    assert not any(table.isTemporary for table in spark.catalog.listTables())

    # Files: every good order of a known region exactly once.
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    expected = [f"o{n}" for n in range(ORDERS) if n not in poison and REGIONS[n % 3] != "xx"]
    assert Counter(row.order_id for row in rows) == Counter(expected)
    assert {row.title for row in rows} == {"Europe", "America"}
    assert {path.name for path in (tmp_path / "out").glob("title=*")} == {"title=Europe", "title=America"}

    # Dead letters: each as it was, with where it was.
    letters = spark.read.parquet(str(tmp_path / "dead")).collect()
    sent = Counter([order(n) for n in poison] + [order(n) for n in poison & twice])
    assert Counter(bytes(letter.body) for letter in letters) == sent
    assert {(letter.reason, letter.topic, letter.source) for letter in letters} == {
        ("the body is not JSON", unique_topic, "orders")
    }
    assert len({(letter.broker_name, letter.queue_id, letter.queue_offset) for letter in letters}) == len(letters)

    # The topic: the last word on each minute and region is right.
    last: dict[tuple[str, str], dict[str, int]] = {}
    ids: list[str] = []
    for message in sorted(messages_in(admin, back), key=lambda message: message.store_timestamp):
        told = json.loads(message.body)
        assert message.keys == message.tags == told["region"]
        ids.append(message.properties[ROW_ID])
        known = last.setdefault((told["minute"], told["region"]), told)
        last[told["minute"], told["region"]] = max(known, told, key=lambda one: one["orders"])
    assert len(set(ids)) == len(ids)
    assert len({parse_row_id(one).write_id.split(".")[0] for one in ids}) == 1  # one query, whoever runs it
    counted = Counter({key: told["orders"] for key, told in last.items()})
    assert counted == Counter(
        (f"2026-01-01T00:{n // 60:02}:00.000Z", REGIONS[n % 3]) for n in range(ORDERS) if n not in poison
    )
    assert sum(told["amount"] for told in last.values()) == sum(n for n in range(ORDERS) if n not in poison)


@pytest.fixture
def small(embedded_broker: object, tmp_path: Path, unique_topic: str) -> tuple[str, str]:
    """A topic of three messages on an embedded broker: its file's beginning and its broker's address."""
    servers = str(embedded_broker.name_server_address)  # type: ignore[attr-defined]
    with AdminClient(servers) as admin, Producer("small", name_servers=servers, send_timeout=10.0) as producer:
        for name in (unique_topic, f"{unique_topic}-out"):
            admin.create_topic(name, queues=1)
        for body in (b'{"a": 1}', b'{"a": "x"}', b"\x01"):
            producer.send(Message(unique_topic, body, tags="t", keys="k"))
    head = f"""
name = "{unique_topic}"
checkpoint = "state-{unique_topic}"
trigger = {{ available_now = true }}
rocketmq = {{ nameServers = "{servers}" }}
[[sources]]
name = "numbers"
topics = ["{unique_topic}"]
options = {{ startingOffsets = "earliest" }}
schema = "a INT"
"""
    return head, servers


@pytest.mark.slow(10, "runs a whole pipeline")
def test_dead_letters_on_a_topic(
    spark: SparkSession, small: tuple[str, str], unique_topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    head, servers = small
    text = f'{head}dead_letter = {{ topic = "{unique_topic}-out" }}\n'
    text += '[[sinks]]\nname = "json"\nfrom = "numbers"\ntype = "json"\npath = "out"\n'
    run = PipelineRun(load_pipeline(text), spark)
    # Any thread will do; the watcher, for one, starts queries again.
    with ThreadPoolExecutor(1) as other:
        other.submit(run.start).result()
    try:
        assert run.wait(200.0)
        assert run.progress().dead_letters == 2
    finally:
        run.stop()
    (row,) = spark.read.json(str(tmp_path / "out")).collect()
    assert (row.a, row.topic, row.tags) == (1, unique_topic, "t")
    with AdminClient(servers) as admin:
        first, second = sorted(messages_in(admin, f"{unique_topic}-out"), key=lambda message: message.body)
    assert (first.body, second.body) == (b"\x01", b'{"a": "x"}')
    told = {key: value for key, value in second.properties.items() if key.startswith("dead_letter_")}
    assert told.pop("dead_letter_message_id")
    assert told.pop("dead_letter_broker_name")
    assert told == {
        "dead_letter_reason": "column a is not INT: x",
        "dead_letter_source": "numbers",
        "dead_letter_topic": unique_topic,
        "dead_letter_queue_id": "0",
        "dead_letter_queue_offset": "1",
    }
    assert (second.tags, second.keys) == ("t", "k")


def test_what_only_spark_can_see_is_told_before_anything_starts(
    spark: SparkSession, small: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"""{small[0]}dead_letter = "drop"
message_columns = ["store_timestamp"]
[[steps]]
name = "grammar"
sql = '''
    SELECT a
    FROM numbers WHRE (a > 1
'''
[[steps]]
name = "column"
sql = '''SELECT a,
    b FROM numbers'''
[[steps]]
name = "uses_column"
sql = "SELECT * FROM `column`"
[[steps]]
name = "counts"
sql = "SELECT n.c FROM (SELECT a, count(*) AS c FROM numbers GROUP BY a) n"
[[steps]]
name = "nested"
sql = "SELECT struct(a) AS s FROM numbers"
[[sinks]]
name = "aggregate"
from = "counts"
type = "console"
[[sinks]]
name = "text"
from = "nested"
type = "csv"
path = "csv"
[[sinks]]
name = "parted"
from = "nested"
type = "parquet"
path = "parquet"
partition_by = "a"
[[sinks]]
name = "lake"
from = "numbers"
type = "delta"
path = "lake"
"""
    with pytest.raises(PipelineFileError) as raised:
        PipelineRun(load_pipeline(text), spark).start()
    lines = text.splitlines()
    told = {lines[mistake.line - 1].strip(): mistake.sentence for mistake in raised.value.mistakes}
    assert len(raised.value.mistakes) == 6
    assert told["FROM numbers WHRE (a > 1"].startswith("step 'grammar': Syntax error at or near")
    assert told["b FROM numbers'''"].startswith("step 'column': A column")
    assert told['partition_by = "a"'] == "sink 'parted': `partition_by`: 'nested' has no column 'a'"
    assert told['type = "csv"'] == "sink 'text': CSV can't hold column 's', which is struct<a:int>"
    assert told['type = "delta"'].startswith("sink 'lake': Spark has no Delta Lake here")
    aggregate = next(one for one in raised.value.mistakes if "aggregate" in one.sentence)
    assert "watermark" in aggregate.sentence
    assert spark.streams.active == []
    assert not any(table.isTemporary for table in spark.catalog.listTables())


@pytest.mark.slow(10, "runs a whole pipeline")
def test_a_query_that_fails_ends_the_run_with_one_sentence(
    spark: SparkSession, small: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spark.sql("SELECT 1 AS mine").createOrReplaceTempView("numbers")
    text = f"""{small[0].replace("{ available_now = true }", '{ processing_time = "1 second" }')}
dead_letter = "drop"
[[steps]]
name = "divided"
sql = "SELECT 1 / (a - 1) AS x FROM numbers"
[[sinks]]
name = "broken"
from = "divided"
type = "parquet"
path = "out"
[[sinks]]
name = "fine"
from = "numbers"
type = "json"
path = "fine"
"""
    run = PipelineRun(load_pipeline(text), spark)
    run.start()
    with pytest.raises(PipelineFailedError, match=r"^sink 'broken': Division by zero\.") as raised:
        run.wait(200.0)
    assert "at org.apache.spark" in raised.value.details
    states = {query.name: query.state for query in run.progress().queries}
    assert states == {"broken": "failed", "fine": "ended"}
    run.stop()
    assert spark.streams.active == []
    # A view of the user's that had the same name is the user's again.
    assert spark.table("numbers").columns == ["mine"]
    spark.catalog.dropTempView("numbers")


def test_a_topic_that_does_not_exist(
    spark: SparkSession, small: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = small[0].replace("topics = [", 'topics = ["nowhere", ') + 'dead_letter = "drop"\n'
    text += '[[sinks]]\nname = "out"\nfrom = "numbers"\ntype = "console"\n'
    run = PipelineRun(load_pipeline(text), spark)
    run.start()
    with pytest.raises(PipelineFailedError) as raised:
        run.wait(200.0)
    assert "nowhere" in str(raised.value)
    assert "\n" not in str(raised.value)
    run.stop()
