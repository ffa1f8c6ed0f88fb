"""The plain consumer that users call: what it refuses and in which words, and that its calls reach the core."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rocketstream.cluster.client import ClientState
from rocketstream.consumer.expressions import Sql, Tag
from rocketstream.consumer.push_consumer import PushConsumer
from rocketstream.consumer.results import ConsumeResult
from rocketstream.errors import ClientStateError, ConfigurationError, TopicRouteNotFoundError
from rocketstream.message import MessageQueue
from rocketstream.remoting.io_thread import IoThread
from tests.consumer.peers import ConsumerBroker, Heard
from tests.scripted import ScriptedNameServer, eventually

QUEUE = MessageQueue("t", "a", 0)


def ok(messages, context):
    return ConsumeResult.SUCCESS


def refused(text, call, *args, error=ConfigurationError, **settings):
    with pytest.raises(error, match=f"^{re.escape(text)}"):
        call(*args, **settings)


# --- what needs no broker ---------------------------------------------------------------------------------------------


def test_a_setting_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(ConfigurationError, match=r"^unknown settings pull_size, tread; a consumer knows .*pull_batch"):
        PushConsumer("g", "127.0.0.1:1", tread=1, pull_size=2)


def test_settings_go_where_they_belong():
    consumer = PushConsumer(
        "g", "127.0.0.1:1", pull_batch_size=7, heartbeat_interval=5.0, instance_name="mine", orderly=True
    )
    assert consumer.core.consumer.pull_batch_size == 7
    assert consumer.core.consumer.orderly
    assert consumer.core.settings.heartbeat_interval == 5.0
    assert consumer.client_id.endswith("@mine")
    assert (consumer.group, consumer.state) == ("g", ClientState.CREATE_JUST)
    assert consumer.metrics == {}


@pytest.mark.behaviour("START-02")
def test_what_is_wrong_is_refused_when_it_is_said():
    refused("group='': a group needs a name", PushConsumer, "", "127.0.0.1:1")
    refused("pull_batch_size=0 must be a whole number", PushConsumer, "g", "127.0.0.1:1", pull_batch_size=0)
    refused("listener='x' must be a function of (messages, context)", PushConsumer, "g", "127.0.0.1:1", listener="x")
    consumer = PushConsumer("g", "127.0.0.1:1")
    refused("topic=", consumer.subscribe, "a topic with blanks")
    refused("topic=", consumer.handler("a topic with blanks"), print)
    with pytest.raises(ConfigurationError):
        consumer.subscribe("t", Sql(""))
    with pytest.raises(ConfigurationError):
        consumer.subscribe("t", 5)
    assert consumer.core.subscriptions == {}


def test_handlers_and_listeners_do_not_mix():
    consumer = PushConsumer("g", "127.0.0.1:1", listener=ok)

    @consumer.handler("t")
    def handle(message):
        """Nothing."""

    refused("a consumer has a listener or handlers, not both: listener=", consumer.start)
    refused("topic 't' has a handler already: ", consumer.handler, "t")
    refused("the handler of topic 'u' must be a function of a message: 5", consumer.handler("u"), 5)
    batches = PushConsumer("g", "127.0.0.1:1", consume_message_batch_max_size=8)
    refused("consume_message_batch_max_size=8 must be 1 with handlers, which get one", batches.handler, "t")


@pytest.mark.behaviour("START-02")
def test_a_start_without_subscription_or_listener_says_what_to_call():
    consumer = PushConsumer("g", "127.0.0.1:1")
    refused("subscriptions={}: call subscribe(topic) before the start", consumer.start)
    consumer.subscribe("t")
    refused("listener=None: give one to the consumer, or call set_listener before the start", consumer.start)
    consumer.set_listener(ok)
    consumer.unsubscribe("t")
    refused("subscriptions={}", consumer.start)
    assert consumer.state is ClientState.CREATE_JUST


def test_a_second_subscription_to_a_topic_replaces_the_first():
    consumer = PushConsumer("g", "127.0.0.1:1")
    consumer.subscribe("t", "x")
    consumer.subscribe("t", Tag("y || z"))
    consumer.subscribe("u", Sql("a > 1"))
    assert {topic: sub.sub_string for topic, sub in consumer.core.subscriptions.items()} == {
        "t": "y || z",
        "u": "a > 1",
    }
    assert repr(consumer) == "<PushConsumer g CREATE_JUST, subscribed to t, u>"
    assert repr(PushConsumer("g", "127.0.0.1:1")) == "<PushConsumer g CREATE_JUST, subscribed to nothing>"


# --- with a broker ----------------------------------------------------------------------------------------------------


class Peers(NamedTuple):
    """A name server and a broker with topics t and u, on a thread of their own."""

    thread: IoThread
    name_server: ScriptedNameServer
    broker: ConsumerBroker

    @property
    def address(self) -> str:
        return self.name_server.address

    def store(self, *texts: str, topic: str = "t") -> None:
        async def store() -> None:
            self.broker.store(*texts, topic=topic)

        self.thread.run(store())

    def until(self, condition) -> None:
        self.thread.run(eventually(condition))


@pytest.fixture
def peers() -> Iterator[Peers]:
    thread = IoThread("scripted-peers")

    async def make() -> Peers:
        name_server, broker = await ScriptedNameServer().start(), await ConsumerBroker("a").start()
        for topic in ("t", "u"):
            name_server.set_route(topic, {"a": {0: broker.address}}, queues=1)
        return Peers(thread, name_server, broker)

    peers = thread.run(make())
    yield peers
    for server in (peers.name_server, peers.broker):
        thread.run(server.stop())
    thread.stop()


@pytest.mark.behaviour("START-01")
def test_the_plain_consumer_lives_the_same_life(peers):
    heard = Heard()
    consumer = PushConsumer("g", peers.address, listener=heard)
    consumer.subscribe("t")
    consumer.shutdown()
    assert consumer.state is ClientState.CREATE_JUST
    consumer.start()
    assert consumer.state is ClientState.RUNNING
    refused("consumer of group 'g' cannot start: it is RUNNING", consumer.start, error=ClientStateError)
    assert consumer.assignment == (QUEUE,)
    assert [queue.queue for queue in consumer.status().queues] == [QUEUE]
    assert repr(consumer) == "<PushConsumer g RUNNING, subscribed to t>"
    peers.store("one")
    peers.until(lambda: heard.bodies == [b"one"])
    consumer.shutdown(5.0)
    assert (consumer.metrics["t"]["pulled_messages"], consumer.metrics["t"]["ok_messages"]) == (1, 1)
    consumer.shutdown()
    assert consumer.state is ClientState.SHUTDOWN_ALREADY
    assert consumer.assignment == ()
    refused("consumer of group 'g' cannot start: it is SHUTDOWN_ALREADY", consumer.start, error=ClientStateError)
    for call in (lambda: consumer.set_listener(ok), lambda: consumer.handler("u")):
        with pytest.raises(ClientStateError, match=r"is SHUTDOWN_ALREADY: \w+\(\) comes before start"):
            call()


def test_a_start_that_failed_can_be_tried_again(peers):
    consumer = PushConsumer("g", peers.address, listener=ok)
    consumer.subscribe("nowhere")
    refused("topic 'nowhere' has no route at ", consumer.start, error=TopicRouteNotFoundError)
    assert consumer.state is ClientState.CREATE_JUST
    consumer.unsubscribe("nowhere")
    consumer.subscribe("t")
    with consumer:
        assert consumer.assignment == (QUEUE,)


def test_a_with_block_shuts_down_whatever_happens_in_it(peers):
    consumer = PushConsumer("g", peers.address, listener=ok)
    consumer.subscribe("t")
    with contextlib.suppress(ZeroDivisionError), consumer:
        raise ZeroDivisionError
    assert consumer.state is ClientState.SHUTDOWN_ALREADY


def test_subscriptions_and_pauses_of_a_running_consumer(peers):
    heard = Heard()
    consumer = PushConsumer("g", peers.address, listener=heard)
    consumer.subscribe("t")
    with consumer:
        consumer.subscribe("u", "x")
        peers.until(lambda: peers.broker.is_held(topic="u"))
        consumer.suspend()
        assert consumer.status().paused
        consumer.resume()
        assert not consumer.status().paused
        consumer.unsubscribe("u")
        assert repr(consumer) == "<PushConsumer g RUNNING, subscribed to t>"


def test_handlers_get_one_message_at_a_time_by_its_topic(peers):
    consumer = PushConsumer("g", peers.address)
    got = []

    @consumer.handler("t")
    def first(message):
        got.append(("first", message.body))

    @consumer.handler("u", "*")
    async def second(message):
        await asyncio.sleep(0)
        got.append(("second", message.body))

    with consumer:
        peers.store("one")
        peers.store("two", topic="u")
        peers.until(lambda: sorted(got) == [("first", b"one"), ("second", b"two")])


def test_a_listener_may_ask_its_consumer_and_the_io_thread_may_not_wait_for_itself(peers):
    seen = []

    def asks(messages, context):
        seen.append(consumer.status().state)
        return ConsumeResult.SUCCESS

    consumer = PushConsumer("g", peers.address, listener=asks)
    consumer.subscribe("t")
    with consumer:
        peers.store("one")
        peers.until(lambda: seen == ["RUNNING"])

        async def on_the_io_thread() -> None:
            consumer.status()

        with pytest.raises(ClientStateError, match="a blocking call on the I/O thread would wait for itself"):
            consumer.core.io.run(on_the_io_thread())


def test_a_queue_listener_may_ask_and_even_end_its_consumer(peers):
    asked, ended = [], threading.Event()

    def told(topic, queues, mine):
        asked.append(consumer.status().state)
        if len(asked) == 2:
            consumer.shutdown(5.0)
            ended.set()

    consumer = PushConsumer("g", peers.address, listener=ok, queue_listener=told)
    consumer.subscribe("t")
    consumer.start()
    with contextlib.suppress(ClientStateError):
        consumer.subscribe("u")
    peers.until(ended.is_set)
    assert consumer.state is ClientState.SHUTDOWN_ALREADY


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_run_stays_until_a_signal_and_gives_the_handlers_back(peers, number):
    before = signal.getsignal(number)

    def listen(messages, context):
        os.kill(os.getpid(), number)
        return ConsumeResult.SUCCESS

    consumer = PushConsumer("g", peers.address, listener=listen)
    consumer.subscribe("t")
    threading.Thread(target=lambda: (peers.until(lambda: peers.broker.is_held()), peers.store("end"))).start()
    consumer.run()
    assert consumer.state is ClientState.SHUTDOWN_ALREADY
    assert signal.getsignal(number) is before
    assert peers.broker.updates == [("t", 0, 1)], "what was consumed is stored"


def test_consumers_come_and_go_without_leaving_threads(peers):
    def live():
        heard = Heard()
        consumer = PushConsumer("g", peers.address, listener=heard)
        consumer.subscribe("t")
        with consumer:
            peers.until(lambda: peers.broker.is_held())
            peers.store("one")
            peers.until(lambda: len(heard.messages) == 1)
            consumer.shutdown(5.0)

    live()
    before = {thread.name for thread in threading.enumerate()}
    for _ in range(3):
        live()
    assert {thread.name for thread in threading.enumerate()} <= before
