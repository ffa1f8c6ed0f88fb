"""What fails comes again after about 10 s, then 30 s, then among the dead letters; and what else takes long to see.

The waits are the brokers' own, so all of it runs side by side: `under_way` begins everything, and each test waits for
its own part. Times are those that the brokers wrote down: when a message was stored in the retry topic. Embedded
brokers are hurried; what a client waits for by its own clock takes as long as ever.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from rocketstream import AdminClient, ConsumeResult, Message, Producer, PushConsumer
from rocketstream.cluster.names import dlq_topic
from rocketstream.consumer.status import ConsumerStatus
from rocketstream.message import MessageQueue
from rocketstream.remoting.io_thread import IoThread
from rocketstream.testing import ClusterProxy, EmbeddedCluster, RocketMQCluster
from rocketstream.testing.plugin import EMBEDDED
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.command import Command
from tests.bare_client import BareClient, eventually
from tests.contract.clusters import AnyCluster, clock_of, hurried, new_waiting_cluster
from tests.contract.consuming import Delivery, Heard, broker_settings, committed, new_consumer, persist

LATE_MS = 15_000  # how late a broker on a busy machine may be


def fail(messages, context):
    raise ValueError("cannot do that")


def fail_for_a_second(messages, context):
    context.delay_level_when_next_consume = 1
    return ConsumeResult.RECONSUME_LATER


def fail_twice(messages, context):
    return ConsumeResult.SUCCESS if messages[0].reconsume_times == 2 else ConsumeResult.RECONSUME_LATER


def fail_once(messages, context):
    return ConsumeResult.SUCCESS if messages[0].reconsume_times else ConsumeResult.RECONSUME_LATER


class UnderWay:
    """Groups with their listeners, all of one topic each, begun together."""

    def __init__(self, cluster: AnyCluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self.client = BareClient(cluster.name_server_address, IoThread.shared())
        stack.callback(self.client.close)
        self.sender = stack.enter_context(Producer("retries-p", cluster.name_server_address, send_timeout=10.0))
        self.admin = stack.enter_context(AdminClient(cluster.name_server_address))
        self._stack = stack
        self._name = f"retries-{time.time_ns()}"
        self.heard: dict[str, Heard] = {}
        self.consumers: dict[str, PushConsumer] = {}
        self.during_reset: ConsumerStatus

    def group(self, name: str) -> str:
        return f"g-{self._name}-{name}"

    def topic(self, name: str) -> str:
        return f"t-{self._name}-{name}"

    def begin(self, name: str, heard: Heard, *bodies: bytes, address: str | None = None, **settings: object) -> None:
        topic, namespace = self.topic(name), settings.get("namespace")
        stored_as = f"{namespace}%{topic}" if namespace else topic
        self.client.create_topic(self.cluster.brokers[0].address, stored_as)
        for body in bodies:
            self.sender.send(Message(stored_as, body, tags="t", keys="k", properties={"mine": "1"}, flag=3))
        consumer = new_consumer(self.group(name), address or self.cluster.name_server_address, heard, topic, **settings)
        self.heard[name] = heard
        self.consumers[name] = self._stack.enter_context(consumer)


def refuse_send_back(direction: str, command: Command) -> Command:
    """A broker finds no message at that place, and says so."""
    if direction == "up" and command.code == RequestCode.CONSUMER_SEND_MSG_BACK:
        command.fields["offset"] = str(2**40)
    return command


@pytest.fixture(scope="module")
def under_way(rocketmq_cluster: RocketMQCluster) -> Iterator[UnderWay]:
    with ExitStack() as stack:
        cluster: AnyCluster = rocketmq_cluster
        if isinstance(rocketmq_cluster, EmbeddedCluster):
            cluster = stack.enter_context(new_waiting_cluster(EMBEDDED))
        proxy = stack.enter_context(ClusterProxy(cluster.name_server_address, on_frame=refuse_send_back))
        it = UnderWay(cluster, stack)
        now_ms = clock_of(cluster)
        stack.enter_context(hurried(cluster))
        it.begin("raises", Heard(fail, now_ms), b"one", b"two", max_reconsume_times=2)
        it.begin("sixteen", Heard(fail_for_a_second), b"x")
        it.begin("refused", Heard(fail_twice, now_ms), b"x", address=proxy.name_server_address)
        it.begin("namespace", Heard(fail_once), b"x", namespace="ns")
        it.begin("dead-at-once", Heard(to_the_dead_letters), b"x")
        it.begin("reset", Heard(), b"0", b"1", b"2", broker_suspend_max_time=1.0)
        it.begin("reset-by-members", Heard(), b"0", b"1", b"2")
        for name in ("reset", "reset-by-members"):
            it.heard[name].until(3)
        it.admin.reset_offset(it.group("reset"), it.topic("reset"), "earliest")
        settings = {"useServerSideResetOffset": False} if cluster.version.startswith("5.") else {}
        # The offsets have to be there: a broker resets no group that it knows nothing of.
        persist(it.consumers["reset-by-members"])
        with broker_settings(it.client, cluster.brokers[0].address, **settings):
            it.admin.reset_offset(it.group("reset-by-members"), it.topic("reset-by-members"), "earliest")
        it.during_reset = when_paused(it.consumers["reset-by-members"])
        yield it


def to_the_dead_letters(messages, context):
    context.delay_level_when_next_consume = -1
    return ConsumeResult.RECONSUME_LATER


def when_paused(consumer: PushConsumer) -> ConsumerStatus:
    eventually(lambda: consumer.status().paused)
    return consumer.status()


def gap_ms(before: Delivery, after: Delivery) -> int:
    """From a failure to the moment at which the broker let the message come again."""
    return after.message.store_timestamp - before.at_ms


def dead_letters(it: UnderWay, group: str, count: int = 1) -> list:
    topic = dlq_topic(group)
    found: list = []

    def there() -> bool:
        try:
            found[:] = it.admin.peek(topic, 10)
        except Exception:
            return False
        return len(found) >= count

    eventually(there, 3000)
    return found


@pytest.mark.behaviour("OFF-05")
@pytest.mark.rocketmq_exclusive  # the first one makes `under_way`, which changes how the broker resets for a moment
@pytest.mark.slow(11, "a client pauses for ten seconds when it is reset")
def test_a_reset_goes_through_the_members(under_way):
    heard = under_way.heard["reset-by-members"]
    consumer = under_way.consumers["reset-by-members"]
    assert under_way.during_reset.paused, "pulling stops meanwhile"
    (queue,) = (queue for queue in under_way.during_reset.queues if not queue.queue.topic.startswith("%RETRY%"))
    assert queue.dropped, "what was pulled before is nobody's any more"
    assert heard.until(6) == [b"0", b"1", b"2"] * 2
    eventually(lambda: not consumer.status().paused)
    topic = under_way.topic("reset-by-members")
    under_way.sender.send(Message(topic, b"after"))
    heard.until_heard(b"after")
    assert len(heard.deliveries) == 7
    consumer.shutdown()
    assert committed(under_way.admin, under_way.group("reset-by-members"), topic) == {0: 4}


def test_a_reset_while_it_runs(under_way):
    """By the broker itself, if it can: the next pull is sent elsewhere."""
    heard = under_way.heard["reset"]
    heard.until(6)
    assert heard.bodies == [b"0", b"1", b"2"] * 2
    under_way.consumers["reset"].shutdown()
    assert committed(under_way.admin, under_way.group("reset"), under_way.topic("reset")) == {0: 3}


@pytest.mark.behaviour("CON-04", "START-13")
def test_a_retried_message_in_a_namespace(under_way):
    heard = under_way.heard["namespace"]
    topic, group = under_way.topic("namespace"), under_way.group("namespace")
    first, second = (heard.until(2), heard.deliveries)[1]
    for delivery in (first, second):
        assert (delivery.topic, delivery.body) == (topic, b"x")
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    assert first.context_queue == MessageQueue(topic, first.message.broker_name, 0)
    assert second.context_queue.topic == f"%RETRY%{group}"
    consumer = under_way.consumers["namespace"]
    assert {queue.topic for queue in consumer.assignment} == {topic}
    assert {queue.queue.topic for queue in consumer.status().queues} == {topic, f"%RETRY%{group}"}
    # At the broker the names are whole.
    assert second.message.properties["RETRY_TOPIC"] == f"ns%{topic}"
    assert [info.group for info in under_way.admin.groups(lag=False) if info.group.endswith(group)] == [f"ns%{group}"]
    consumer.shutdown()
    assert committed(under_way.admin, f"ns%{group}", f"ns%{topic}") == {0: 1}


@pytest.mark.behaviour("CON-10")
@pytest.mark.slow(30, "is about retries of ten and thirty seconds")
def test_what_the_broker_does_not_take_back_is_sent_to_the_retry_topic(under_way):
    heard = under_way.heard["refused"]
    heard.until(3, timeout=120.0)
    first, second, third = heard.deliveries
    assert 9_000 <= gap_ms(first, second) <= 10_000 + LATE_MS, "level 3"
    assert 29_000 <= gap_ms(second, third) <= 30_000 + LATE_MS, "level 4"
    for times, again in enumerate((second, third), start=1):
        message = again.message
        assert (again.body, again.reconsume_times, again.topic) == (b"x", times, under_way.topic("refused"))
        assert (message.flag, message.tags, message.keys, message.properties["mine"]) == (3, "t", "k", "1")
        assert message.properties["RETRY_TOPIC"] == under_way.topic("refused")
        assert message.properties["ORIGIN_MESSAGE_ID"] == first.message.message_id
        assert message.offset_message_id != first.message.offset_message_id


@pytest.mark.feature("consume/dead-letters")
def test_a_listener_can_give_up_at_once(under_way):
    (dead,) = dead_letters(under_way, under_way.group("dead-at-once"))
    assert dead.body == b"x"
    assert len(under_way.heard["dead-at-once"].deliveries) == 1


@pytest.mark.feature("consume/dead-letters")
@pytest.mark.behaviour("CON-13")
def test_after_sixteen_times_a_message_is_dead(under_way):
    heard = under_way.heard["sixteen"]
    heard.until(17, timeout=120.0)
    assert [delivery.reconsume_times for delivery in heard.deliveries] == list(range(17))
    (dead,) = dead_letters(under_way, under_way.group("sixteen"))
    assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"x", under_way.topic("sixteen"))
    assert len(heard.deliveries) == 17


@pytest.mark.feature("consume/retries", "consume/dead-letters")
@pytest.mark.behaviour("CON-04")
def test_what_fails_comes_again_after_ten_seconds_then_thirty_then_is_dead(under_way, caplog):
    heard, group = under_way.heard["raises"], under_way.group("raises")
    heard.until(6, timeout=120.0)
    dead = {message.body: message for message in dead_letters(under_way, group, 2)}
    assert len(heard.deliveries) == 6
    for body in (b"one", b"two"):
        first, second, third = heard.of(body)
        assert [delivery.reconsume_times for delivery in (first, second, third)] == [0, 1, 2]
        assert {delivery.topic for delivery in (first, second, third)} == {under_way.topic("raises")}
        assert 9_000 <= gap_ms(first, second) <= 10_000 + LATE_MS
        assert 29_000 <= gap_ms(second, third) <= 30_000 + LATE_MS
        for again in (second, third):
            assert again.message.properties["ORIGIN_MESSAGE_ID"] == first.message.offset_message_id
            assert (again.message.flag, again.message.tags, again.message.keys) == (3, "t", "k")
            assert again.message.message_id == first.message.message_id
        assert dead[body].message_id == first.message.message_id
        assert dead[body].properties["RETRY_TOPIC"] == under_way.topic("raises")
    under_way.consumers["raises"].shutdown()
    assert committed(under_way.admin, group, under_way.topic("raises")) == {0: 2}, "they do not hold the queue up"
