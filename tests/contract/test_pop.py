"""The pop path of the push consumer on the real brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from rocketstream import AdminClient, Message, Producer, Sql
from rocketstream.admin.errors import NotFoundError
from rocketstream.cluster.names import dlq_topic
from rocketstream.consumer import pop_flow
from rocketstream.consumer.push_consumer import PushConsumer
from rocketstream.consumer.results import ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult
from rocketstream.consumer.start_from import StartFrom
from rocketstream.errors import ConfigurationError, TopicRouteNotFoundError, UnsupportedByBrokerError
from rocketstream.message import ReceivedMessage
from rocketstream.property_names import PropertyName
from rocketstream.remoting.hooks import RpcHook
from rocketstream.testing import RocketMQCluster
from rocketstream.wire.codes import RequestCode
from tests.bare_client import BareClient, eventually
from tests.contract.clusters import new_cluster, require_target
from tests.contract.consuming import broker_settings
from tests.contract.test_offsets import join

QUEUES = 4


@pytest.fixture
def start(rocketmq_cluster: RocketMQCluster, unique_group: str) -> Iterator[Callable[..., PushConsumer]]:
    """Start consumers of one group; they are shut down at the end."""
    consumers: list[PushConsumer] = []

    def start(topic: str, listener: Any, expression: str | Sql = "*", **settings: Any) -> PushConsumer:
        settings = {"rebalance_interval": 0.5, "start_from": StartFrom.FIRST, **settings}
        consumer = PushConsumer(unique_group, rocketmq_cluster.name_server_address, listener=listener, **settings)
        consumer.subscribe(topic, expression)
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
def set_mode(rocketmq_cluster: RocketMQCluster, orders: str, unique_group: str) -> Iterator[Callable[[str], None]]:
    """What an operator does: `mqadmin setConsumeMode`, or this."""
    with AdminClient(rocketmq_cluster.name_server_address) as admin:
        yield lambda mode: admin.set_request_mode(unique_group, orders, mode) and None


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


@pytest.fixture
def popped_topic(rocketmq_cluster: RocketMQCluster, orders: str, set_mode: Callable[[str], None]) -> str:
    """A topic that the group pops."""
    set_mode("POP")
    return orders


@pytest.mark.feature("pop/expiry")
@pytest.mark.rocketmq_versions("5.5.0")
@pytest.mark.slow(10, "waits until a popped message may be popped again")
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
    eventually(lambda: len(unacked) == 2)  # the topic at its broker, and the retry topic of pulls


@pytest.mark.feature("pop/retry")
@pytest.mark.rocketmq_versions("5.5.0")
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


@pytest.mark.feature("pop/retry")
@pytest.mark.rocketmq_versions("5.5.0")
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


@pytest.mark.feature("pop/consume")
@pytest.mark.rocketmq_versions("5.5.0")
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


@pytest.mark.feature("pop/switch")
@pytest.mark.rocketmq_versions("5.5.0")
def test_a_group_is_switched_to_pop_and_back_while_it_runs(client, popped_topic, set_mode, start, quick_retries):
    """REB-11, PULL-22."""
    heard = Heard()
    set_mode("PULL")
    consumer = start(popped_topic, heard)
    assert of(consumer) == set(range(QUEUES))
    send(client, popped_topic, range(20))
    eventually(lambda: len(heard.bodies) >= 20)
    assert not any(heard.popped)

    set_mode("POP")
    eventually(lambda: of(consumer) == {-1})
    send(client, popped_topic, range(20, 40))
    eventually(lambda: len(heard.bodies) >= 40)
    assert all(heard.popped[20:])

    set_mode("PULL")
    eventually(lambda: of(consumer) == set(range(QUEUES)))
    send(client, popped_topic, range(40, 60))
    # A pop that the broker still held may bring what is pulled too: nothing is lost, and that one comes twice.
    eventually(lambda: set(heard.bodies) == set(range(60)))
    assert sorted(heard.bodies[:40]) == list(range(40))
    assert not all(heard.popped[40:])


@pytest.mark.feature("pop/switch")
@pytest.mark.rocketmq_versions("5.5.0")
def test_what_was_popped_and_failed_is_pulled_after_the_switch(client, popped_topic, set_mode, start, quick_retries):
    heard = Heard()

    def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        heard(messages, context)
        return ConsumeResult.SUCCESS if messages[0].reconsume_times else ConsumeResult.RECONSUME_LATER

    consumer = start(popped_topic, listener)
    send(client, popped_topic, [1])
    eventually(lambda: heard.bodies == [1])
    set_mode("PULL")
    eventually(lambda: of(consumer) >= set(range(QUEUES)))
    eventually(lambda: heard.bodies == [1, 1])
    assert [message.topic for message in heard.messages] == [popped_topic] * 2


@pytest.mark.feature("pop/orderly")
@pytest.mark.rocketmq_versions("5.5.0")
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


@pytest.mark.feature("pop/chosen-by-client")
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


# --- the operator ----------------------------------------------------------------------------------------------------


@pytest.mark.feature("pop/request-mode")
@pytest.mark.rocketmq_exclusive
def test_an_operator_sets_modes(rocketmq_cluster, client, broker, orders, unique_group):
    with AdminClient(rocketmq_cluster.name_server_address) as admin:
        for wrong, problem in (("push", "mode='push' must be 'POP' or 'PULL'"), (None, "mode=None must be")):
            with pytest.raises(ConfigurationError, match=problem):
                admin.set_request_mode(unique_group, orders, wrong)
        with pytest.raises(ConfigurationError, match="share_queues=True"):
            admin.set_request_mode(unique_group, orders, "pop", share_queues=True)
        with pytest.raises(ConfigurationError, match="is a retry topic"):
            admin.set_request_mode(unique_group, f"%RETRY%{unique_group}", "pop")
        with pytest.raises(TopicRouteNotFoundError, match=f"{orders}-none"):
            admin.set_request_mode(unique_group, f"{orders}-none", "pop")
        if rocketmq_cluster.version.startswith("4."):
            for ask in (lambda: admin.set_request_mode(unique_group, orders, "pop"), admin.request_modes):
                with pytest.raises(UnsupportedByBrokerError, match=r"does not pop: brokers before 5\.0"):
                    ask()
            return
        unknown = f"does not know group '{unique_group}-none': create it with"
        with (
            broker_settings(client, broker, autoCreateSubscriptionGroup=False),
            pytest.raises(NotFoundError, match=unknown),
        ):
            admin.set_request_mode(f"{unique_group}-none", orders, "pop")
        (set_now,) = admin.set_request_mode(unique_group, orders, "pop", share_queues=2)
        assert (set_now.mode, set_now.share_queues, set_now.broker_name) == ("POP", 2, "broker-a")
        assert admin.request_modes(unique_group) == [set_now]
        assert set_now in admin.request_modes()
        admin.set_request_mode(unique_group, orders, "pull")
        assert [(one.topic, one.mode) for one in admin.request_modes(unique_group)] == [(orders, "PULL")]


# --- what is said to brokers -----------------------------------------------------------------------------------------


class Requests(RpcHook):
    """Counts requests by their codes."""

    inline = True

    def __init__(self) -> None:
        self.codes: list[int] = []

    def before_request(self, address: str, request: Any) -> None:
        self.codes.append(request.code)


@pytest.mark.feature("pop/acknowledge")
@pytest.mark.rocketmq_versions("5.5.0")
def test_many_messages_are_acknowledged_in_one_request(client, popped_topic, start, unique_group, rocketmq_cluster):
    """POP-02: and the broker takes it: none of them comes again, to nobody."""
    send(client, popped_topic, range(200))
    heard, requests = Heard(), Requests()
    consumer = start(popped_topic, heard, consume_message_batch_max_size=8, pop_invisible_time=5, rpc_hooks=[requests])
    eventually(lambda: len(heard.bodies) >= 200)
    eventually(lambda: sum(status.cached_count for status in consumer.status().queues) == 0)
    consumer.shutdown()
    batches = requests.codes.count(RequestCode.BATCH_ACK_MESSAGE)
    assert 0 < batches + requests.codes.count(RequestCode.ACK_MESSAGE) < 100
    assert batches
    again = Heard()
    start(popped_topic, again, pop_invisible_time=5)
    send(client, popped_topic, range(200, 204))
    eventually(lambda: set(range(200, 204)) <= set(again.bodies))
    assert sorted(heard.bodies + again.bodies) == list(range(204))


@pytest.mark.feature("pop/filter")
@pytest.mark.rocketmq_versions("5.5.0")
@pytest.mark.parametrize("expression", ["a || c", Sql("number > 10")], ids=["tags", "sql"])
@pytest.mark.rocketmq_exclusive
def test_only_what_is_wanted_is_popped(client, broker, popped_topic, start, expression):
    heard = Heard()
    with broker_settings(client, broker, enablePropertyFilter=True):
        consumer = start(popped_topic, heard, expression)
        assert of(consumer) == {-1}
        for number in range(20):
            properties = {"number": str(number), "TAGS": "abcd"[number % 4]}
            client.send(popped_topic, b"%d" % number, queue_id=number % QUEUES, properties=properties)
        wanted = [n for n in range(20) if (n > 10 if isinstance(expression, Sql) else n % 2 == 0)]
        eventually(lambda: len(heard.bodies) >= len(wanted))
        assert sorted(heard.bodies) == wanted
        assert all(heard.popped)


# --- members and brokers come and go ---------------------------------------------------------------------------------


@pytest.mark.feature("pop/leave")
@pytest.mark.rocketmq_versions("5.5.0")
def test_a_member_that_leaves_gives_back_what_it_has_not_begun(client, popped_topic, start):
    """Long before their leases are over: they come to the other within seconds."""
    began, may_end = threading.Event(), threading.Event()
    first, second = Heard(), Heard()

    def slow(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        began.set()
        assert may_end.wait(60)
        return first(messages, context)

    leaving = start(popped_topic, slow, consume_thread_min=1, consume_thread_max=1, pop_invisible_time=300)
    send(client, popped_topic, range(16))
    assert began.wait(60)
    eventually(lambda: sum(status.cached_count for status in leaving.status().queues) == 16)
    ending = threading.Thread(target=leaving.shutdown)
    ending.start()
    eventually(lambda: not leaving.core.is_running)
    may_end.set()
    ending.join(60)
    assert len(first.bodies) == 1
    start(popped_topic, second)
    eventually(lambda: len(second.bodies) >= 15)
    assert sorted(first.bodies + second.bodies) == list(range(16)), "each once, and none lost"


@pytest.mark.feature("pop/switch")
@pytest.mark.rocketmq_versions("5.5.0")
@pytest.mark.slow(13, "switches three times, and waits for what is invisible for five seconds")
def test_two_members_are_switched_to_and_fro_while_messages_arrive(client, popped_topic, set_mode, start):
    """Nothing is lost; what a held pop and a pull both brought, or what waited for its turn, may come twice."""
    heard = Heard()
    members = [start(popped_topic, heard, pop_invisible_time=5, instance_name=str(number)) for number in range(2)]
    for step, mode in enumerate(("PULL", "POP", "PULL")):
        set_mode(mode)
        send(client, popped_topic, range(step * 100, step * 100 + 50))
        wanted = {-1} if mode == "POP" else set(range(QUEUES))
        eventually(lambda wanted=wanted: set().union(*(of(member) for member in members)) == wanted)
        send(client, popped_topic, range(step * 100 + 50, step * 100 + 100))
    eventually(lambda: set(heard.bodies) == set(range(300)))
    assert len(heard.bodies) < 600


@pytest.mark.feature("pop/switch", "pop/retry")
@pytest.mark.rocketmq_versions("5.5.0")
@pytest.mark.rocketmq_exclusive
@pytest.mark.slow(12, "waits for what is invisible for ten seconds")
def test_retries_under_the_newer_name(client, broker, popped_topic, set_mode, start, quick_retries, monkeypatch):
    """With enableRetryTopicV2 they wait in `%RETRY%group+topic`: popped again from there, and pulled after a switch."""
    newer = {"enableRetryTopicV2": True, "retrieveMessageFromPopRetryTopicV1": False}
    heard = Heard()

    def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        heard(messages, context)
        return ConsumeResult.SUCCESS if messages[0].reconsume_times else ConsumeResult.RECONSUME_LATER

    with broker_settings(client, broker, **newer):
        consumer = start(popped_topic, listener, broker_suspend_max_time=0.5)
        send(client, popped_topic, [1])
        eventually(lambda: heard.bodies == [1, 1])
        assert all(heard.popped)
        assert heard.messages[1].properties[PropertyName.POP_CHECK_POINT].split()[4] == "2"
        monkeypatch.setattr(pop_flow, "DELAYS", (4,))  # after the last pop that the broker still holds
        send(client, popped_topic, [2])
        eventually(lambda: heard.bodies == [1, 1, 2])
        set_mode("PULL")
        eventually(lambda: of(consumer) >= set(range(QUEUES)))
        eventually(lambda: heard.bodies == [1, 1, 2, 2])
        assert not heard.popped[-1]
        assert {message.topic for message in heard.messages} == {popped_topic}


@pytest.mark.feature("pop/restart")
@pytest.mark.parametrize("target", ["embedded", "5.5.0"])
@pytest.mark.long(50, "stops a broker in order and starts it again", real=True)
def test_a_restart_of_the_broker_loses_nothing(request, target, unique_topic, unique_group):
    """Also nothing of what was leased when it died; what was not acknowledged comes again."""
    require_target(request, target)
    heard = Heard()
    with (
        new_cluster(target, broker_config={"flushDiskType": "SYNC_FLUSH"}) as cluster,
        AdminClient(cluster.name_server_address) as admin,
        Producer("pop-restart", cluster.name_server_address, send_timeout=30.0) as producer,
    ):
        admin.create_topic(unique_topic, QUEUES)
        admin.create_group(unique_group)
        admin.set_request_mode(unique_group, unique_topic, "POP")
        hang = threading.Event()

        def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
            if int(messages[0].body) == 3 and not messages[0].reconsume_times:
                hang.wait(60)
            return heard(messages, context)

        consumer = PushConsumer(
            unique_group,
            cluster.name_server_address,
            listener=listener,
            start_from=StartFrom.FIRST,
            pop_invisible_time=5,
        )
        consumer.subscribe(unique_topic)
        with consumer:
            for number in range(50):
                producer.send(Message(unique_topic, b"%d" % number))
            eventually(lambda: len(set(heard.bodies)) == 49)
            cluster.brokers[0].kill()
            cluster.brokers[0].start()
            for number in range(50, 100):
                producer.send(Message(unique_topic, b"%d" % number))
            eventually(lambda: set(range(100)) - {3} <= set(heard.bodies))
            eventually(lambda: 3 in heard.bodies)  # its lease was over while the first listener still had it
            hang.set()
            assert all(heard.popped)
