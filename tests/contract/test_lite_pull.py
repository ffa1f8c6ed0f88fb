"""The lite pull consumer on the real brokers: subscribed, by hand, moved, paused, shared with others, awaited."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from rocketstream import LitePullConsumer, Message, MessageModel, ReceivedMessage, Sql, StartFrom, aio
from rocketstream.errors import (
    ClientStateError,
    ConfigurationError,
    OffsetOutOfRangeError,
    QueueNotAssignedError,
    RocketStreamError,
)
from rocketstream.testing.cluster_proxy import ClusterProxy
from tests.bare_client import eventually
from tests.contract.consuming import committed, send
from tests.contract.test_push_consumer import ask_for_the_truth

QUEUES = 4
WAIT = 30.0


@pytest.fixture
def orders(client: Any, broker: str, unique_topic: str) -> str:
    """A topic with four queues."""
    client.create_topic(broker, unique_topic, queues=QUEUES)
    return unique_topic


@pytest.fixture
def pull(rocketmq_cluster: Any, unique_group: str) -> Iterator[Callable[..., LitePullConsumer]]:
    """Start consumers of the test's group: `pull(topic or {topic: expression} or None, **settings)`."""
    with ExitStack() as stack:

        def pull(topics: Any = None, *, group: str = unique_group, **settings: Any) -> LitePullConsumer:
            address = settings.pop("name_servers", rocketmq_cluster.name_server_address)
            puller = LitePullConsumer(group, address, **{"start_from": StartFrom.FIRST, **settings})
            for topic, expression in ({topics: "*"} if isinstance(topics, str) else topics or {}).items():
                puller.subscribe(topic, expression)
            return stack.enter_context(puller)

        yield pull


def poll_until(puller: LitePullConsumer, count: int) -> list[ReceivedMessage]:
    """Poll until there were so many messages."""
    polled: list[ReceivedMessage] = []
    deadline = time.monotonic() + WAIT
    while len(polled) < count and time.monotonic() < deadline:
        polled += puller.poll(0.5)
    assert len(polled) >= count, f"polled {[message.body for message in polled]}"
    return polled


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


@pytest.mark.feature("lite-pull/subscribe", "lite-pull/commit", "lite-pull/operators")
def test_a_group_is_polled_committed_and_goes_on(pull, sender, orders, client, admin, unique_group):
    receipts = {sender.send(Message(orders, b"%d" % n, tags="t", keys=f"k{n}")).message_id for n in range(20)}
    puller = pull(orders, auto_commit=False)
    assert puller.assignment == tuple(client.queue(orders, n) for n in range(QUEUES))
    messages = poll_until(puller, 20)
    assert {message.message_id for message in messages} == receipts
    assert {(message.topic, message.tags) for message in messages} == {(orders, "t")}
    for queue in puller.assignment:
        mine = [message.queue_offset for message in messages if message.queue == queue]
        assert mine == list(range(len(mine))), "of each queue in order"
    assert puller.poll(0) == []
    (connection,) = admin.consumer_connections(unique_group).members
    assert connection.client_id == puller.client_id
    assert admin.consumer_connections(unique_group).consume_type == "CONSUME_ACTIVELY"

    one = client.queue(orders, 0)
    assert puller.committed(one) in (None, 0), "young queues begin at 0, say brokers"
    puller.commit({one: 2})
    assert (puller.committed(one), committed(admin, unique_group, orders)[0]) == (2, 2)
    puller.commit([one])
    assert puller.committed(one) == 5
    puller.commit()
    assert sum(committed(admin, unique_group, orders).values()) == 20
    puller.shutdown()

    again = pull(orders)  # commits by itself
    sender.send(Message(orders, b"after"))
    assert bodies(poll_until(again, 1)) == [b"after"]
    again.shutdown()
    assert sum(committed(admin, unique_group, orders).values()) == 21


@pytest.mark.feature("lite-pull/commit")
def test_what_was_polled_is_committed_by_itself_once_there_is_another_poll(
    pull, sender, topic, client, admin, unique_group, rocketmq_cluster
):
    queue = client.queue(topic)
    puller = pull(topic, pull_batch_size=2, auto_commit_interval=0.2)
    send(sender, queue, b"0", b"1", b"2")
    poll_until(puller, 3)
    puller.poll(0)
    eventually(lambda: committed(admin, unique_group, topic) == {0: 3})
    puller.shutdown()
    send(sender, queue, b"3", b"4")
    failing = LitePullConsumer(unique_group, rocketmq_cluster.name_server_address, pull_batch_size=1)
    failing.subscribe(topic)

    def fail() -> None:
        with failing:
            poll_until(failing, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert committed(admin, unique_group, topic) == {0: 4}, "what a program failed with comes again"


@pytest.mark.feature("lite-pull/filter")
def test_filters(pull, sender, topic, client, unique_group):
    queue = client.queue(topic)
    for n, tags in enumerate(("Aa", "BB", "other", None, "Aa")):  # the first two have the same hash code
        send(sender, queue, b"%d" % n, tags=tags, properties={"amount": str(n)})
    send(sender, queue, b"last", tags="C", properties={"amount": "99"})
    by_tag = pull({topic: "Aa || C"})
    by_sql = pull({topic: Sql("amount BETWEEN 1 AND 3 OR amount > 90")}, group=f"{unique_group}-sql")
    by_hand = pull(group=f"{unique_group}-hand")
    by_hand.assign([queue], Sql("amount > 3"))
    assert bodies(poll_until(by_tag, 3)) == [b"0", b"4", b"last"]
    assert bodies(poll_until(by_sql, 4)) == [b"1", b"2", b"3", b"last"]
    assert bodies(poll_until(by_hand, 2)) == [b"4", b"last"]
    with pytest.raises(RocketStreamError):
        by_hand.assign([queue], Sql("amount >"))


@pytest.mark.feature("lite-pull/assign", "lite-pull/seek")
def test_queues_by_hand_and_seeks(pull, sender, orders, client, admin, unique_group):
    queues = [client.queue(orders, n) for n in range(QUEUES)]
    for queue in queues:
        send(sender, queue, *(b"%d-%d" % (queue.queue_id, n) for n in range(4)))
    time.sleep(0.05)  # the broker's clock is to say that what follows is younger
    moment = datetime.now(UTC)
    time.sleep(0.05)
    one = queues[1]
    send(sender, one, b"1-4", b"1-5")
    eventually(lambda: client.max_offset(orders, 1) == 6)

    puller = pull(auto_commit=False)
    assert puller.fetch_queues(orders) == tuple(queues)
    with pytest.raises(ConfigurationError, match="has no queue 99 on broker"):
        puller.assign([one._replace(queue_id=99)])
    puller.assign(queues[1:3])
    assert puller.assignment == tuple(queues[1:3])
    assert {message.queue_id for message in poll_until(puller, 10)} == {1, 2}

    puller.seek(one, 3)
    assert [m.queue_offset for m in poll_until(puller, 3)] == [3, 4, 5]
    puller.seek_to_begin(one)
    assert [m.queue_offset for m in poll_until(puller, 6)] == list(range(6))
    offset = puller.offset_for_timestamp(one, moment)
    assert offset in (3, 4), "4.9.7 is asked for a little earlier, so that it leaves nothing out"
    puller.seek_to_timestamp(one, int(moment.timestamp() * 1000))
    assert poll_until(puller, 6 - offset)[0].queue_offset == offset
    puller.seek_to_end(one)
    assert puller.poll(0.2) == []
    send(sender, one, b"1-6")
    assert bodies(poll_until(puller, 1)) == [b"1-6"]
    with pytest.raises(OffsetOutOfRangeError, match="has no offset 8: its messages are 0 to 7, the end"):
        puller.seek(one, 8)
    with pytest.raises(QueueNotAssignedError):
        puller.seek(queues[0], 0)
    with pytest.raises(ClientStateError, match="cannot be mixed"):
        puller.subscribe(orders)
    puller.assign([queues[3]])
    assert {message.queue_id for message in poll_until(puller, 4)} == {3}
    puller.assign([])
    assert puller.assignment == ()
    assert set(committed(admin, unique_group, orders).values()) <= {0}


@pytest.mark.feature("lite-pull/pause")
def test_pause_and_resume(pull, sender, orders, client):
    puller = pull(orders)
    paused, other = client.queue(orders, 0), client.queue(orders, 1)
    puller.pause([paused])
    send(sender, paused, b"0", b"1")
    send(sender, other, b"2")
    assert bodies(poll_until(puller, 1)) == [b"2"]
    assert puller.poll(0.3) == []
    status = {one.queue: one.waits_for for one in puller.status().queues}
    assert (status[paused], status[other]) == ("the queue is paused", None)
    puller.resume([paused])
    assert bodies(poll_until(puller, 2)) == [b"0", b"1"]
    puller.pause()
    send(sender, other, b"3")
    assert puller.poll(0.3) == []
    puller.resume()
    assert bodies(poll_until(puller, 1)) == [b"3"]


@pytest.mark.feature("lite-pull/start-from")
def test_a_new_group_begins_where_it_is_told(pull, sender, topic, client, unique_group, rocketmq_cluster, configure):
    queue = client.queue(topic)
    send(sender, queue, b"0", b"1")
    eventually(lambda: client.max_offset(topic) == 2)
    time.sleep(0.05)
    moment = datetime.now(UTC)
    time.sleep(0.05)
    send(sender, queue, b"2")
    eventually(lambda: client.max_offset(topic) == 3)
    configure(accessMessageInMemoryMaxRatio=0)  # for 4.9.7, which knows no `setZeroIfNotFound`
    with ClusterProxy(rocketmq_cluster.name_server_address, on_frame=ask_for_the_truth) as proxy:
        starts = {"first": StartFrom.FIRST, "last": StartFrom.LAST, "at": StartFrom.at(moment)}
        pullers = {
            name: pull(topic, group=f"{unique_group}-{name}", start_from=start, name_servers=proxy.name_server_address)
            for name, start in starts.items()
        }
        send(sender, queue, b"3")
        assert bodies(poll_until(pullers["first"], 4)) == [b"0", b"1", b"2", b"3"]
        assert bodies(poll_until(pullers["last"], 1)) == [b"3"]
        at = poll_until(pullers["at"], 2)
        assert bodies(at + pullers["at"].poll(0.2))[-2:] == [b"2", b"3"]
        for puller in pullers.values():
            puller.shutdown()


@pytest.mark.feature("lite-pull/share")
def test_members_share_the_queues_and_go_on_where_another_stopped(pull, sender, orders, client, admin, unique_group):
    first = pull(orders)
    seen: list[bytes] = []
    for n in range(40):
        sender.send(Message(orders, b"%d" % n))
    seen += bodies(poll_until(first, 40))
    assert first.poll(0) == []  # it has finished them all: what it had not, would come again
    first.commit()  # a busy member may learn too late that it has to give queues away
    second = pull(orders)
    eventually(lambda: len(first.assignment) == len(second.assignment) == QUEUES // 2, 3000)
    assert not set(first.assignment) & set(second.assignment)
    for n in range(40, 80):
        sender.send(Message(orders, b"%d" % n))
    halves = [poll_until(puller, 20) for puller in (first, second)]
    for half in halves:
        seen += [message.body for message in half]
    assert sorted(seen, key=int) == [b"%d" % n for n in range(80)], "each once: the second began where the first was"
    first.shutdown()
    eventually(lambda: len(second.assignment) == QUEUES, 3000)
    for n in range(80, 100):
        sender.send(Message(orders, b"%d" % n))
    assert bodies(poll_until(second, 20)) == sorted(b"%d" % n for n in range(80, 100))
    second.shutdown()
    assert sum(committed(admin, unique_group, orders).values()) == 100


@pytest.mark.feature("lite-pull/broadcasting")
def test_broadcasting(pull, sender, orders, tmp_path):
    settings = {"model": MessageModel.BROADCASTING, "local_offset_dir": tmp_path, "auto_commit_interval": 0.2}
    one, other = (pull(orders, instance_name=name, **settings) for name in ("one", "other"))
    assert one.assignment == other.assignment
    for n in range(8):
        sender.send(Message(orders, b"%d" % n))
    assert bodies(poll_until(one, 8)) == bodies(poll_until(other, 8)) == [b"%d" % n for n in range(8)]
    one.shutdown()
    again = pull(orders, instance_name="one", **settings)
    sender.send(Message(orders, b"after"))
    assert bodies(poll_until(again, 1)) == [b"after"]


@pytest.mark.feature("lite-pull/outage")
def test_polls_go_on_after_an_outage(pull, sender, topic, client, rocketmq_cluster):
    queue = client.queue(topic)
    with ClusterProxy(rocketmq_cluster.name_server_address) as proxy:
        puller = pull(topic, name_servers=proxy.name_server_address)
        send(sender, queue, b"0")
        assert bodies(poll_until(puller, 1)) == [b"0"]
        (broker,) = proxy.brokers.values()
        broker.refuse()
        broker.cut()
        send(sender, queue, b"1")
        assert puller.poll(0.2) == []
        broker.refuse(False)
        assert bodies(poll_until(puller, 1)) == [b"1"]
        puller.shutdown()


@pytest.mark.feature("lite-pull/subscribe")
def test_many_threads_and_loops(pull, sender, orders):
    puller = pull(orders)
    seen: list[bytes] = []

    def loop() -> None:
        for message in puller:  # until the end
            seen.append(message.body)

    def polls() -> None:
        while puller.state.value == "RUNNING":
            try:
                seen.extend(message.body for message in puller.poll(0.1))
            except ClientStateError:
                return

    threads = [threading.Thread(target=run) for run in (loop, loop, polls, polls)]
    for thread in threads:
        thread.start()
    sender.send_batch([Message(orders, b"%d" % n) for n in range(200)])
    eventually(lambda: len(seen) == 200)
    puller.shutdown()
    for thread in threads:
        thread.join(10)
    assert sorted(seen, key=int) == [b"%d" % n for n in range(200)]


@pytest.mark.feature("lite-pull/asyncio")
def test_with_coroutines(rocketmq_cluster, sender, orders, client, admin, unique_group):
    queues = [client.queue(orders, n) for n in range(QUEUES)]

    async def consume() -> None:
        puller = aio.LitePullConsumer(
            unique_group, rocketmq_cluster.name_server_address, start_from=StartFrom.FIRST, auto_commit=False
        )
        await puller.subscribe(orders)
        async with puller:
            assert await puller.assignment == tuple(queues)
            waiting = asyncio.ensure_future(puller.poll(60))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            for n in range(20):
                await asyncio.to_thread(sender.send, Message(orders, b"%d" % n))
            seen = []
            async for message in puller:
                seen.append(message.body)
                if len(seen) == 10:
                    break
            while len(seen) < 20:
                seen += [message.body for message in await puller.poll(WAIT)]
            assert sorted(seen, key=int) == [b"%d" % n for n in range(20)]
            await puller.commit()
            assert sum([await puller.committed(queue) or 0 for queue in queues]) == 20
            await puller.pause(queues[:1])
            await puller.resume()
            await puller.seek_to_begin(queues[0])
            assert (await puller.poll(WAIT))[0].queue_offset == 0
            await puller.seek(queues[0], await puller.offset_for_timestamp(queues[0], datetime.now(UTC)))
            assert (await puller.status()).state == "RUNNING"
            await puller.unsubscribe(orders)
            await puller.assign((await puller.fetch_queues(orders))[:1])
            assert await puller.assignment == (queues[0],)
            await puller.seek_to_end(queues[0])
            assert await puller.poll(0) == []

    asyncio.run(consume())
    assert sum(committed(admin, unique_group, orders).values()) == 20
