"""The pop path of the push consumer on the real brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from rocketstream.cluster.names import dlq_topic
from rocketstream.consumer import pop_flow
from rocketstream.consumer.push_consumer import PushConsumer
from rocketstream.consumer.results import ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult
from rocketstream.consumer.start_from import StartFrom
from rocketstream.errors import TopicRouteNotFoundError
from rocketstream.message import ReceivedMessage
from rocketstream.property_names import PropertyName
from rocketstream.testing import RocketMQCluster
from rocketstream.wire.bodies.assignment import SetMessageRequestModeRequestBody
from rocketstream.wire.codes import MessageRequestMode, RequestCode
from tests.bare_client import BareClient, eventually
from tests.contract.test_offsets import join

QUEUES = 4


@pytest.fixture
def start(rocketmq_cluster: RocketMQCluster, unique_group: str) -> Iterator[Callable[..., PushConsumer]]:
    """Start consumers of one group; they are shut down at the end."""
    consumers: list[PushConsumer] = []

    def start(topic: str, listener: Any, **settings: Any) -> PushConsumer:
        settings = {"rebalance_interval": 0.5, "start_from": StartFrom.FIRST, **settings}
        consumer = PushConsumer(unique_group, rocketmq_cluster.name_server_address, listener=listener, **settings)
        consumer.subscribe(topic)
        consumer.start()
        consumers.append(consumer)
        return consumer

    yield start
    for consumer in consumers:
        consumer.shutdown()


@pytest.fixture
def orders(client: BareClient, broker: str, unique_topic: str, unique_group: str) -> str:
    """A topic with four queues, known to the group."""
    client.create_topic(broker, unique_topic, queues=QUEUES)
    client.master(unique_topic)
    join(client, unique_group, unique_topic)
    client.run(client.instance.unregister_consumer(unique_group))
    return unique_topic


@pytest.fixture
def set_mode(client: BareClient, broker: str, orders: str, unique_group: str) -> Callable[[MessageRequestMode], None]:
    """What an operator does with `mqadmin setConsumeMode`."""

    def set_mode(mode: MessageRequestMode) -> None:
        body = SetMessageRequestModeRequestBody(
            topic=orders, consumer_group=unique_group, mode=mode, pop_share_queue_num=0
        )
        client.ask(broker, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.encode())

    return set_mode


class Heard:
    """A listener that notes what it hears."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.messages: list[ReceivedMessage] = []

    def __call__(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        with self._lock:
            self.messages += messages
        return ConsumeResult.SUCCESS

    @property
    def bodies(self) -> list[int]:
        with self._lock:
            return [int(message.body) for message in self.messages]

    @property
    def popped(self) -> list[bool]:
        with self._lock:
            return [PropertyName.POP_CHECK_POINT in message.properties for message in self.messages]


def send(client: BareClient, topic: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        client.send(topic, b"%d" % number, queue_id=number % QUEUES)


def of(consumer: PushConsumer) -> set[int]:
    """The ids of the queues that a consumer has; -1 is all of a broker, popped."""
    return {queue.queue_id for queue in consumer.assignment}


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails comes again after a second; the real times have a test of their own."""
    monkeypatch.setattr(pop_flow, "DELAYS", (1,))


def no_pop(version: str) -> None:
    if version.startswith("4."):
        pytest.skip("brokers of 4.x do not pop")


@pytest.fixture
def popped_topic(rocketmq_cluster: RocketMQCluster, orders: str, set_mode: Callable[[MessageRequestMode], None]) -> str:
    """A topic that the group pops."""
    no_pop(rocketmq_cluster.version)
    set_mode(MessageRequestMode.POP)
    return orders


def test_what_is_acknowledged_does_not_come_again_and_what_is_not_does(client, popped_topic, start):
    """POP-01, POP-02: message 7 is done after its lease; by the time it comes again, so would all the others."""
    heard = Heard()
    again = threading.Event()

    def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        heard(messages, context)
        if int(messages[0].body) == 7 and not messages[0].reconsume_times:
            assert again.wait(60)
        elif int(messages[0].body) == 7:
            again.set()
        return ConsumeResult.SUCCESS

    consumer = start(popped_topic, listener, pop_invisible_time=5)
    assert of(consumer) == {-1}
    send(client, popped_topic, range(100))
    eventually(again.is_set)
    assert sorted(heard.bodies) == sorted([*range(100), 7])
    assert all(heard.popped)
    assert {message.topic for message in heard.messages} == {popped_topic}
    unacked = consumer.core.rebalancer.requests
    eventually(lambda: sum(status.cached_count for status in consumer.status().queues) == 0)
    assert len(unacked) == 2, "the topic at its broker, and the retry topic of pulls"


def test_what_fails_comes_again(client, popped_topic, start, quick_retries):
    heard = Heard()

    def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        heard(messages, context)
        if int(messages[0].body) == 3 and messages[0].reconsume_times < 2:
            raise ValueError("not yet")
        return ConsumeResult.SUCCESS

    start(popped_topic, listener)
    send(client, popped_topic, range(8))
    eventually(lambda: len(heard.bodies) >= 10)
    assert sorted(heard.bodies) == sorted([*range(8), 3, 3])
    tries = [message for message in heard.messages if int(message.body) == 3]
    assert [message.reconsume_times for message in tries] == [0, 1, 2]
    assert {message.topic for message in tries} == {popped_topic}
    assert len({message.message_id for message in tries}) == 1


def test_a_message_that_fails_too_often_goes_to_the_dead_letters(client, popped_topic, start, quick_retries):
    heard = Heard()

    def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        heard(messages, context)
        return ConsumeResult.RECONSUME_LATER

    consumer = start(popped_topic, listener, max_reconsume_times=1)
    send(client, popped_topic, [1])
    dead = dlq_topic(consumer.group)

    def dead_letters() -> int:
        try:
            return client.max_offset(dead)
        except TopicRouteNotFoundError:
            return 0

    eventually(lambda: dead_letters() == 1)
    assert heard.bodies == [1, 1]


def test_two_members_share_without_dividing_queues(client, popped_topic, start):
    one, other = Heard(), Heard()
    consumers = [
        start(popped_topic, heard, pop_batch_nums=4, instance_name=name) for heard, name in ((one, "1"), (other, "2"))
    ]
    for consumer in consumers:
        eventually(lambda consumer=consumer: of(consumer) == {-1})
    send(client, popped_topic, range(200))
    eventually(lambda: len(one.bodies) + len(other.bodies) >= 200)
    assert sorted(one.bodies + other.bodies) == list(range(200)), "each message to one of them"
    assert one.bodies
    assert other.bodies


def test_a_group_is_switched_to_pop_and_back_while_it_runs(client, popped_topic, set_mode, start, quick_retries):
    """REB-11, PULL-22."""
    heard = Heard()
    set_mode(MessageRequestMode.PULL)
    consumer = start(popped_topic, heard)
    assert of(consumer) == set(range(QUEUES))
    send(client, popped_topic, range(20))
    eventually(lambda: len(heard.bodies) >= 20)
    assert not any(heard.popped)

    set_mode(MessageRequestMode.POP)
    eventually(lambda: of(consumer) == {-1})
    send(client, popped_topic, range(20, 40))
    eventually(lambda: len(heard.bodies) >= 40)
    assert all(heard.popped[20:])

    set_mode(MessageRequestMode.PULL)
    eventually(lambda: of(consumer) == set(range(QUEUES)))
    send(client, popped_topic, range(40, 60))
    # A pop that the broker still held may bring what is pulled too: nothing is lost, and that one comes twice.
    eventually(lambda: set(heard.bodies) == set(range(60)))
    assert sorted(heard.bodies[:40]) == list(range(40))
    assert not all(heard.popped[40:])


def test_what_was_popped_and_failed_is_pulled_after_the_switch(client, popped_topic, set_mode, start, quick_retries):
    heard = Heard()

    def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        heard(messages, context)
        return ConsumeResult.SUCCESS if messages[0].reconsume_times else ConsumeResult.RECONSUME_LATER

    consumer = start(popped_topic, listener)
    send(client, popped_topic, [1])
    eventually(lambda: heard.bodies == [1])
    set_mode(MessageRequestMode.PULL)
    eventually(lambda: of(consumer) >= set(range(QUEUES)))
    eventually(lambda: heard.bodies == [1, 1])
    assert [message.topic for message in heard.messages] == [popped_topic] * 2


def test_orderly_pop_consumes_each_queue_in_order(client, popped_topic, start):
    heard: dict[int, list[int]] = {}
    lock = threading.Lock()
    failed: set[int] = set()

    def listener(messages: Sequence[ReceivedMessage], context: OrderlyContext) -> OrderlyResult:
        (message,) = messages
        number = int(message.body)
        with lock:
            if number % 17 == 0 and number not in failed:
                failed.add(number)
                return OrderlyResult.SUSPEND
            heard.setdefault(context.queue.queue_id, []).append(number)
        assert PropertyName.POP_CHECK_POINT in message.properties
        return OrderlyResult.SUCCESS

    consumer = start(popped_topic, listener, orderly=True, suspend_current_queue_time=0.05, pop_batch_nums=8)
    assert of(consumer) == {-1}
    send(client, popped_topic, range(100))
    eventually(lambda: sum(map(len, list(heard.values()))) >= 100)
    for queue_id in range(QUEUES):
        assert heard[queue_id] == list(range(queue_id, 100, QUEUES))
    assert failed == {number for number in range(100) if number % 17 == 0}


def test_the_brokers_share_out_queues_where_the_client_asks_for_it(client, orders, start):
    """REB-11, also where the broker is too old for it."""
    one, other = Heard(), Heard()
    consumers = [
        start(orders, heard, client_rebalance=False, instance_name=name) for heard, name in ((one, "1"), (other, "2"))
    ]
    eventually(lambda: sorted(len(of(consumer)) for consumer in consumers) == [2, 2])
    eventually(lambda: not of(consumers[0]) & of(consumers[1]))
    send(client, orders, range(40))
    eventually(lambda: len(one.bodies) + len(other.bodies) >= 40)
    assert sorted(one.bodies + other.bodies) == list(range(40))
    assert one.bodies
    assert other.bodies
