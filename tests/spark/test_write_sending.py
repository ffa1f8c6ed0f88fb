"""Sending what a task has: acknowledged to the last row, tried again when it may help, or an error that says which."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rocketstream import AdminClient
from rocketstream.broker import EmbeddedBroker
from rocketstream.errors import (
    AccessDeniedError,
    BrokerError,
    ConfigurationError,
    ConnectError,
    NameServerError,
    RequestTimeoutError,
    SendFailedError,
    TopicRouteNotFoundError,
)
from rocketstream.producer.async_gate import AsyncGate
from rocketstream.producer.queue_choice import queue_for_key
from rocketstream.remoting.acl import Credentials
from rocketstream.spark.row_ids import ROW_ID, TaskId
from rocketstream.spark.sink import Written, send_rows
from rocketstream.spark.write_columns import BadRowError
from rocketstream.spark.write_options import WriteOptions
from rocketstream.spark.write_producers import close_producers, running_producer
from rocketstream.spark.write_sending import Outlook, RowsNotAcknowledgedError, outlook, row_ranges
from rocketstream.testing import EmbeddedCluster
from rocketstream.wire.codes import ResponseCode
from tests.bare_client import eventually
from tests.spark.stock import messages_in

TASK = TaskId("query", 3, 0)


@pytest.fixture
def admin(embedded_broker: EmbeddedBroker) -> Iterator[AdminClient]:
    with AdminClient(embedded_broker.address) as admin:
        admin.create_topic("t", queues=4)
        yield admin
    close_producers()


@pytest.fixture
def send(embedded_broker: EmbeddedBroker, admin: AdminClient) -> Callable[..., Written]:
    """Send rows as a task does."""

    def send(*batches: dict[str, list[Any]], task: TaskId = TASK, **options: str) -> Written:
        given = {"nameServers": embedded_broker.address, "topic": "t", **options}
        parsed = WriteOptions.parse({name.lower(): value for name, value in given.items()})
        return send_rows(parsed, task, (pa.record_batch(batch) for batch in batches))

    return send


def bodies(count: int, start: int = 0) -> dict[str, list[Any]]:
    return {"body": [f"{number}" for number in range(start, start + count)]}


def found_in(admin: AdminClient, topic: str = "t") -> list[str]:
    return sorted((message.body.decode() for message in messages_in(admin, topic)), key=int)


def ids_in(admin: AdminClient, topic: str = "t") -> set[str]:
    return {message.properties[ROW_ID] for message in messages_in(admin, topic)}


def test_all_rows_arrive(send, admin):
    written = send(bodies(2500), bodies(0), bodies(10, 2500), batchSize="100", maxInFlight="4")
    assert written == Written("query:3:0", 2510, 26, 0)
    assert found_in(admin) == [str(number) for number in range(2510)]
    assert len(ids_in(admin)) == 2510


def test_a_task_without_rows_needs_no_broker():
    options = WriteOptions.parse({"nameservers": "127.0.0.1:1", "topic": "t"})
    assert send_rows(options, TASK, [pa.record_batch({"body": pa.array([], pa.string())})]).rows == 0


@pytest.mark.parametrize(
    ("limits", "requests"),
    [({"maxInFlight": "3"}, 3), ({"maxInFlightBytes": "2600"}, 2), ({"maxInFlightBytes": "1"}, 1)],
)
def test_no_more_is_under_way_than_allowed_and_the_task_waits_for_all_of_it(
    send, admin, embedded_broker, monkeypatch, limits, requests
):
    full: SimpleQueue[tuple[int, int]] = SimpleQueue()
    wait_for_room = AsyncGate._wait_for_room

    def spy(gate: AsyncGate, size: int, timeout: float) -> None:
        full.put(gate.under_way)
        wait_for_room(gate, size, timeout)

    monkeypatch.setattr(AsyncGate, "_wait_for_room", spy)
    with embedded_broker.faults.hold("SEND_MESSAGE") as held, ThreadPoolExecutor(1) as pool:
        task = pool.submit(send, {"body": ["x" * 1000] * 20}, batchSize="1", compression="none", **limits)
        assert full.get(timeout=30)[0] == requests
        held.wait_for(requests)
        assert held.caught == requests
        held.end()
        assert task.result(30).rows == 20
    assert len(messages_in(admin, "t")) == 20


def test_what_passes_is_tried_again_and_copies_have_the_same_ids(send, admin, embedded_broker):
    embedded_broker.faults.answer("SEND_MESSAGE", ResponseCode.SYSTEM_BUSY, times=7)
    embedded_broker.faults.cut("SEND_MESSAGE", carried_out=True, times=4, after=5)
    written = send(bodies(600), batchSize="20", maxInFlight="5")
    assert written.rows == 600
    messages = messages_in(admin, "t")
    assert len(messages) > 600, "what was stored when the line was cut is there twice"
    bodies_of = {}
    for message in messages:
        assert bodies_of.setdefault(message.properties[ROW_ID], message.body) == message.body
    assert sorted(bodies_of.values(), key=int) == [b"%d" % number for number in range(600)]


def test_a_task_that_is_tried_again_gives_copies_with_the_same_ids(send, admin):
    send(bodies(300), task=TASK)
    ids = ids_in(admin)
    send({"body": [f"{number}" for number in reversed(range(300))]}, task=TASK)
    assert len(messages_in(admin, "t")) == 600
    assert ids_in(admin) == ids
    send(bodies(300), task=TASK._replace(batch=4))
    assert len(ids_in(admin)) == 600


def test_a_broker_that_stays_away_ends_in_one_error_that_names_the_rows(send, admin, embedded_broker):
    embedded_broker.faults.answer("SEND_MESSAGE", ResponseCode.SYSTEM_BUSY, "too busy", times=None, after=2)
    with pytest.raises(RowsNotAcknowledgedError) as failed:
        send(bodies(100), batchSize="10", maxInFlight="1", sendTimeout="0.2")
    text = str(failed.value)
    assert text.startswith("10 of the 30 rows that task query:3:0 sent were not acknowledged: rows 20 to 29 (row ids ")
    assert "query:3:0:" in text
    assert "too busy" in text
    assert text.endswith("20 rows were acknowledged")
    assert "\n" not in text
    assert found_in(admin) == [str(number) for number in range(20)]


def test_a_refusal_ends_the_task_at_once(send, admin, embedded_broker):
    embedded_broker.faults.answer("SEND_MESSAGE", ResponseCode.MESSAGE_ILLEGAL, "too large", times=1, after=1)
    with pytest.raises(RowsNotAcknowledgedError, match=r"rows 5 to 9 .*MESSAGE_ILLEGAL.*too large"):
        send(bodies(20), batchSize="5", maxInFlight="1", sendTimeout="3000")


def test_a_broker_that_takes_less_than_we_do_is_quoted(send, admin, embedded_broker):
    with pytest.raises(
        RowsNotAcknowledgedError, match=r"^1 of the 1 rows .*: row 0 \(row ids query:3:0:\w+:0\), because"
    ):
        send({"body": ["x" * 5_000_000]}, maxMessageSize="6000000", compression="none")


def test_a_topic_that_nobody_knows_is_named(embedded_broker, admin):
    with EmbeddedBroker(auto_create_topics=False) as strict, AdminClient(strict.address) as strict_admin:
        strict_admin.create_topic("t", queues=1)
        options = WriteOptions.parse({"nameservers": strict.address, "topic": "t", "sendtimeout": "0.3"})
        rows = pa.record_batch({"body": ["a", "b"], "topic": ["t", "nowhere"]})
        with pytest.raises(RowsNotAcknowledgedError, match=r"row 1 .*topic 'nowhere' has no route"):
            send_rows(options, TASK, [rows])
        keyed = rows.append_column("sharding_key", pa.array(["k", "k"]))
        with pytest.raises(TopicRouteNotFoundError, match="nowhere"):
            send_rows(options, TASK, [keyed])


def test_rows_with_one_key_stay_in_order_though_a_send_is_repeated(send, admin, embedded_broker):
    count, keys = 2000, [f"key {number % 13}" for number in range(2000)]
    embedded_broker.faults.answer("SEND_MESSAGE", ResponseCode.SYSTEM_BUSY, times=8, after=3)
    embedded_broker.faults.cut("SEND_MESSAGE", times=2, after=10)
    written = send({**bodies(count), "sharding_key": keys}, batchSize="25", maxInFlight="20")
    assert written.sent_again >= 10
    numbers: dict[str, list[int]] = {}
    copies: set[str] = set()
    messages = messages_in(admin, "t")
    queues = [messages[0].queue._replace(queue_id=number) for number in range(4)]
    for message in messages:
        key = message.properties["__SHARDINGKEY"]
        assert message.queue == queue_for_key(queues, key)
        if message.properties[ROW_ID] not in copies:
            copies.add(message.properties[ROW_ID])
            numbers.setdefault(key, []).append(int(message.body))
    assert sorted(number for found in numbers.values() for number in found) == list(range(count))
    assert all(found == sorted(found) for found in numbers.values())


def test_what_comes_behind_a_failed_batch_of_a_queue_is_not_sent(embedded_broker, admin):
    options = WriteOptions.parse({"nameservers": embedded_broker.address, "topic": "t", "batchsize": "10"})
    first = embedded_broker.faults.hold("SEND_MESSAGE", times=1)
    embedded_broker.faults.answer("SEND_MESSAGE", ResponseCode.NO_PERMISSION, times=1)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 40, 10):
            yield pa.record_batch({**bodies(10, start), "sharding_key": ["one key"] * 10})
        first.wait_for(1)
        first.release()  # the first is on its way, and three wait behind it

    with pytest.raises(RowsNotAcknowledgedError, match=r"30 of the 40 .*rows 10 to 39 .*NO_PERMISSION.*; 10 rows were"):
        send_rows(options, TASK, batches())
    assert found_in(admin) == [str(number) for number in range(10)]


def test_delayed_and_large_rows_of_a_key_leave_behind_what_is_before_them(send, admin):
    large = "9" * 5000
    rows = {
        "body": [str(number) for number in range(20)] + [large] + [str(number) for number in range(20, 30)],
        "sharding_key": ["k"] * 31,
        "delay_level": pa.array([None] * 31, pa.int32()),
    }
    send(rows, batchSize="8")
    assert [message.body.decode() for message in messages_in(admin, "t")] == rows["body"]


def bad_row() -> pa.RecordBatch:
    return pa.record_batch({"body": ["a", None]})


def trouble() -> pa.RecordBatch:
    raise RuntimeError("Spark's own trouble")


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        (bad_row, BadRowError, r"row 101 .*body is null.*\(task query:3:0, of which 100 rows are sent\)"),
        (trouble, RuntimeError, "Spark's own trouble"),
    ],
)
def test_a_task_that_fails_in_the_middle_ends_when_nothing_is_under_way(
    embedded_broker, admin, more, error, words, monkeypatch
):
    waits = threading.Event()
    wait_empty = AsyncGate.wait_empty
    monkeypatch.setattr(AsyncGate, "wait_empty", lambda gate, timeout: waits.set() or wait_empty(gate, timeout))
    options = WriteOptions.parse({"nameservers": embedded_broker.address, "topic": "t", "batchsize": "50"})
    with embedded_broker.faults.hold("SEND_MESSAGE") as held, ThreadPoolExecutor(1) as pool:

        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch(bodies(100))
            held.wait_for(2)
            yield more()

        task = pool.submit(send_rows, options, TASK, batches())
        assert waits.wait(30), "two requests are under way: the task waits for them"
        held.end()
        with pytest.raises(error, match=words):
            task.result(30)
    assert len(found_in(admin)) == 100


def test_producers_are_kept_between_tasks(send, embedded_broker):
    send(bodies(1))
    options = WriteOptions.parse({"nameservers": embedded_broker.address, "topic": "other", "batchsize": "3"})
    core = running_producer(options)
    assert running_producer(options) is core
    send(bodies(1))
    assert len([member for member in core.instance.producers if member.group == "rocketstream-spark-sink"]) == 1
    close_producers()
    assert not core.is_running
    assert running_producer(options) is not core


def test_a_name_server_that_is_away_is_waited_for_as_long_as_said():
    options = WriteOptions.parse({"nameservers": "127.0.0.1:1", "topic": "t", "sendtimeout": "0.1"})
    with pytest.raises(NameServerError, match=r"127\.0\.0\.1:1"):
        send_rows(options, TASK, [pa.record_batch(bodies(1))])


BUSY = BrokerError("b:1", ResponseCode.SYSTEM_BUSY, "busy")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BUSY, Outlook.PASSES),
        (SendFailedError("t", [("b:1", BUSY), ("b:1", ConnectError("b:1", "refused"))], 1.0), Outlook.PASSES),
        (SendFailedError("t", [("b:1", BrokerError("b:1", ResponseCode.NO_PERMISSION, ""))], 1.0), Outlook.FINAL),
        (SendFailedError("t", [], 1.0), Outlook.PASSES),
        (RequestTimeoutError("b:1", "late"), Outlook.PASSES),
        (NameServerError("nobody"), Outlook.PASSES),
        (TopicRouteNotFoundError("t", "n:1"), Outlook.UNKNOWN_TOPIC),
        (BrokerError("b:1", ResponseCode.TOPIC_NOT_EXIST, ""), Outlook.UNKNOWN_TOPIC),
        (BrokerError("b:1", ResponseCode.SYSTEM_ERROR, "oh"), Outlook.PASSES),
        (AccessDeniedError("b:1", ResponseCode.SYSTEM_ERROR, "Check signature failed"), Outlook.FINAL),
        (BrokerError("b:1", ResponseCode.MESSAGE_ILLEGAL, ""), Outlook.FINAL),
        (ConfigurationError("wrong"), Outlook.FINAL),
        (ValueError("a bug"), Outlook.FINAL),
    ],
)
def test_what_is_worth_another_try(error, expected):
    assert outlook(error) is expected


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([3], "row 3"),
        ([3, 4, 5], "rows 3 to 5"),
        ([1, 3, 4, 9], "rows 1, 3 to 4, 9"),
        (range(0, 10, 2), "rows 0, 2, 4, 6, 8"),
        (range(0, 14, 2), "rows 0, 2, 4, 6, 8 and 2 more ranges"),
    ],
)
def test_rows_as_a_person_reads_them(rows, text):
    assert row_ranges(np.array(rows)) == text


def given_options(address: str, **options: str) -> WriteOptions:
    return WriteOptions.parse(
        {"nameservers": address, "topic": "t", **{name.lower(): options[name] for name in options}}
    )


@pytest.fixture
def two_brokers() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        with AdminClient(cluster.name_server_address) as admin:
            admin.create_topic("t", queues=2)
        yield cluster
    close_producers()


def test_rows_without_a_key_go_to_the_brokers_that_are_there(two_brokers):
    options = given_options(two_brokers.name_server_address, batchSize="10", maxInFlight="4")

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch(bodies(200))
        two_brokers.brokers[0].kill()
        yield pa.record_batch(bodies(200, 200))

    assert send_rows(options, TASK, batches()).rows == 400
    two_brokers.brokers[0].start()
    with AdminClient(two_brokers.name_server_address) as admin:
        eventually(lambda: len({message.body for message in messages_in(admin, "t")}) == 400)
        messages = messages_in(admin, "t")
        assert len({message.broker_name for message in messages}) == 2


def test_rows_with_a_key_wait_for_their_broker(two_brokers):
    options = given_options(two_brokers.name_server_address, batchSize="10")
    rows = [pa.record_batch({**bodies(100, at), "sharding_key": [f"k{n % 7}" for n in range(100)]}) for at in (0, 100)]

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows[0]
        two_brokers.brokers[1].kill()
        yield rows[1]
        two_brokers.brokers[1].start()

    assert send_rows(options, TASK, batches()).rows == 200
    with AdminClient(two_brokers.name_server_address) as admin:
        eventually(lambda: len({message.body for message in messages_in(admin, "t")}) == 200)
        seen: dict[str, list[int]] = {}
        queues: dict[str, set[object]] = {}
        for message in messages_in(admin, "t"):
            key = message.properties["__SHARDINGKEY"]
            queues.setdefault(key, set()).add(message.queue)
            if int(message.body) not in seen.setdefault(key, []):
                seen[key].append(int(message.body))
    assert all(len(found) == 1 for found in queues.values())
    assert len(set.union(*queues.values())) > 2, "on both brokers"
    assert all(found == sorted(found) for found in seen.values())


def test_who_is_not_let_in_is_told_at_once():
    secret = Credentials("key", "a long secret")
    with EmbeddedBroker(credentials=[secret]) as broker, AdminClient(broker.address, credentials=secret) as admin:
        admin.create_topic("t", queues=1)
        right = given_options(broker.address, accessKey="key", secretKey="a long secret")
        assert send_rows(right, TASK, [pa.record_batch(bodies(5))]).rows == 5
        wrong = given_options(broker.address, accessKey="key", secretKey="guessed")
        with pytest.raises(RowsNotAcknowledgedError, match="check signature failed") as failed:
            send_rows(wrong, TASK, [pa.record_batch(bodies(5))])
        assert "guessed" not in str(failed.value)
    close_producers()


def test_a_namespace_is_around_topics(embedded_broker, admin):
    admin.create_topic("ns%t", queues=1)
    send_rows(given_options(embedded_broker.address, namespace="ns"), TASK, [pa.record_batch(bodies(5))])
    keyed = pa.record_batch({**bodies(5, 5), "sharding_key": ["k"] * 5, "delay_level": pa.array([0, 1, 0, 0, 0])})
    send_rows(given_options(embedded_broker.address, namespace="ns"), TASK, [keyed])
    eventually(lambda: found_in(admin, "ns%t") == [str(number) for number in range(10)])
    assert found_in(admin) == []
