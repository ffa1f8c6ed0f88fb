"""Orderly consumption on the real brokers: order, pauses, commits, and locks that other members see."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest

from rocketstream import MessageModel, MessageQueue, OrderlyResult
from rocketstream.cluster.names import dlq_topic
from rocketstream.wire.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rocketstream.wire.codes import RequestCode
from tests.bare_client import BareClient, eventually
from tests.contract.consuming import Heard, committed, send

QUEUES = 4
NEVER = 3600.0


@pytest.fixture
def orders(client, broker, unique_topic) -> str:
    """A topic with four queues."""
    client.create_topic(broker, unique_topic, queues=QUEUES)
    return unique_topic


def success(messages, context):
    return OrderlyResult.SUCCESS


def try_to_lock(client: BareClient, group: str, *queues: MessageQueue, me: str = "stranger") -> set[MessageQueue]:
    """Which of the locks another member would get; it gives them back at once."""
    address = client.master(queues[0].topic)
    body = LockBatchRequestBody(consumer_group=group, client_id=me, mq_set=frozenset(queues))
    answer = client.ask(address, RequestCode.LOCK_BATCH_MQ, None, body.encode())
    granted = LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
    body = UnlockBatchRequestBody(consumer_group=group, client_id=me, mq_set=granted)
    client.ask(address, RequestCode.UNLOCK_BATCH_MQ, None, body.encode())
    return set(granted)


@pytest.mark.feature("consume/orderly")
def test_each_queue_is_consumed_in_order_one_message_at_a_time(consume, sender, orders, client, admin, unique_group):
    busy: set[int] = set()
    overlaps: list[int] = []

    def one_at_a_time(messages, context):
        if context.queue.queue_id in busy:
            overlaps.append(context.queue.queue_id)
        busy.add(context.queue.queue_id)
        threading.Event().wait(0.0005)
        busy.discard(context.queue.queue_id)
        return OrderlyResult.SUCCESS

    heard = Heard(one_at_a_time)
    consumer = consume(heard, orders, orderly=True)
    for number in range(50):
        for queue_id in range(QUEUES):
            send(sender, client.queue(orders, queue_id), b"%d" % number)
    heard.until(200)
    order: dict[int, list[bytes]] = defaultdict(list)
    for delivery in heard.deliveries:
        order[delivery.message.queue_id].append(delivery.body)
    assert dict(order) == {queue_id: [b"%d" % n for n in range(50)] for queue_id in range(QUEUES)}
    assert overlaps == []
    consumer.shutdown()
    assert committed(admin, unique_group, orders) == dict.fromkeys(range(QUEUES), 50)


@pytest.mark.feature("consume/orderly")
def test_suspend_holds_its_queue_and_no_other(consume, sender, orders, client):
    def answer(messages, context):
        context.suspend_current_queue_time = 0.05
        if messages[0].body == b"bad" and messages[0].reconsume_times < 3:
            return OrderlyResult.SUSPEND
        if messages[0].body == b"raises" and messages[0].reconsume_times < 1:
            raise ValueError("not now")
        return OrderlyResult.SUCCESS

    heard = Heard(answer)
    consume(heard, orders, orderly=True)
    send(sender, client.queue(orders, 0), b"bad", b"next", b"raises", b"last")
    send(sender, client.queue(orders, 1), b"other")
    heard.until(5 + 4)
    mine = [(d.body, d.reconsume_times) for d in heard.deliveries if d.message.queue_id == 0]
    assert mine == [
        *((b"bad", times) for times in range(4)),
        *((b"next", 0), (b"raises", 0), (b"raises", 1), (b"last", 0)),
    ]
    assert heard.bodies.count(b"other") == 1


@pytest.mark.feature("consume/dead-letters")
def test_what_fails_too_often_is_sent_away_and_its_queue_goes_on(consume, sender, topic, client, admin, unique_group):
    def answer(messages, context):
        context.suspend_current_queue_time = 0.01
        return OrderlyResult.SUSPEND if messages[0].body == b"bad" else OrderlyResult.SUCCESS

    heard, patient = Heard(answer), Heard(answer)
    consumer = consume(heard, topic, orderly=True, max_reconsume_times=2)
    without_limit = consume(patient, topic, orderly=True, group=f"{unique_group}-patient")
    send(sender, client.queue(topic), b"bad", b"good")
    heard.until_heard(b"good")
    assert [(d.body, d.reconsume_times) for d in heard.deliveries] == [
        *((b"bad", 0), (b"bad", 1), (b"bad", 2)),
        (b"good", 0),
    ]
    consumer.shutdown()
    assert committed(admin, unique_group, topic) == {0: 2}
    eventually(lambda: [m.body for m in admin.peek(dlq_topic(unique_group), 5)] == [b"bad"])
    patient.until(20)
    assert set(patient.bodies) == {b"bad"}
    without_limit.shutdown()


@pytest.mark.feature("consume/orderly-commit")
@pytest.mark.behaviour("ORD-09")
def test_without_auto_commit_the_listener_says_when(consume, sender, topic, client, admin, unique_group):
    said: list[OrderlyResult] = []
    # Of five messages: two count, the third takes them back; then all three are committed; the fourth is put back once,
    # and comes alone, without what counts already: the fifth.
    script = {
        (b"0", 1): OrderlyResult.SUCCESS,
        (b"1", 1): OrderlyResult.SUCCESS,
        (b"2", 1): OrderlyResult.ROLLBACK,
        (b"0", 2): OrderlyResult.SUCCESS,
        (b"1", 2): OrderlyResult.SUCCESS,
        (b"2", 2): OrderlyResult.COMMIT,
        (b"3", 1): OrderlyResult.SUCCESS,
        (b"4", 1): OrderlyResult.SUSPEND,
        (b"4", 2): OrderlyResult.SUCCESS,
    }
    times: dict[bytes, int] = defaultdict(int)

    def answer(messages, context):
        context.auto_commit = False
        context.suspend_current_queue_time = 0.3
        times[messages[0].body] += 1
        said.append(script[messages[0].body, times[messages[0].body]])
        return said[-1]

    heard = Heard(answer)
    consumer = consume(heard, topic, orderly=True)
    send(sender, client.queue(topic), b"0", b"1", b"2", b"3", b"4")
    heard.until(len(script))
    assert heard.bodies == [b"0", b"1", b"2", b"0", b"1", b"2", b"3", b"4", b"4"]
    times_ms = [delivery.at_ms for delivery in heard.deliveries]
    for answered in (2, 7):
        assert times_ms[answered + 1] - times_ms[answered] >= 290, "a pause after ROLLBACK and after SUSPEND"
    consumer.shutdown()
    assert said == list(script.values())
    assert committed(admin, unique_group, topic) == {0: 3}, "what only counts is not committed"
    rest = Heard(success)
    consume(rest, topic, orderly=True)
    assert rest.until(2) == [b"3", b"4"]


@pytest.mark.feature("consume/orderly")
def test_locks_are_held_at_the_broker_and_given_back(consume, sender, orders, client, unique_group):
    queues = [client.queue(orders, n) for n in range(QUEUES)]
    first, second = Heard(success), Heard(success)
    one = consume(first, orders, orderly=True, instance_name="1", rebalance_interval=NEVER)
    # A broker that is held up for a second has not granted them by then; it is asked again.
    eventually(lambda: set(queues) <= {status.queue for status in one.status().queues if status.locked}, 1500)
    assert try_to_lock(client, unique_group, *queues) == set(), "each is refused to others"
    two = consume(second, orders, orderly=True, instance_name="2", rebalance_interval=NEVER)
    eventually(lambda: (len(one.assignment), len(two.assignment)) == (2, 2), 1500)
    assert try_to_lock(client, unique_group, *queues) == set()
    assert try_to_lock(client, unique_group, *two.assignment, me=one.client_id) == set(), "nor to the last owner"
    two.shutdown()
    eventually(lambda: len(one.assignment) == 4, 1500)
    one.shutdown()
    # At the end they are free. (One that was not given back would be held for at least 40 s more.)
    eventually(lambda: try_to_lock(client, unique_group, *queues) == set(queues), 250)


@pytest.mark.behaviour("REB-07")
def test_a_queue_that_another_has_locked_is_not_pulled(consume, sender, topic, client, unique_group):
    queue, heard = client.queue(topic), Heard(success)
    address = client.master(topic)
    body = LockBatchRequestBody(consumer_group=unique_group, client_id="stranger", mq_set=frozenset([queue]))
    client.ask(address, RequestCode.LOCK_BATCH_MQ, None, body.encode())
    send(sender, queue, b"x")
    consumer = consume(heard, topic, orderly=True)
    assert consumer.assignment == ()
    assert heard.bodies == []
    body = UnlockBatchRequestBody(consumer_group=unique_group, client_id="stranger", mq_set=frozenset([queue]))
    client.ask(address, RequestCode.UNLOCK_BATCH_MQ, None, body.encode())
    assert heard.until(1) == [b"x"]
    assert consumer.assignment == (queue,)


@pytest.mark.behaviour("ORD-13")
def test_broadcasting_in_order_needs_no_locks(consume, sender, orders, client, unique_group, tmp_path):
    queues = [client.queue(orders, n) for n in range(QUEUES)]
    heard = {name: Heard(success) for name in ("one", "two")}
    for name, listener in heard.items():
        consume(
            listener,
            orders,
            orderly=True,
            instance_name=name,
            model=MessageModel.BROADCASTING,
            local_offset_dir=tmp_path,
        )
    assert try_to_lock(client, unique_group, *queues) == set(queues), "nobody has locked them"
    for number in range(20):
        send(sender, queues[number % QUEUES], b"%d" % number)
    for listener in heard.values():
        listener.until(20)
        for queue_id in range(QUEUES):
            mine = [d.body for d in listener.deliveries if d.message.queue_id == queue_id]
            assert mine == [b"%d" % n for n in range(queue_id, 20, QUEUES)]
