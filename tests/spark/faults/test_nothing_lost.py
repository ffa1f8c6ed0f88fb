"""Nothing is lost from topic to topic, whoever dies: drivers, Python workers, the broker (issue 7, "must show" 2).

The rule under test: every row arrives; what arrives twice has the same row id both times, and nothing else has that id;
and the group is never told that a row is done before the sink's topic has it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstream import AdminClient, Producer
from rocketstream.testing import RocketMQCluster
from rocketstream.testing.process_tree import kill
from tests.bare_client import eventually
from tests.spark import jobs
from tests.spark.copies import copies_by_body, ids_of_several
from tests.spark.driving import Drivers
from tests.spark.stock import Stored, committed, ends, messages_in, put_numbers, stored_in

# Several JVMs begin here, one after the other; on a busy machine that takes its time.
pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("Spark clusters"),
    pytest.mark.long(60, "kills drivers, Python workers and a broker"),
]

ROWS = 200_000
BATCH = 40_000
KILLS = 3


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    place = tmp_path / "gate"
    place.mkdir()
    return place


def check_copies(admin: AdminClient, sink_topic: str, stored: list[Stored]) -> int:
    """That every row is there, and copies have one id; how many copies there are."""
    wanted, messages = {one.body.encode() for one in stored}, messages_in(admin, sink_topic)

    def all_there() -> bool:
        """Brokers answer when a message is stored; its queue learns of it a moment later."""
        if not wanted <= {message.body for message in messages}:
            messages[:] = messages_in(admin, sink_topic)
        return wanted <= {message.body for message in messages}

    eventually(all_there, tries=100)
    copies = copies_by_body(messages)
    assert copies.keys() == wanted
    assert [body for body, found in copies.items() if len({copy.row_id for copy in found}) > 1] == []
    assert ids_of_several(messages) == []
    return len(messages) - len(stored)


def test_python_workers_are_killed_in_the_middle_of_a_batch(
    drivers: Drivers,
    mortal_broker: RocketMQCluster,
    admin: AdminClient,
    producer: Producer,
    topic: str,
    sink_topic: str,
    gate: Path,
):
    """Those that read, those that compute and those that write: all at once."""
    stored = put_numbers(producer, topic, range(24_000), size=200)
    options = {"nameServers": mortal_broker.name_server_address}

    copying = drivers.current.begin(
        jobs.copy_topic,
        source={**options, "topic": topic, "minPartitions": "2"},
        sink={**options, "topic": sink_topic},
        gate=str(gate),
    )
    drivers.current.wait_until(lambda: len(list(gate.iterdir())) == 2 and stored_in(admin, sink_topic) >= 2_000)
    assert len(kill(drivers.current.python_worker_pids)) >= 6
    (gate / "open").touch()
    copying()

    assert len(list(gate.glob("*-attempt-1"))) == 2
    assert check_copies(admin, sink_topic, stored) >= 2_000


def test_the_broker_dies_and_comes_back_in_the_middle_of_a_batch(
    drivers: Drivers,
    mortal_broker: RocketMQCluster,
    admin: AdminClient,
    producer: Producer,
    topic: str,
    sink_topic: str,
    gate: Path,
):
    """One task has all of it, much more than it reads ahead: both its reading and its writing meet the outage."""
    stored = put_numbers(producer, topic, range(24_000), size=4_000)
    options = {"nameServers": mortal_broker.name_server_address}
    (broker,) = mortal_broker.brokers

    copying = drivers.current.begin(
        jobs.copy_topic,
        source={**options, "topic": topic, "minPartitions": "1"},
        sink={**options, "topic": sink_topic},
        gate=str(gate),
    )
    drivers.current.wait_until(lambda: any(gate.iterdir()) and stored_in(admin, sink_topic) > 0)
    broker.kill()
    (gate / "open").touch()
    broker.start()
    copying()

    assert list(gate.glob("*-attempt-1")) == []  # it was ridden out: no task had to be tried again
    assert stored_in(admin, topic) == len(stored)
    check_copies(admin, sink_topic, stored)


def ahead(admin: AdminClient, group: str, stored: list[Stored], sink_topic: str) -> list[Stored]:
    """Rows that the group counts as done and that the sink's topic does not have."""
    done = committed(admin, group, stored[0].queue.topic)  # first: what is asked later may only be more
    there = {message.body for message in messages_in(admin, sink_topic)}
    return [one for one in stored if one.offset < done.get(one.queue, 0) and one.body.encode() not in there]


def test_every_row_arrives_though_the_driver_is_killed_three_times(
    drivers: Drivers,
    mortal_broker: RocketMQCluster,
    admin: AdminClient,
    producer: Producer,
    topic: str,
    sink_topic: str,
    unique_group: str,
    tmp_path: Path,
):
    """Each time in the middle of a batch: the first, the second, the third, each of which is then done again."""
    name_servers = mortal_broker.name_server_address
    source = {"nameServers": name_servers, "topic": topic, "group": unique_group, "startingOffsets": "earliest"}
    copying = {
        "source": {**source, "maxOffsetsPerTrigger": str(BATCH)},
        "sink": {"nameServers": name_servers, "topic": sink_topic},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    stored = put_numbers(producer, topic, range(ROWS), size=100)

    for batch in range(KILLS):
        gate = tmp_path / f"gate-{batch}"
        gate.mkdir()
        before = stored_in(admin, sink_topic) + (BATCH if batch else 0)  # a batch that was begun is done again
        drivers.current.begin(jobs.stream_to_topic, **copying, gate=str(gate), held_batch=batch)
        drivers.current.wait_until(
            lambda gate=gate, before=before: any(gate.iterdir()) and stored_in(admin, sink_topic) > before
        )
        drivers.kill()

        assert ahead(admin, unique_group, stored, sink_topic) == []
        assert sum(committed(admin, unique_group, topic).values()) in (BATCH * batch, BATCH * max(batch - 1, 0))
    drivers.current.call(jobs.stream_to_topic, **copying)

    again = check_copies(admin, sink_topic, stored)
    print(f"{again} of {ROWS} rows were written again")
    assert again >= KILLS
    assert committed(admin, unique_group, topic) == ends(stored)
