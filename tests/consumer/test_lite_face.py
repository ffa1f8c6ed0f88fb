"""The lite pull consumer as programs call it, on an embedded broker: settings, odd input, threads, hooks, forks."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rocketstream import AdminClient, LitePullConsumer, Message, MessageQueue, Producer, StartFrom, aio
from rocketstream.broker import EmbeddedBroker
from rocketstream.consumer.hooks import ConsumeHook, ConsumeHookContext
from rocketstream.consumer.lite.settings import LitePullSettings
from rocketstream.consumer.lite.stock import Batch, LiteProcessQueue, Stock
from rocketstream.errors import ClientStateError, ConfigurationError, ForkedClientError, RocketStreamError
from rocketstream.message import ReceivedMessage
from tests.bare_client import eventually

QUEUE = MessageQueue("t", "broker-a", 0)
MESSAGES = 40


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:  # type: ignore[override]
    """An embedded broker with topic t: 4 queues, 10 messages in each."""
    with EmbeddedBroker() as broker:
        address = broker.name_server_address
        with AdminClient(address) as admin, Producer("p", address) as producer:
            admin.create_topic("t", queues=4)
            for n in range(MESSAGES):
                producer.send(Message("t", b"%d" % n, keys=str(n)), queue=QUEUE._replace(queue_id=n % 4))
        yield address


def new_puller(name_server: str, group: str, **settings: Any) -> LitePullConsumer:
    puller = LitePullConsumer(group, name_server, start_from=StartFrom.FIRST, **settings)
    puller.subscribe("t")
    return puller


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_defaults_are_javas():
    settings = LitePullSettings(group="g")
    assert (settings.pull_threshold_for_all, settings.pull_threshold_for_queue) == (10_000, 1_000)
    assert (settings.pull_threshold_size_for_queue, settings.consume_max_span) == (100, 2_000)
    assert (settings.auto_commit, settings.auto_commit_interval, settings.poll_timeout) == (True, 5.0, 5.0)
    assert (settings.broker_suspend_max_time, settings.pull_timeout) == (20.0, 30.0)
    shared = settings.for_consumer()
    assert (shared.consume_concurrently_max_span, shared.post_subscription_when_pull) == (2_000, True)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"pull_threshold_for_all": 0}, "pull_threshold_for_all=0 must be a whole number from 1 to 6553500"),
        ({"consume_max_span": True}, "consume_max_span=True must be a whole number from 1 to 65535"),
        ({"auto_commit_interval": 0}, "auto_commit_interval=0 must be a number of seconds from 0.1 to 86400"),
        ({"poll_timeout": float("nan")}, "poll_timeout=nan must be a number of seconds from 0 to 86400"),
        ({"auto_commit": 1}, "auto_commit=1 must be True or False"),
        ({"pull_batch_size": 0}, "pull_batch_size=0 must be a whole number from 1 to 1024"),
        ({"group": "a b"}, "group='a b' has illegal characters"),
        ({"orderly": True}, "unknown settings orderly; a lite pull consumer knows "),
        ({"listener": print}, "unknown settings listener; a lite pull consumer knows "),
        ({"broker_suspend_max_time": 40.0}, "pull_timeout=30.0 must be above broker_suspend_max_time=40.0"),
    ],
)
@pytest.mark.parametrize("kind", [LitePullConsumer, aio.LitePullConsumer])
def test_wrong_settings_are_refused(kind, changed, text):
    with pytest.raises(ConfigurationError) as caught:
        kind(**{"group": "g", "name_servers": "127.0.0.1:1", **changed})
    assert text in str(caught.value)


# --- odd input --------------------------------------------------------------------------------------------------------


def test_odd_input_is_refused_with_a_sentence(name_server):
    with new_puller(name_server, "odd") as puller:
        for call, text in [
            (lambda: puller.seek("t", 0), "queue='t' must be a MessageQueue(topic, broker_name, queue_id)"),
            (lambda: puller.seek(QUEUE, -1), "offset=-1 must be a whole number, 0 or more"),
            (lambda: puller.seek(QUEUE, 1.5), "offset=1.5 must be a whole number, 0 or more"),
            (lambda: puller.seek(QUEUE._replace(queue_id=-1), 0), "must have a broker's name and a queue id of 0"),
            (lambda: puller.offset_for_timestamp(QUEUE, "now"), "moment='now' must be a datetime, or milliseconds"),
            (lambda: puller.seek_to_timestamp(QUEUE, -5), "moment=-5 must be a datetime, or milliseconds"),
            (lambda: puller.commit({QUEUE: "3"}), "offset='3' must be a whole number, 0 or more"),
            (lambda: puller.commit(7), "queues=7 must be a list of MessageQueue"),
            (lambda: puller.pause(QUEUE), "must be a list of MessageQueue"),
            (lambda: puller.assign(None), "queues=None must be a list of MessageQueue"),
            (lambda: puller.subscribe(""), "topic"),
            (lambda: puller.poll(-1), "timeout=-1 must be a number of seconds, 0 or more, or None"),
            (lambda: setattr(puller, "auto_commit", "yes"), "auto_commit='yes' must be True or False"),
        ]:
            with pytest.raises(ConfigurationError) as caught:
                call()
            assert text in str(caught.value)
        with pytest.raises(RocketStreamError, match="nowhere"):
            puller.fetch_queues("nowhere")


def test_it_tells_of_itself(name_server):
    puller = LitePullConsumer("told", name_server)
    assert repr(puller) == "<LitePullConsumer told CREATE_JUST, subscribed to nothing>"
    assert puller.assignment == ()
    with pytest.raises(ClientStateError, match="call start"):
        puller.commit()
    puller.assign([QUEUE])
    with puller:
        assert repr(puller) == "<LitePullConsumer told RUNNING, assigned 1 queues>"
        puller.auto_commit = False
        puller.poll(10)
        assert puller.status().queues[0].queue == QUEUE
        assert puller.metrics["t"]["pulled_messages"] == 10
        with pytest.raises(ClientStateError, match="cannot start: it is RUNNING"):
            puller.start()
        assert puller.auto_commit is False
    puller.shutdown()  # again: nothing happens
    with pytest.raises(TypeError):
        pickle.dumps(puller)


# --- polling ----------------------------------------------------------------------------------------------------------


def test_hooks_see_what_is_polled(name_server):
    class Noting(ConsumeHook):
        def __init__(self) -> None:
            self.seen: list[tuple[Any, ...]] = []

        def before(self, context: ConsumeHookContext) -> None:
            self.seen.append(("before", context.success, len(context.messages)))

        def after(self, context: ConsumeHookContext) -> None:
            self.seen.append(("after", context.success, context.queue))

    hook = Noting()
    with new_puller(name_server, "hooks", consume_hooks=[hook]) as puller:
        messages = puller.poll(10)
    assert hook.seen == [("before", None, len(messages)), ("after", True, messages[0].queue)]


def test_what_is_polled_is_traced(name_server):
    with AdminClient(name_server) as admin:
        admin.create_topic("traces", queues=1)
        with new_puller(name_server, "traced", trace="traces") as puller:
            message = puller.poll(10)[0]
        eventually(lambda: admin.peek("traces", 1) != [])
        (step,) = admin.message_trace(message.message_id, "traces").steps
    assert (step.what, step.group, step.success) == ("consumed", "traced", True)


def test_a_list_that_a_program_changes_is_its_own(name_server):
    with new_puller(name_server, "own-list") as puller:
        seen = 0
        while seen < MESSAGES:
            messages = puller.poll(10)
            seen += len(messages)
            messages.clear()
        puller.commit()
        assert [puller.committed(queue) for queue in puller.assignment] == [10, 10, 10, 10]


def test_a_broken_off_loop_loses_nothing(name_server):
    with new_puller(name_server, "breaks", auto_commit=False) as puller:
        seen = []
        while len(seen) < MESSAGES:
            for message in puller:
                seen.append(message)
                if len(seen) % 7 == 0 or len(seen) == MESSAGES:
                    break
        for queue_id in range(4):
            mine = [message.queue_offset for message in seen if message.queue_id == queue_id]
            assert mine == list(range(10)), "and keeps the order of each queue"
        puller.commit()
        assert [puller.committed(queue) for queue in puller.assignment] == [10, 10, 10, 10]


def test_queues_in_a_namespace_go_by_either_name(name_server):
    with AdminClient(name_server) as admin, Producer("p", name_server, namespace="space") as producer:
        admin.create_topic("space%n", queues=1)
        for n in range(4):
            producer.send(Message("n", b"%d" % n))
    puller = LitePullConsumer("named", name_server, start_from=StartFrom.FIRST, namespace="space", auto_commit=False)
    puller.subscribe("n")
    with puller:
        message = puller.poll(10)[0]
        (queue,) = puller.assignment
        assert (message.topic, queue.topic, puller.fetch_queues("n")) == ("n", "n", (queue,))
        puller.commit({message.queue: 2})
        assert puller.committed(queue) == puller.committed(message.queue) == 2
        puller.seek(queue, 3)
        assert puller.poll(10)[0].queue_offset == 3


def test_a_forked_child_is_told_so(name_server):
    with new_puller(name_server, "forked") as puller:
        calls = [
            lambda: puller.poll(0),
            lambda: iter(puller),
            puller.commit,
            lambda: puller.subscribe("u"),
            puller.shutdown,
        ]
        pid = os.fork()
        if pid == 0:
            told = 0
            for call in calls:
                try:
                    call()
                except ForkedClientError:
                    told += 1
            os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == len(calls)


# --- the stock --------------------------------------------------------------------------------------------------------


def batch(queue_id: int = 0, count: int = 1, pq: LiteProcessQueue | None = None) -> Batch:
    pq = pq or LiteProcessQueue(QUEUE._replace(queue_id=queue_id))
    return Batch(pq, [object.__new__(ReceivedMessage) for _ in range(count)])


def test_the_stock_gives_batches_in_order_and_counts():
    stock = Stock()
    first, second = batch(0, 3), batch(1, 2)
    stock.put(first)
    stock.put(second)
    assert (stock.count, stock.batches) == (5, 2)
    assert stock.take() is first
    stock.put_back(first)
    assert (stock.take(), stock.take(), stock.take(), stock.count) == (first, second, None, 0)
    assert repr(stock) == "<Stock 0 messages in 0 batches, 0 wait for some>"


def test_what_was_dropped_is_neither_taken_nor_put_back_and_can_be_purged():
    stock = Stock()
    lost, kept = batch(0, 3), batch(1, 2)
    stock.put(lost)
    stock.put(kept)
    lost.process_queue.drop()
    stock.put_back(lost)
    assert stock.count == 5
    stock.purge()
    assert (stock.count, stock.take(), stock.take()) == (2, kept, None)
    stock.put(lost)
    assert (stock.take(), stock.count) == (None, 0)


def test_every_waiting_thread_gets_something_and_none_is_forgotten():
    stock, taken = Stock(), []

    def work() -> None:
        while not stock.closed:
            waiter = stock.wait()
            if waiter is not None:
                waiter.result(30)
            if one := stock.take():
                taken.append(one)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    batches = [batch() for _ in range(500)]
    for one in batches:
        stock.put(one)
    while len(taken) < 500:
        threads[0].join(0.001)
    stock.close()
    for thread in threads:
        thread.join(30)
    assert {id(one) for one in taken} == {id(one) for one in batches}
    stock.put(batch())
    assert (stock.take(), stock.wait(), stock.count) == (None, None, 0)


def test_who_was_woken_and_gives_up_wakes_the_next():
    stock = Stock()
    first, second = stock.wait(), stock.wait()
    assert first is not None
    assert second is not None
    stock.put(batch())
    assert first.done()
    assert not second.done()
    stock.give_up(first)
    assert second.done()
    third = Stock().wait()
    assert third is not None
    stock.give_up(third)
    assert third.cancelled()
