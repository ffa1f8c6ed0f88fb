"""On a real Spark cluster, and with queues on two brokers: exact rows, and nothing lost when executors and drivers die.

Issue 7, "must show" 7. The Spark cluster, both brokers and the driver are processes of their own (`conftest.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rocketstream import AdminClient, Message, Producer
from rocketstream.testing import RocketMQCluster, SparkStandalone
from tests.spark import jobs
from tests.spark.cluster import listening
from tests.spark.copies import copies_by_body
from tests.spark.driving import Drivers
from tests.spark.stock import Stored, committed, ends, messages_in, put_numbers

# Several JVMs begin here; on a busy machine that takes its time.
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("Spark clusters"),
    pytest.mark.long(20, "runs on a Spark cluster, and kills executors"),
]

PLACE = ["broker_name", "queue_id", "queue_offset", "body"]
WRITTEN = 20_000
CONSUMED = 8_000


def kill_one_of_both(drivers: Drivers, spark_cluster: SparkStandalone) -> None:
    """Kill an executor of the driver's, not one of a driver that has gone: those take a while to end."""
    drivers.current.wait_until(lambda: len(spark_cluster.executor_pids) == 2)
    spark_cluster.kill_executor()


# --- reading ----------------------------------------------------------------------------------------------------------


def rows_of(stored: list[Stored]) -> list[list[Any]]:
    return sorted([at.broker_name, at.queue_id, offset, body] for at, offset, body in stored)


@pytest.mark.feature("spark/cluster", on="5.5.0")
def test_a_batch_has_every_column_of_every_message_of_both_brokers(
    drivers: Drivers, two_masters: RocketMQCluster, producer: Producer, topic: str
):
    sent = []
    for number in range(2_000):
        message = Message(
            topic,
            f"{number} ".encode() + b"x" * (5_000 if number % 100 == 0 else number % 300),  # the long are compressed
            tags=None if number % 3 == 0 else f"tag-{number % 3}",
            keys=f"order-{number}",
            properties={"number": str(number), "source": "a b"},
        )
        sent.append((message, producer.send_async(message)))
    expected = []
    for message, future in sent:
        at = future.result(60)
        place = [topic, at.queue.broker_name, at.queue.queue_id, at.queue_offset]
        properties = {"number": message.properties["number"], "source": "a b"}
        content = [at.message_id, message.tags, message.keys, message.body.decode(), 0, properties]
        expected.append([*place, *content])
    columns = ["topic", "broker_name", "queue_id", "queue_offset", "message_id", "tags", "keys", "body"]

    rows = drivers.current.call(
        jobs.read_rows,
        options={"nameServers": two_masters.name_server_address, "topic": topic},
        columns=[*columns, "reconsume_times", "properties"],
    )

    for row in rows:
        row[-1] = {key: row[-1][key] for key in ("number", "source")}
    assert sorted(rows) == sorted(expected)
    assert {row[1] for row in rows} == {"broker-a", "broker-b"}


def test_queues_of_both_brokers_are_planned_together_and_read_by_both_executors(
    drivers: Drivers, two_masters: RocketMQCluster, producer: Producer, topic: str
):
    put_numbers(producer, topic, range(8_000))
    options = {"nameServers": two_masters.name_server_address, "topic": topic}

    tasks = drivers.current.call(jobs.tasks_of_a_read, options={**options, "minPartitions": "2"})

    assert len(tasks) == 2
    assert len({executor for task in tasks for executor in task["executors"]}) == 2
    read = [tuple(queue) for task in tasks for queue in task["queues"]]
    assert sorted(set(read)) == [(f"broker-{name}", queue) for name in "ab" for queue in range(4)]
    assert sum(task["rows"] for task in tasks) == 8_000
    assert {task["rows"] for task in tasks} == {4_000}


@pytest.mark.feature("spark/cluster", on="5.5.0")
def test_a_read_in_whose_middle_an_executor_dies_has_each_row_once(
    drivers: Drivers,
    spark_cluster: SparkStandalone,
    two_masters: RocketMQCluster,
    producer: Producer,
    topic: str,
    gate: Path,
):
    stored = put_numbers(producer, topic, range(40_000), size=200)
    options = {"nameServers": two_masters.name_server_address, "topic": topic, "minPartitions": "2"}

    reading = drivers.current.begin(jobs.read_rows, options=options, columns=PLACE, gate=str(gate))
    drivers.current.wait_until(lambda: len(list(gate.iterdir())) == 2)
    kill_one_of_both(drivers, spark_cluster)
    (gate / "open").touch()
    rows = reading()

    assert sorted(rows) == rows_of(stored)
    assert sorted(path.name for path in gate.glob("*-attempt-1"))  # it was in its middle, and was done again


@pytest.mark.feature("spark/cluster", on="5.5.0")
def test_a_stream_goes_on_from_its_checkpoint_in_a_new_driver_with_each_row_once(
    drivers: Drivers,
    two_masters: RocketMQCluster,
    admin: AdminClient,
    producer: Producer,
    topic: str,
    unique_group: str,
    gate: Path,
    tmp_path: Path,
):
    """The first driver is killed in the middle of its second batch."""
    options = {
        "nameServers": two_masters.name_server_address,
        "topic": topic,
        "group": unique_group,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "8000",
    }
    stream = {"options": options, "path": str(tmp_path / "rows"), "checkpoint": str(tmp_path / "checkpoint")}
    stored = put_numbers(producer, topic, range(20_000))

    drivers.current.begin(jobs.stream_to_files, **stream, gate=str(gate), held_batch=1)
    drivers.current.wait_until(lambda: list(gate.glob("task-*")))
    # The first batch is finished, the second one is not.
    drivers.current.wait_until(lambda: sum(committed(admin, unique_group, topic).values()) >= 8_000)
    drivers.kill()
    assert sum(committed(admin, unique_group, topic).values()) == 8_000
    stored += put_numbers(producer, topic, range(20_000, 24_000))

    batches = drivers.current.call(jobs.stream_to_files, **stream)

    rows = drivers.current.call(jobs.read_files, path=stream["path"], columns=PLACE)
    assert sorted(rows) == rows_of(stored)
    assert next(batch["batch"] for batch in batches if batch["rows"]) == 1
    assert sum(batch["rows"] for batch in batches) == 16_000
    assert committed(admin, unique_group, topic) == ends(stored)
    offsets = sorted((Path(stream["checkpoint"]) / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    last = json.loads(offsets[-1].read_text().splitlines()[-1])
    assert {broker: sorted(queues) for broker, queues in last[topic].items()} == {
        f"broker-{name}": ["0", "1", "2", "3"] for name in "ab"
    }


# --- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.feature("spark/cluster", on="5.5.0")
def test_a_write_in_whose_middle_an_executor_dies_loses_nothing(
    drivers: Drivers,
    spark_cluster: SparkStandalone,
    two_masters: RocketMQCluster,
    admin: AdminClient,
    topic: str,
    gate: Path,
):
    sink = {"nameServers": two_masters.name_server_address, "topic": topic}

    writing = drivers.current.begin(jobs.write_numbers, sink=sink, count=WRITTEN, gate=str(gate))

    def both_in_the_middle() -> bool:
        by_task = Counter(int(message.body) // (WRITTEN // 2) for message in messages_in(admin, topic))
        return len(list(gate.iterdir())) == 2 and min(by_task[0], by_task[1]) >= 1_000

    drivers.current.wait_until(both_in_the_middle)
    kill_one_of_both(drivers, spark_cluster)
    (gate / "open").touch()
    writing()

    messages = messages_in(admin, topic)
    assert {message.body for message in messages} == {b"%-200d" % number for number in range(WRITTEN)}
    copies = copies_by_body(messages)
    assert sum(len(found) - 1 for found in copies.values()) >= 1_000  # what the dead one had sent
    assert [body for body, found in copies.items() if len({copy.row_id for copy in found}) > 1] == []
    assert {message.broker_name for message in messages} == {"broker-a", "broker-b"}


# --- consuming --------------------------------------------------------------------------------------------------------


@pytest.mark.feature("spark/cluster", on="5.5.0")
def test_every_message_is_consumed_though_an_executor_dies(
    drivers: Drivers,
    spark_cluster: SparkStandalone,
    two_masters: RocketMQCluster,
    admin: AdminClient,
    producer: Producer,
    topic: str,
    unique_group: str,
    gate: Path,
    tmp_path: Path,
):
    notebook = tmp_path / "notebook"
    notebook.mkdir()
    stored = put_numbers(producer, topic, range(CONSUMED))
    drivers.current.call(
        listening.start_consumer,
        group=unique_group,
        name_servers=two_masters.name_server_address,
        topic=topic,
        gate=str(gate),
        notebook=str(notebook),
        checkpoint=str(tmp_path / "checkpoint"),
    )

    def both_in_the_middle() -> bool:
        by_process = Counter(one.pid for one in listening.handled(notebook))
        return len(list(gate.iterdir())) == 2 and len(by_process) == 2 and min(by_process.values()) >= 100

    drivers.current.wait_until(both_in_the_middle)

    kill_one_of_both(drivers, spark_cluster)
    done = committed(admin, unique_group, topic)
    numbers = {one.number for one in listening.handled(notebook)}
    ahead = [one for one in stored if one.offset < done.get(one.queue, 0) and int(one.body) not in numbers]
    assert [one for one in ahead if int(one.body) % listening.FAILS_ONCE != 1] == []
    (gate / "open").touch()

    drivers.current.wait_until(lambda: {one.number for one in listening.handled(notebook)} == set(range(CONSUMED)))
    drivers.current.wait_until(lambda: committed(admin, unique_group, topic) == ends(stored))
    drivers.current.wait_until(lambda: admin.consumer_progress(unique_group).lag == 0)  # that of its retry topic, too
    told = drivers.current.call(listening.consumer_tasks)
    assert (told["failure"], told["state"]) == (None, "RUNNING")
    assert told["ended"] > 2
    (member,) = admin.consumers(unique_group).members
    drivers.current.call(listening.stop_consumer)

    consumed = listening.handled(notebook)
    assert len(consumed) >= CONSUMED + 100  # what the dead one had consumed and told nobody
    again = {one.number for one in consumed if one.times_before}
    assert again >= {number for number in range(CONSUMED) if number % listening.FAILS_ONCE == 1}
    assert all(one.times_before == 1 for one in consumed if one.number in again)
    assert admin.consumers(unique_group).members == ()
    assert f"%DLQ%{unique_group}" not in {one.name for one in admin.topics()}
    assert member.client_id
