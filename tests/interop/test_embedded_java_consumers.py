"""Java's consumers on an embedded broker, those of 5.5.0 and of 4.9.7: push, orderly, broadcasting, pop, lite pull.

The broker's time stands still, so retries come when a test lets their time pass, and at no other moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from rocketstream.broker.names import dlq_topic, retry_topic
from rocketstream.message import MessageQueue
from rocketstream.remoting.io_thread import IoThread
from rocketstream.testing.plugin import EMBEDDED, VERSIONS, require_real
from rocketstream.wire.bodies.assignment import SetMessageRequestModeRequestBody
from rocketstream.wire.codes import MessageRequestMode, RequestCode
from tests.bare_client import BareClient, eventually
from tests.contract.clusters import require_target
from tests.interop.embedded_java import TRIES, Stage, staged
from tests.interop.java_peer import JavaPeerError

BROKER = "broker-a"


@pytest.fixture(scope="module", params=VERSIONS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    require_target(request, EMBEDDED)
    require_real(request.param)
    with staged(request.param) as stage:
        yield stage


def test_failures_come_again_and_then_are_dead_letters(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java, began = stage.java, stage.now
    java.create_topic(unique_topic, queues=2)
    (good, once, always) = java.produce(
        unique_topic, [b"good", b"once", b"always"], tags="t", keys="ключ", properties={"größe": "七"}, flag=7
    )
    third, fourth = stage.delayed(3), stage.delayed(4)
    consuming = java.start_consuming(
        unique_group, unique_topic, count=6, failures={"once": 1, "always": 99}, max_reconsume_times=2, expression="t"
    )
    first_again = stage.after_delay(3, 2, third)
    second_again = stage.after_delay(4, 1, fourth)
    heard = defaultdict(list)
    for message in consuming.result(60):
        heard[message.message_id].append(message)

    assert set(heard) == {good.message_id, once.message_id, always.message_id}
    assert [message.reconsume_times for message in heard[good.message_id]] == [0]
    assert [message.reconsume_times for message in heard[once.message_id]] == [0, 1]
    assert [message.reconsume_times for message in heard[always.message_id]] == [0, 1, 2]
    assert [message.store_timestamp for message in heard[always.message_id]] == [began, first_again, second_again]
    (original, *again) = heard[always.message_id]
    for number, message in enumerate(again):
        assert message.topic == unique_topic, "Java shows where it came from"
        assert (message.body, message.tags, message.keys, message.flag) == (b"always", "t", "ключ", 7)
        assert message.properties["größe"] == "七"
        assert message.properties["RETRY_TOPIC"] == unique_topic
        assert message.properties["ORIGIN_MESSAGE_ID"] == original.offset_message_id
        assert message.properties["DELAY"] == str(3 + number)
        assert (message.born_timestamp, message.born_host) == (original.born_timestamp, original.born_host)
    assert len(stage.stored(retry_topic(unique_group))) == 3

    (dead,) = java.consume(f"{unique_group}-dead", dlq_topic(unique_group), count=1)
    assert (dead.topic, dead.queue_id, dead.queue_offset) == (dlq_topic(unique_group), 0, 0)
    assert (dead.body, dead.tags, dead.keys, dead.flag) == (b"always", "t", "ключ", 7)
    assert (dead.reconsume_times, dead.store_timestamp, dead.message_id) == (3, second_again, always.message_id)
    assert dead.properties["RETRY_TOPIC"] == unique_topic
    assert dead.properties["ORIGIN_MESSAGE_ID"] == original.offset_message_id
    assert stage.committed(unique_group, unique_topic) == {queue: stage.count(unique_topic, queue) for queue in (0, 1)}


def test_a_listener_says_when_it_wants_it_again(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java, level = stage.java, 17
    java.create_topic(unique_topic, queues=1)
    java.produce(unique_topic, [b"later"])
    before = stage.delayed(level)
    consuming = java.start_consuming(
        unique_group, unique_topic, count=2, failures={"later": 1}, failure_level=level, timeout=60
    )
    again = stage.after_delay(level, 1, before)
    assert [message.store_timestamp for message in consuming.result(60)][1] == again


def test_a_listener_says_never(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java = stage.java
    java.create_topic(unique_topic, queues=1)
    java.produce(unique_topic, [b"never"])
    (heard,) = java.consume(unique_group, unique_topic, count=1, failures={"never": 1}, failure_level=-1)
    (dead,) = stage.stored(dlq_topic(unique_group))
    assert (dead.body, dead.reconsume_times) == (b"never", 1)
    assert dead.message_id == heard.message_id
    assert stage.stored(retry_topic(unique_group)) == []


def test_orderly(stage: Stage, unique_topic: str, unique_group: str) -> None:
    """Each key in its order, and a failure holds up its queue, no other."""
    java = stage.java
    java.create_topic(unique_topic, queues=4)
    keys = ["订单", "заказ", "🚀", "plain"]
    sent = defaultdict(list)
    for number in range(5):
        for key in keys:
            body = f"{key} {number}"
            (receipt,) = java.produce(unique_topic, [body.encode()], sharding_key=key)
            sent[receipt.queue_id].append(body)
    failing = "заказ 2"
    heard = defaultdict(list)
    for message in java.consume(
        unique_group, unique_topic, count=22, orderly=True, failures={failing: 2}, suspend_millis=10
    ):
        heard[message.queue_id].append((message.body.decode(), message.reconsume_times))
    for queue, bodies in sent.items():
        expected = [(body, times) for body in bodies for times in (range(3) if body == failing else range(1))]
        assert heard[queue] == expected
    assert set(heard) == set(sent)
    assert stage.committed(unique_group, unique_topic) == {queue: len(bodies) for queue, bodies in sent.items()}
    assert stage.broker.run(lambda node: node.store.queues(retry_topic(unique_group))) == []


def test_an_orderly_failure_becomes_a_dead_letter(stage: Stage, unique_topic: str, unique_group: str) -> None:
    """After its tries, Java sends it to the retry topic itself.

    That of 5.5.0 says that it was tried once too often; that of 4.9.7 does not, but its group has locks.
    """
    java = stage.java
    java.create_topic(unique_topic, queues=1)
    (bad, _) = java.produce(unique_topic, [b"bad", b"next"], tags="t", keys="k", properties={"größe": "七"})
    heard = java.consume(
        unique_group,
        unique_topic,
        count=4,
        orderly=True,
        failures={"bad": 99},
        suspend_millis=10,
        max_reconsume_times=2,
    )
    assert [(message.body, message.reconsume_times) for message in heard] == [
        (b"bad", 0),
        (b"bad", 1),
        (b"bad", 2),
        (b"next", 0),
    ]
    (dead,) = java.consume(f"{unique_group}-dead", dlq_topic(unique_group), count=1)
    assert (dead.body, dead.tags, dead.keys, dead.properties["größe"]) == (b"bad", "t", "k", "七")
    assert dead.reconsume_times == (3 if java.version.startswith("5.") else 2)
    assert dead.store_timestamp == stage.now
    assert dead.properties["ORIGIN_MESSAGE_ID"] == bad.message_id
    assert dead.properties["RETRY_TOPIC"] == unique_topic
    assert stage.stored(retry_topic(unique_group)) == []


def test_tags_and_sql(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java = stage.java
    java.create_topic(unique_topic, queues=2)
    for number in range(8):
        region = {"region": "größe" if number % 2 else "北京"}
        java.produce(
            unique_topic,
            [b"%d" % number],
            tags="ab标签c"[number % 5],
            properties={"amount": str(number * 50), **region},
        )
    java.produce(unique_topic, [b"plain"])
    cases = {
        "a || 标": ({0, 2, 5, 7}, False),
        "amount > 100 AND amount <= 200": ({3, 4}, True),
        "region = '北京' OR amount BETWEEN 300 AND 350": ({0, 2, 4, 6, 7}, True),
        "region IN ('größe', 'x') AND NOT (amount = 50)": ({3, 5, 7}, True),
        "TAGS IS NOT NULL AND amount < 100": ({0, 1}, True),
        "region IS NULL": ({"plain"}, True),
    }
    pushing = {
        expression: java.start_consuming(
            f"{unique_group}-{number}", unique_topic, count=len(wanted), expression=expression, sql=sql
        )
        for number, (expression, (wanted, sql)) in enumerate(cases.items())
    }
    for number, (expression, (wanted, sql)) in enumerate(cases.items()):
        expected = sorted(map(str, wanted))
        assert sorted(message.body.decode() for message in pushing[expression].result(60)) == expected, expression
        if number < 2:
            pulled = java.lite_pull(
                f"{unique_group}-{number}-lite", unique_topic, count=len(wanted), expression=expression, sql=sql
            )
            assert sorted(message.body.decode() for message in pulled) == expected, expression


def test_an_sql_expression_that_is_none(stage: Stage, unique_topic: str, unique_group: str) -> None:
    """A consumer that is refused says so, and what the broker says."""
    stage.java.create_topic(unique_topic, queues=1)
    with pytest.raises(JavaPeerError, match=r"CODE: 23  DESC: .*\(in 'amount > '\)"):
        stage.java.consume(unique_group, unique_topic, count=1, expression="amount > ", sql=True, timeout=2)


def test_lite_pull(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java = stage.java
    java.create_topic(unique_topic, queues=2)
    sent = java.produce(unique_topic, [b"%d" % number for number in range(10)], tags="t", keys="k", flag=7)
    first = java.lite_pull(unique_group, unique_topic, count=10)
    assert sorted(message.body for message in first) == [b"%d" % number for number in range(10)]
    by_id = {message.message_id: message for message in first}
    for receipt in sent:
        message = by_id[receipt.message_id]
        assert (message.broker_name, message.queue_id, message.queue_offset) == (
            BROKER,
            receipt.queue_id,
            receipt.queue_offset,
        )
        assert (message.tags, message.keys, message.flag) == ("t", "k", 7)
        assert message.offset_message_id == receipt.offset_message_id
    assert stage.committed(unique_group, unique_topic) == {0: 5, 1: 5}

    java.produce(unique_topic, [b"more"])
    assert [message.body for message in java.lite_pull(unique_group, unique_topic, count=1)] == [b"more"]

    read = java.lite_read(f"{unique_group}-reader", unique_topic, count=5, offset=3)
    assert sorted((message.queue_id, message.queue_offset) for message in read) == sorted(
        (queue, offset) for queue in (0, 1) for offset in range(3, stage.count(unique_topic, queue))
    )


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_a_consumer_goes_on_where_it_was(stage: Stage, unique_topic: str, unique_group: str, orderly: bool) -> None:
    java = stage.java
    java.create_topic(unique_topic, queues=3)
    for life in range(3):
        bodies = [b"%d/%d" % (life, number) for number in range(7)]
        java.produce(unique_topic, bodies)
        heard = java.consume(unique_group, unique_topic, count=7, orderly=orderly)
        assert sorted(message.body for message in heard) == bodies
        assert stage.committed(unique_group, unique_topic) == {
            queue: stage.count(unique_topic, queue) for queue in range(3)
        }


def test_broadcasting(stage: Stage, unique_topic: str, unique_group: str) -> None:
    """Everybody gets everything, keeps its offsets itself, and goes on there."""
    java = stage.java
    java.create_topic(unique_topic, queues=2)
    java.produce(unique_topic, [b"%d" % number for number in range(6)])
    how = {"broadcasting": True}
    both = [
        java.start_consuming(unique_group, unique_topic, count=6, instance=f"{unique_group}-{number}", **how)
        for number in (1, 2)
    ]
    for consuming in both:
        assert sorted(message.body for message in consuming.result(60)) == [b"%d" % number for number in range(6)]
    assert stage.committed(unique_group, unique_topic) == {}

    java.produce(unique_topic, [b"new 1", b"new 2"])
    heard = java.consume(unique_group, unique_topic, count=2, instance=f"{unique_group}-1", **how)
    assert sorted(message.body for message in heard) == [b"new 1", b"new 2"]
    assert stage.committed(unique_group, unique_topic) == {}


def test_members_share_and_hand_over(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java = stage.java
    java.create_topic(unique_topic, queues=4)
    queues = [MessageQueue(unique_topic, BROKER, number) for number in range(4)]
    members = [java.start_member(f"{unique_group}-{name}", unique_group, unique_topic, "AVG") for name in "ab"]
    eventually(lambda: [len(member.assignment) for member in members] == [2, 2])
    assert sorted(queue for member in members for queue in member.assignment) == queues
    for queue in queues:
        java.produce(unique_topic, [b"1/%d" % queue.queue_id], queue=(BROKER, queue.queue_id))
    expected = [[f"1/{queue.queue_id}" for queue in member.assignment] for member in members]
    eventually(lambda: [sorted(member.received) for member in members] == expected)

    members[0].shutdown()
    eventually(lambda: list(members[1].assignment) == queues)
    for queue in queues:
        java.produce(unique_topic, [b"2/%d" % queue.queue_id], queue=(BROKER, queue.queue_id))
    eventually(lambda: sorted(members[1].received)[-4:] == ["2/0", "2/1", "2/2", "2/3"])
    assert len(members[0].received + members[1].received) == 8, "nothing came twice"
    members[1].shutdown()
    eventually(lambda: stage.committed(unique_group, unique_topic) == dict.fromkeys(range(4), 2))


def test_pop(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java = stage.java
    if java.version.startswith("4."):
        pytest.skip("the client of RocketMQ 4 does not pop")
    java.create_topic(unique_topic, queues=4)
    body = SetMessageRequestModeRequestBody(
        topic=unique_topic, consumer_group=unique_group, mode=MessageRequestMode.POP, pop_share_queue_num=0
    )
    client = BareClient(stage.broker.address, IoThread.shared())
    try:
        client.ask(stage.broker.broker_address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.encode())
    finally:
        client.close()
    sent = java.produce(unique_topic, [b"%d" % number for number in range(20)], tags="t", keys="k", flag=7)
    consuming = java.start_consuming(
        unique_group, unique_topic, count=21, failures={"7": 1}, broker_rebalance=True, timeout=60
    )
    # Java wants what failed again in ten seconds; everything else is acknowledged.
    # (Two leases of a message must have begun at different times: a millisecond, where time stands still.)
    due = stage.now + 10_001
    eventually(lambda: stage.leases() == [(1, due)], TRIES)
    assert stage.stored(f"%RETRY%{unique_group}_{unique_topic}") == []
    stage.advance(10)
    assert stage.leases() == [(1, due)]
    stage.advance(0.001)
    heard = consuming.result(90)

    times = defaultdict(list)
    for message in heard:
        assert message.properties["POP_CK"]
        assert (message.topic, message.tags, message.keys, message.flag) == (unique_topic, "t", "k", 7)
        times[message.body].append(message.reconsume_times)
    assert times == {b"%d" % number: [0, 1] if number == 7 else [0] for number in range(20)}
    assert {message.message_id for message in heard} == {receipt.message_id for receipt in sent}
    eventually(lambda: stage.leases() == [])
    (again,) = stage.stored(f"%RETRY%{unique_group}_{unique_topic}")
    assert (again.body, again.reconsume_times, again.store_timestamp) == (b"7", 1, due)
