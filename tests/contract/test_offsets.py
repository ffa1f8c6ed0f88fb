"""Offsets, start places and messages that go back, on the real brokers."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest

from rocketstream.cluster.names import dlq_topic, retry_topic
from rocketstream.consumer.broker_offsets import BrokerOffsets, QueueOffsets
from rocketstream.consumer.offset_store import ReadFrom
from rocketstream.consumer.send_back import RetryCopy, SendBack
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.consumer.start_from import StartFrom
from rocketstream.consumer.start_offset import start_offset
from rocketstream.consumer.topic_names import TopicNames
from rocketstream.errors import OffsetStoreError, OffsetUnknownError, SendFailedError, TopicRouteNotFoundError
from rocketstream.message import MessageHeader, MessageQueue, ReceivedMessage
from rocketstream.remoting.io_thread import IoThread
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.headers.send import SendMessageRequestHeaderV2
from rocketstream.wire.properties import encode_properties
from tests.bare_client import BareClient, BareConsumer, eventually
from tests.contract.clusters import TARGETS, new_cluster, require_target


def join(client: BareClient, group: str, *topics: str) -> None:
    """Make a group known to the broker, as a consumer's start does."""
    client.instance.register_consumer(BareConsumer(group, *topics))
    client.run(client.instance.refresh_routes())
    assert client.run(client.instance.heartbeat()) == 1


@pytest.fixture
def group(client, topic, unique_group) -> str:
    """A group of that topic that the broker has seen."""
    client.master(topic)
    join(client, unique_group, topic)
    return unique_group


@pytest.fixture
def store(client, group) -> BrokerOffsets:
    return BrokerOffsets(client.instance, group)


def stored(client: BareClient, group: str, queue: MessageQueue) -> int:
    """What the broker says to somebody who remembers nothing."""
    return client.run(BrokerOffsets(client.instance, group).read(queue, ReadFrom.STORE))


# --- the broker's store -------------------------------------------------------------------------------------------


@pytest.mark.behaviour("OFF-01")
def test_a_group_that_never_consumed_has_no_offset(client, store, topic, rocketmq_cluster):
    queue = client.queue(topic)
    # 4.9.7 says 0 for any queue whose first message is not yet on the disk only; 5.x needs a first message for that.
    empty = 0 if rocketmq_cluster.version == "4.9.7" else -1
    assert client.run(store.read(queue, ReadFrom.STORE)) == empty
    assert client.run(store.read(queue, ReadFrom.MEMORY)) == empty
    client.send(topic, b"x")
    assert client.run(store.read(queue, ReadFrom.STORE)) == 0


@pytest.mark.behaviour("OFF-02", "OFF-03")
def test_an_offset_is_updated_persisted_and_read_back(client, store, group, topic):
    queue = client.queue(topic)
    for _ in range(9):
        client.send(topic, b"x")
    store.update(queue, 7, increase_only=True)
    store.update(queue, 5, increase_only=True)
    client.run(store.persist(queue))
    assert stored(client, group, queue) == 7
    store.update(queue, 8, increase_only=True)
    client.run(store.persist_all([queue]))
    eventually(lambda: stored(client, group, queue) == 8)
    store.reset(queue, 2)
    client.run(store.persist(queue))
    assert stored(client, group, queue) == 2
    client.run(store.persist_all([]))
    assert store.snapshot() == {}
    assert stored(client, group, queue) == 2, "it is forgotten here, not there"


@pytest.mark.behaviour("OFF-03")
def test_the_first_offsets_of_new_groups_all_arrive(client, broker, unique_topic, unique_group):
    """A broker that gets two first offsets of a group at the same time loses one, and says that it has both."""
    client.create_topic(broker, unique_topic, queues=32)
    client.master(unique_topic)
    queues = [client.queue(unique_topic, number) for number in range(32)]
    groups = [f"{unique_group}-{number}" for number in range(60)]
    client.run(client.instance.refresh_routes())
    for group in groups:
        client.instance.register_consumer(BareConsumer(group, unique_topic))
        # One at a time: the broker makes a retry topic for each, tells its name servers, and answers then.
        assert client.run(client.instance.heartbeat()) == 1

    async def write(group: str) -> dict[int, int]:
        store = BrokerOffsets(client.instance, group)
        for queue in queues:
            store.update(queue, 1 + queue.queue_id, increase_only=True)
        await store.persist_all(queues)
        return {queue.queue_id: await store.read(queue, ReadFrom.STORE) for queue in queues}

    expected = {queue.queue_id: 1 + queue.queue_id for queue in queues}
    assert [group for group in groups if client.run(write(group)) != expected] == []


@pytest.mark.rocketmq_versions("5.5.0")
def test_an_offset_of_a_group_that_the_broker_does_not_know_is_refused(client, topic, unique_group):
    queue = client.queue(topic)
    store = BrokerOffsets(client.instance, unique_group)
    store.update(queue, 0, increase_only=True)
    with pytest.raises(OffsetStoreError, match="SUBSCRIPTION_GROUP_NOT_EXIST"):
        client.run(store.persist(queue))


@pytest.mark.behaviour("OFF-01", "REB-06")
@pytest.mark.parametrize("version", TARGETS)
@pytest.mark.long(40, "stops a broker in order and starts it again", real=True)
def test_a_broker_that_is_down_is_an_error_and_its_offsets_outlast_it(version, request, unique_topic, unique_group):
    require_target(request, version)
    with new_cluster(version) as cluster:
        broker = cluster.brokers[0]
        client = BareClient(cluster.name_server_address, IoThread.shared())
        try:
            client.create_topic(broker.address, unique_topic)
            for _ in range(3):
                client.send(unique_topic, b"x")
            queue = client.queue(unique_topic)
            join(client, unique_group, unique_topic)
            store = BrokerOffsets(client.instance, unique_group)
            store.update(queue, 2, increase_only=True)
            client.run(store.persist(queue))
            broker.stop()
            for start in (StartFrom.LAST, StartFrom.FIRST, StartFrom.at(0)):
                with pytest.raises(OffsetUnknownError):
                    client.run(start_offset(queue, store, start, QueueOffsets(client.instance)))
            with pytest.raises(OffsetStoreError):
                client.run(store.read(queue, ReadFrom.STORE))
            with pytest.raises(OffsetStoreError):
                client.run(store.persist(queue))
            broker.start()
            assert stored(client, unique_group, queue) == 2
        finally:
            client.close()


# --- where to begin -----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("REB-06")
def test_a_group_goes_on_where_it_was(client, store, topic):
    queue = client.queue(topic)
    for _ in range(3):
        client.send(topic, b"x")
    store.update(queue, 2, increase_only=True)
    client.run(store.persist(queue))
    for start in (StartFrom.LAST, StartFrom.FIRST, StartFrom.at(0)):
        assert client.run(start_offset(queue, store, start, QueueOffsets(client.instance))) == 2


class NoOffsets(BrokerOffsets):
    """A store of a group that never committed: real brokers say 0 while a queue is young."""

    async def _read_stored(self, queue: MessageQueue) -> int:
        return -1


@pytest.mark.behaviour("REB-06")
def test_a_new_group_begins_where_it_wants(client, group, topic):
    queue = client.queue(topic)
    for number in range(5):
        client.send(topic, str(number).encode())
        client.run(asyncio.sleep(0.005))  # so that no two were stored in the same millisecond
    messages = client.pull_all(group, topic)
    store, asker = NoOffsets(client.instance, group), QueueOffsets(client.instance)

    def start(start_from: StartFrom) -> int:
        return client.run(start_offset(queue, store, start_from, asker))

    assert start(StartFrom.LAST) == 5
    assert start(StartFrom.FIRST) == 0
    assert start(StartFrom.at(0)) == 0
    for message in messages:
        # 4.9.7 is asked for a little earlier, so that it leaves nothing out.
        assert message.queue_offset - 1 <= start(StartFrom.at(message.store_timestamp)) <= message.queue_offset


@pytest.mark.behaviour("REB-06")
def test_a_queue_that_does_not_exist_is_an_error(client, store, topic):
    nowhere = MessageQueue(topic, "nobody", 0)
    with pytest.raises(OffsetUnknownError, match="nobody"):
        client.run(start_offset(nowhere, store, StartFrom.LAST, QueueOffsets(client.instance)))
    without_route = MessageQueue(f"{topic}-not", "nobody", 0)
    with pytest.raises(TopicRouteNotFoundError):
        client.run(QueueOffsets(client.instance).max_offset(without_route))


# --- back to the broker -------------------------------------------------------------------------------------------


async def no_other_way(copy: RetryCopy) -> None:
    raise AssertionError(f"the broker was to take it: {copy}")


def arrived(client: BareClient, topic: str, count: int = 1) -> list[ReceivedMessage]:
    """The messages of a topic that a broker makes by itself."""

    seen = "no route"

    def there() -> bool:
        nonlocal seen
        try:
            client.run(client.instance.routes.refresh(topic))
        except TopicRouteNotFoundError:
            return False
        offset = client.max_offset(topic)
        seen = f"a route, and {offset} messages"
        return offset >= count

    try:
        eventually(there)
    except AssertionError as error:
        raise AssertionError(f"{topic} should have {count} messages, and has {seen}") from error
    return client.pull_all("reader", topic)


def failed(client: BareClient, topic: str) -> ReceivedMessage:
    """A message that was sent and pulled."""
    properties = {"TAGS": "paid", "KEYS": "k", "UNIQ_KEY": "UNIQUE", "mine": "1"}
    client.send(topic, b"body", properties, flag=5)
    return client.pull_all("reader", topic)[-1]


def send_back(client: BareClient, group: str, inner: Any = no_other_way, **settings: Any) -> SendBack:
    names = TopicNames(group, None, ())
    return SendBack(client.instance, ConsumerSettings(group=group, **settings), group, names, inner)


@pytest.mark.behaviour("CON-09")
def test_a_message_that_goes_back_comes_again_through_the_retry_topic(client, group, topic):
    message = failed(client, topic)
    # Level 1, one second: with 0 the broker would take its own first level, ten seconds.
    client.run(send_back(client, group).send_back(message, message.queue, 1))
    (again,) = arrived(client, retry_topic(group))
    assert again.reconsume_times == 1
    assert (again.body, again.flag, again.tags, again.keys) == (b"body", 5, "paid", "k")
    assert again.message_id == "UNIQUE"
    assert again.properties["RETRY_TOPIC"] == topic
    # The broker's own id of the first time: it has no other for a message that it looks up by its place.
    assert again.properties["ORIGIN_MESSAGE_ID"] == message.offset_message_id
    assert again.properties["mine"] == "1"

    client.run(send_back(client, group).send_back(again, again.queue, 1))
    _, third = arrived(client, retry_topic(group), 2)
    assert third.reconsume_times == 2
    assert third.properties["RETRY_TOPIC"] == topic
    assert third.properties["ORIGIN_MESSAGE_ID"] == message.offset_message_id


@pytest.mark.behaviour("CON-09")
@pytest.mark.parametrize(("settings", "delay_level"), [({"max_reconsume_times": 0}, 0), ({}, -1)])
def test_a_message_may_go_straight_to_the_dead_letters(client, group, topic, settings, delay_level):
    message = failed(client, topic)
    client.run(send_back(client, group, **settings).send_back(message, message.queue, delay_level))
    (dead,) = arrived(client, dlq_topic(group))
    assert (dead.body, dead.message_id, dead.properties["RETRY_TOPIC"]) == (b"body", "UNIQUE", topic)
    assert dead.properties["ORIGIN_MESSAGE_ID"] == message.offset_message_id


@pytest.mark.behaviour("CON-10")
def test_the_other_way_ends_in_the_retry_topic_too(client, group, topic):
    client.send(topic, zlib.compress(b"body"), {"UNIQ_KEY": "UNIQUE", "mine": "1"}, flag=5, sys_flag=1)
    message = client.pull_all("reader", topic)[-1]
    message.broker_name = "nobody"  # as if its broker had gone
    arrived(client, retry_topic(group), 0)
    sent: list[RetryCopy] = []

    async def inner(copy: RetryCopy) -> None:
        """What the inner producer does: the counts are fields of the request."""
        sent.append(copy)
        properties = dict(copy.properties, DELAY="1")  # ten seconds are long
        header = SendMessageRequestHeaderV2(
            producer_group="CLIENT_INNER_PRODUCER",
            topic=copy.topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            flag=copy.flag,
            reconsume_times=int(properties.pop("RECONSUME_TIME")),
            max_reconsume_times=int(properties.pop("MAX_RECONSUME_TIMES")),
            properties=encode_properties(properties),
        )
        (master,) = client.instance.brokers
        await client.instance.ask(master.address, RequestCode.SEND_MESSAGE_V2, header, copy.body)

    client.run(send_back(client, group, inner).send_back(message, message.queue, 0))
    assert sent[0].properties["DELAY"] == "3"
    (again,) = arrived(client, retry_topic(group))
    assert (again.body, again.flag, again.reconsume_times) == (b"body", 5, 1)
    assert again.message_id == "UNIQUE"
    assert again.properties["RETRY_TOPIC"] == topic
    assert again.properties["ORIGIN_MESSAGE_ID"] == "UNIQUE"
    assert again.properties["mine"] == "1"


@pytest.mark.behaviour("CON-10")
def test_a_message_that_the_broker_cannot_find_goes_the_other_way(client, group, topic):
    header = MessageHeader(commit_log_offset=2**40)
    message = ReceivedMessage(topic, b"body", broker_name=client.queue(topic).broker_name, header=header)
    sent: list[RetryCopy] = []

    async def inner(copy: RetryCopy) -> None:
        sent.append(copy)
        raise SendFailedError(copy.topic, [], 3.0)

    with pytest.raises(SendFailedError):
        client.run(send_back(client, group, inner).send_back(message, client.queue(topic), 0))
    assert [copy.topic for copy in sent] == [retry_topic(group)]
