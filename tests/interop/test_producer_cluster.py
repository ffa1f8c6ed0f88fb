"""Keys, delays and transactions of our producer as Java sees them, on two brokers that check transactions soon.

The broker's times are made short, and nothing is timed here: that a message was not delivered early is seen from the
time-stamps it carries; that one was not delivered at all, from a later one having arrived.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

from rocketstream import Message, MessageQueue, Producer, ReceivedMessage, SendReceipt, SendStatus, TransactionProducer
from rocketstream.errors import UnsupportedByBrokerError
from rocketstream.producer import TransactionState
from rocketstream.testing import RocketMQCluster
from rocketstream.wire.java import java_string_hash
from tests.bare_client import eventually
from tests.interop.java_peer import JavaPeer

WAIT = 60.0


@pytest.fixture
def producer(cluster: RocketMQCluster, unique_group: str) -> Iterator[Producer]:
    with Producer(f"{unique_group}-p", name_servers=cluster.name_server_address, send_timeout=10.0) as producer:
        yield producer


def sharding_keys() -> list[str]:
    """Texts of all kinds, with positive and negative hash codes and the smallest one there is."""
    alphabets = ("0123456789", "abcXYZ-_ ", "äöüßéñ", "订单已付款中文", "🚀😀🎉", "שלוםабв")
    rng = random.Random(4)
    keys = [
        "".join(rng.choices(alphabet, k=length)) for length in range(1, 21) for alphabet in alphabets for _ in range(2)
    ]
    keys.append("polygenelubricants")
    hashes = [java_string_hash(key) for key in keys]
    assert min(hashes) == -(2**31)
    assert max(hashes) > 0
    assert len(set(keys)) >= 200
    return keys


def test_a_key_has_the_queue_that_java_chooses(peer: JavaPeer, producer: Producer, unique_topic: str) -> None:
    brokers = peer.create_topic(unique_topic, queues=7)
    assert len(brokers) == 2
    keys = sharding_keys()
    theirs = [
        MessageQueue(unique_topic, receipt.broker_name, receipt.queue_id)
        for receipt in peer.produce_by_keys(unique_topic, keys)
    ]
    by_argument = [producer.send(Message(unique_topic, b"x"), sharding_key=key).queue for key in keys]
    by_message = [producer.send(Message(unique_topic, b"x", sharding_key=key)).queue for key in keys]
    assert by_argument == theirs
    assert by_message == theirs
    assert len(set(theirs)) == 14, "every queue was chosen"


def test_java_consumes_each_key_in_order(
    peer: JavaPeer, producer: Producer, unique_topic: str, unique_group: str
) -> None:
    peer.create_topic(unique_topic, queues=4)
    keys = ["订单", "заказ", "🚀", *map(str, range(17))]
    for number in range(10):
        for key in keys:
            producer.send(Message(unique_topic, b"%d" % number, properties={"key": key}), sharding_key=key)

    order: dict[str, list[int]] = defaultdict(list)
    places: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for message in peer.consume(unique_group, unique_topic, count=10 * len(keys), orderly=True):
        order[message.properties["key"]].append(int(message.body))
        places[message.properties["key"]].add((message.broker_name, message.queue_id))
    assert dict(order) == {key: list(range(10)) for key in keys}
    assert all(len(queues) == 1 for queues in places.values())


def test_delay_levels(peer: JavaPeer, producer: Producer, unique_topic: str, unique_group: str) -> None:
    peer.create_topic(unique_topic, queues=2)
    consuming = peer.start_consuming(unique_group, unique_topic, count=4, timeout=WAIT)
    for level in (3, 2, 1, 0):
        message = Message(unique_topic, b"%d" % level, delay_level=level, tags="delayed", properties={"größe": "七"})
        assert producer.send(message).status is SendStatus.OK

    seen = {int(message.body): message for message in consuming.result(WAIT + 30)}
    assert sorted(seen) == [0, 1, 2, 3]
    for level, message in seen.items():
        # Stored in its own topic when its time had come: a level of n is n seconds here.
        assert message.store_timestamp - message.born_timestamp >= 1000 * level
        assert message.consumed_timestamp - message.born_timestamp >= 1000 * level
        assert (message.topic, message.tags, message.properties["größe"]) == (unique_topic, "delayed", "七")
        assert message.properties.get("DELAY") == (str(level) if level else None)


@pytest.mark.slow(11, "waits for timers of some seconds")
def test_timer_messages(
    cluster: RocketMQCluster, peer: JavaPeer, producer: Producer, unique_topic: str, unique_group: str
) -> None:
    """RocketMQ 5 has them. To RocketMQ 4 they must not be sent: it would deliver them at once."""
    brokers = sorted(peer.create_topic(unique_topic, queues=1))
    queue = MessageQueue(unique_topic, brokers[0], 0)
    if cluster.version.startswith("4."):
        timers_are_refused(cluster, peer, producer, queue, unique_group)
    else:
        timers_are_delivered(peer, producer, queue, unique_group)


def timers_are_delivered(peer: JavaPeer, producer: Producer, queue: MessageQueue, group: str) -> None:
    topic = queue.topic
    consuming = peer.start_consuming(group, topic, count=3, timeout=WAIT)
    producer.send(Message(topic, b"at once"), queue=queue)  # the first, for however long the others take to be sent
    producer.send(Message(topic, b"delay", delay=2.5, tags="t"), queue=queue)
    at = round(time.time() * 1000) + 6_000
    recalled = producer.send(Message(topic, b"recalled", deliver_at=at - 1500), queue=queue)
    producer.send(Message(topic, b"deliver_at", deliver_at=at), queue=queue)
    assert recalled.recall_handle
    assert producer.recall(topic, recalled.recall_handle) == recalled.message_id

    seen = {message.body: message for message in consuming.result(WAIT + 30)}
    # The one that was recalled would have come before the last.
    assert set(seen) == {b"at once", b"delay", b"deliver_at"}
    # The broker's wheel turns once a second (timerPrecisionMs), and rounds down.
    assert seen[b"delay"].store_timestamp >= seen[b"delay"].born_timestamp + 2_500 - 1_000
    assert seen[b"deliver_at"].store_timestamp >= at - 1_000
    assert seen[b"delay"].tags == "t"
    assert [seen[body].queue_offset for body in (b"at once", b"delay", b"deliver_at")] == [0, 1, 2]


def timers_are_refused(
    cluster: RocketMQCluster, peer: JavaPeer, producer: Producer, queue: MessageQueue, group: str
) -> None:
    address = cluster.broker(queue.broker_name).address
    for when in ({"delay": 1.5}, {"deliver_at": round(time.time() * 1000) + 60_000}):
        with pytest.raises(UnsupportedByBrokerError, match=f"need RocketMQ 5; .*{address} is 4.9.7: use delay_level"):
            producer.send(Message(queue.topic, b"timer", **when), queue=queue)
    producer.send(Message(queue.topic, b"plain"), queue=queue)
    (message,) = peer.consume(group, queue.topic, count=1)
    assert (message.body, message.queue_offset) == (b"plain", 0), "nothing was stored before"


class Ledger:
    """The local side of transactions: what to say at first, and at each check; and what was asked."""

    def __init__(self) -> None:
        self.executed: list[tuple[bytes, object]] = []
        self.checked: dict[bytes, list[ReceivedMessage]] = defaultdict(list)
        self.threads: set[str] = set()
        self.answers: dict[bytes, Iterator[TransactionState]] = {}

    def execute(self, message: Message, arg: object) -> TransactionState:
        self.executed.append((message.body, arg))
        if isinstance(arg, Exception):
            raise arg
        assert isinstance(arg, TransactionState)
        return arg

    def check(self, message: ReceivedMessage) -> TransactionState:
        self.threads.add(threading.current_thread().name)
        self.checked[message.body].append(message)
        return next(self.answers[message.body])

    def was_asked(self, times: dict[bytes, int]) -> bool:
        return all(len(self.checked.get(body, ())) >= wanted for body, wanted in times.items())


def test_transactions(cluster: RocketMQCluster, peer: JavaPeer, unique_topic: str, unique_group: str) -> None:
    """Committed, rolled back, checked back and committed, rolled back, unknown twice, and a failing execution."""
    commit, rollback, unknown = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
    peer.create_topic(unique_topic, queues=2)
    ledger, receipts = Ledger(), list[SendReceipt]()
    ledger.answers = {
        b"asked, yes": itertools.repeat(commit),
        b"asked, no": itertools.repeat(rollback),
        b"asked twice": itertools.chain([unknown], itertools.repeat(commit)),
        b"failed": itertools.repeat(rollback),
    }
    with TransactionProducer(
        f"{unique_group}-p", name_servers=cluster.name_server_address, execute=ledger.execute, check=ledger.check
    ) as producer:

        def send(body: bytes, arg: object) -> TransactionState | None:
            message = Message(unique_topic, body, tags="tx", keys="ключ", properties={"größe": "七"})
            receipt = producer.send(message, arg)
            assert receipt.status is SendStatus.OK
            receipts.append(receipt)
            return receipt.transaction_state

        # A broker that asks again before it has the last answer commits twice (EndTransactionProcessor).
        consuming = peer.start_consuming(unique_group, unique_topic, count=4, different=True, timeout=WAIT)
        assert send(b"committed", commit) is commit
        assert send(b"rolled back", rollback) is rollback
        assert send(b"asked, yes", unknown) is unknown
        assert send(b"asked, no", unknown) is unknown
        assert send(b"asked twice", unknown) is unknown
        assert send(b"failed", ValueError("the local part failed")) is unknown
        # The last of all: what had to come has come before it, and what had not has had its chance.
        eventually(lambda: ledger.was_asked({b"asked twice": 2, b"asked, yes": 1, b"asked, no": 1, b"failed": 1}), 3000)
        assert send(b"last", commit) is commit
        seen = {message.body: message for message in consuming.result(WAIT + 30)}

    assert set(seen) == {b"committed", b"asked, yes", b"asked twice", b"last"}
    for message in seen.values():
        assert (message.topic, message.tags, message.keys) == (unique_topic, "tx", "ключ")
        assert message.properties["größe"] == "七"
        assert message.sys_flag == 8, "a committed transaction"
    assert not {b"committed", b"rolled back", b"last"} & set(ledger.checked), "nobody asks about what was said"
    for asked in ledger.checked.values():
        for check in asked:
            assert (check.topic, check.tags, check.keys) == (unique_topic, "tx", "ключ")
            assert check.properties["größe"] == "七"
    assert "rocketstream-io" not in ledger.threads, "a check may block"
    # A broker of 4.9 names no transaction in its answer; it is the message's id there as well.
    assert [receipt.transaction_id for receipt in receipts] == [receipt.message_id for receipt in receipts]
