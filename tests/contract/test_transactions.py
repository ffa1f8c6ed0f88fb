"""Transactions on the real brokers: committed, rolled back, unknown and asked about."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rocketstream import Message, MessageQueue, ReceivedMessage, TransactionProducer, TransactionState
from rocketstream.cluster.names import with_namespace
from rocketstream.remoting.io_thread import IoThread
from rocketstream.testing.plugin import EMBEDDED
from tests.bare_client import BareClient, eventually
from tests.contract.clusters import TARGETS, AnyCluster, in_its_time, new_waiting_cluster, require_target
from tests.stored import stored

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN

# So that a broker asks within seconds: by default it waits 6 s and looks every 30 s (4.9: every 60 s).
IMPATIENT = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionCheckMax": "100"}


@pytest.fixture(scope="module", params=TARGETS)
def cluster(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    require_target(request, request.param)
    # A second of the embedded broker's time, which tests hurry, would be too soon after a client's answer.
    times = {"transactionTimeOut": "5000", "transactionCheckInterval": "5000"} if request.param == EMBEDDED else {}
    with new_waiting_cluster(request.param, broker_config={**IMPATIENT, **times}) as cluster:
        yield cluster


@pytest.fixture
def reader(cluster: AnyCluster) -> Iterator[BareClient]:
    client = BareClient(cluster.name_server_address, IoThread.shared())
    yield client
    client.close()


@pytest.fixture
def create_topic(cluster: AnyCluster, reader: BareClient) -> Callable[..., None]:
    return lambda topic, queues=1: reader.create_topic(cluster.brokers[0].address, topic, queues)


@pytest.fixture
def producer(cluster: AnyCluster, unique_group: str) -> Iterator[Callable[..., TransactionProducer]]:
    """Start producers; they are shut down at the end."""
    producers: list[TransactionProducer] = []

    def producer(group: str = unique_group, **settings: Any) -> TransactionProducer:
        made = TransactionProducer(group, cluster.name_server_address, **{"send_timeout": 10.0, **settings})
        made.start()
        producers.append(made)
        return made

    yield producer
    for one in producers:
        one.shutdown()


def never(message: ReceivedMessage) -> TransactionState:
    raise AssertionError(f"nobody should have asked about {message}")


def bodies(reader: BareClient, topic: str) -> list[bytes]:
    return sorted(message.body for message in stored(reader, topic))


@pytest.mark.feature("produce/transactions")
def test_a_committed_message_is_delivered_and_one_rolled_back_is_not(producer, create_topic, reader, unique_topic):
    create_topic(unique_topic, queues=2)
    calls: list[tuple[Message, Any, str]] = []

    def execute(message: Message, arg: Any) -> TransactionState:
        # Nobody can see it yet.
        assert bodies(reader, unique_topic) == []
        calls.append((message, arg, threading.current_thread().name))
        return arg

    sender = producer(execute=execute, check=never)
    rolled_back = sender.send(Message(unique_topic, b"no"), ROLLBACK)
    assert rolled_back.transaction_state is ROLLBACK
    message = Message(unique_topic, b"yes " * 2000, tags="paid", keys="42", properties={"größe": "中文"})
    receipt = sender.send(message, COMMIT)
    assert receipt.transaction_state is COMMIT
    eventually(lambda: stored(reader, unique_topic))
    (received,) = stored(reader, unique_topic)
    assert received.body == message.body
    assert (received.message_id, received.tags, received.keys) == (receipt.message_id, "paid", "42")
    assert received.properties["größe"] == "中文"
    assert received.queue == receipt.queue
    assert received.prepared_transaction_offset > 0
    assert [(shown.body, arg, thread) for shown, arg, thread in calls] == [
        (b"no", ROLLBACK, threading.current_thread().name),
        (message.body, COMMIT, threading.current_thread().name),
    ]
    assert calls[1][0].properties["__transactionId__"] == receipt.message_id == receipt.transaction_id
    assert message.properties == {"größe": "中文"}


@pytest.mark.feature("produce/transactions")
def test_the_broker_asks_about_an_unknown_transaction_until_it_is_decided(
    cluster, producer, create_topic, reader, unique_topic
):
    create_topic(unique_topic)
    asked: list[ReceivedMessage] = []
    threads: set[str] = set()

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        threads.add(threading.current_thread().name)
        of_this = [one for one in asked if one.message_id == message.message_id]
        if len(of_this) == 1:
            return UNKNOWN
        return COMMIT if message.keys == "good" else ROLLBACK

    sender = producer(execute=lambda message, arg: UNKNOWN, check=check)
    # Compressed, and so in the question, too.
    good = sender.send(Message(unique_topic, b"good " * 2000, keys="good"))
    bad = sender.send(Message(unique_topic, b"bad", keys="bad"))
    assert good.transaction_state is bad.transaction_state is UNKNOWN
    in_its_time(cluster, lambda: bodies(reader, unique_topic) == [b"good " * 2000], tries=1500)
    in_its_time(cluster, lambda: [one.keys for one in asked].count("bad") >= 2, tries=1500)
    question = next(one for one in asked if one.keys == "good")
    assert (question.topic, question.message_id, question.body) == (unique_topic, good.message_id, b"good " * 2000)
    assert question.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert all("check" in name for name in threads)
    # What is decided is asked about no more: by the time a later message was asked about twice, it would have been.
    counts = len(asked)
    sender.send(Message(unique_topic, b"later", keys="good"))
    in_its_time(cluster, lambda: len(stored(reader, unique_topic)) == 2, tries=1500)
    assert {one.body for one in asked[counts:]} == {b"later"}


def test_an_execute_that_raises_leaves_the_decision_to_check(
    cluster, producer, create_topic, reader, unique_topic, caplog
):
    create_topic(unique_topic)

    def execute(message: Message, arg: Any) -> TransactionState:
        raise RuntimeError("the database is away")

    sender = producer(execute=execute, check=lambda message: COMMIT)
    receipt = sender.send(Message(unique_topic, b"x"))
    assert receipt.transaction_state is UNKNOWN
    (record,) = [record for record in caplog.records if "raised" in record.message]
    assert receipt.message_id in record.message
    assert "the database is away" in str(record.exc_info[1])
    in_its_time(cluster, lambda: bodies(reader, unique_topic) == [b"x"], tries=1500)


@pytest.mark.feature("produce/transactions")
def test_another_producer_of_the_group_answers_for_one_that_is_gone(
    cluster, producer, create_topic, reader, unique_topic, unique_group
):
    create_topic(unique_topic)
    asked = threading.Event()

    def check(message: ReceivedMessage) -> TransactionState:
        asked.set()
        return COMMIT

    first = producer(execute=lambda message, arg: UNKNOWN, check=never)
    receipt = first.send(Message(unique_topic, b"x"))
    first.shutdown()
    second = producer(execute=lambda message, arg: UNKNOWN, check=check)
    # A broker knows who is there by heartbeat only: a first half message brings one.
    second.send(Message(unique_topic, b"y"))
    in_its_time(cluster, asked.is_set)
    in_its_time(cluster, lambda: bodies(reader, unique_topic) == [b"x", b"y"], tries=1500)
    assert receipt.message_id in {message.message_id for message in stored(reader, unique_topic)}


def test_producers_of_one_client_are_asked_about_their_own_group(
    cluster, producer, create_topic, reader, unique_topic, unique_group
):
    create_topic(unique_topic)
    asked: dict[str, set[bytes]] = {"a": set(), "b": set()}

    def check_of(name: str) -> Callable[[ReceivedMessage], TransactionState]:
        def check(message: ReceivedMessage) -> TransactionState:
            asked[name].add(message.body)
            return COMMIT

        return check

    senders = {
        name: producer(
            f"{unique_group}-{name}",
            instance_name=unique_group,
            execute=lambda message, arg: UNKNOWN,
            check=check_of(name),
        )
        for name in asked
    }
    assert senders["a"].client_id == senders["b"].client_id
    for name, sender in senders.items():
        sender.send(Message(unique_topic, name.encode()))
    in_its_time(cluster, lambda: bodies(reader, unique_topic) == [b"a", b"b"], tries=1500)
    assert asked == {"a": {b"a"}, "b": {b"b"}}


def test_transactions_in_a_namespace(cluster, producer, create_topic, reader, unique_topic):
    wrapped = with_namespace("shop", unique_topic)
    create_topic(wrapped)
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return COMMIT

    sender = producer(namespace="shop", execute=lambda message, arg: arg, check=check)
    assert sender.send(Message(unique_topic, b"at once"), COMMIT).queue.topic == unique_topic
    sender.send(Message(unique_topic, b"never"), ROLLBACK)
    sender.send(Message(unique_topic, b"when asked"), UNKNOWN)
    in_its_time(cluster, lambda: bodies(reader, wrapped) == [b"at once", b"when asked"], tries=1500)
    assert {message.topic for message in asked} == {unique_topic}
    assert {message.body for message in asked} == {b"when asked"}


@pytest.mark.long(20, "stops a broker and starts it again", real=True)
def test_a_restarted_broker_knows_the_producer_again_before_the_next_half_message(
    cluster, producer, create_topic, reader, unique_topic
):
    """Heartbeats come every 30 s, questions here after one: a broker that forgot us would wait for a heartbeat."""
    create_topic(unique_topic, queues=2)
    sender = producer(
        heartbeat_interval=3600.0, send_timeout=30.0, execute=lambda message, arg: arg, check=lambda message: COMMIT
    )
    sender.send(Message(unique_topic, b"before"), COMMIT)
    broker = cluster.brokers[0]
    broker.stop()
    broker.start()
    eventually(lambda: reader.run(reader.instance.routes.refresh(unique_topic)).write_queues)
    sender.send(Message(unique_topic, b"after"), UNKNOWN)
    in_its_time(cluster, lambda: bodies(reader, unique_topic) == [b"after", b"before"], tries=1500)


def test_a_transactional_message_to_a_chosen_queue(producer, create_topic, reader, unique_topic):
    create_topic(unique_topic, queues=4)
    sender = producer(execute=lambda message, arg: COMMIT, check=never)
    queue: MessageQueue = sender.queues(unique_topic)[3]
    assert sender.send(Message(unique_topic, b"x"), queue=queue).queue == queue
    keyed = sender.send(Message(unique_topic, b"y"), sharding_key="42").queue
    eventually(lambda: len(stored(reader, unique_topic)) == 2)
    assert {message.body: message.queue for message in stored(reader, unique_topic)} == {b"x": queue, b"y": keyed}
