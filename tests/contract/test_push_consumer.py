"""The push consumer on the real brokers: what it gets, from where on, in what portions, and how it is told to stop."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest

from rocketstream import ConsumeResult, Message, Sql, StartFrom
from rocketstream.cluster.client import ClientState
from rocketstream.cluster.names import retry_topic
from rocketstream.errors import BrokerError, TopicRouteNotFoundError
from rocketstream.testing.cluster_proxy import ClusterProxy
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.command import Command
from rocketstream.wire.headers.pull import PullMessageRequestHeader
from tests.bare_client import eventually
from tests.contract.consuming import Heard, committed, new_consumer, send, stored_offset

QUEUES = 4


@pytest.fixture
def orders(client, broker, unique_topic) -> str:
    """A topic with four queues."""
    client.create_topic(broker, unique_topic, queues=QUEUES)
    return unique_topic


@pytest.mark.feature("consume/listeners")
def test_first_messages(consume, heard, sender, orders, client, admin, unique_group):
    receipts = [sender.send(Message(orders, b"%d" % n, tags="t", keys=f"k{n}", flag=n)) for n in range(20)]
    consumer = consume(heard, orders)
    assert consumer.state is ClientState.RUNNING
    assert consumer.assignment == tuple(client.queue(orders, n) for n in range(QUEUES))
    heard.until(20)
    by_id = {delivery.message.message_id: delivery for delivery in heard.deliveries}
    assert len(by_id) == 20
    for number, receipt in enumerate(receipts):
        delivery = by_id[receipt.message_id]
        message = delivery.message
        assert (message.body, message.tags, message.keys, message.flag) == (b"%d" % number, "t", f"k{number}", number)
        assert (message.topic, message.queue, message.queue_offset) == (orders, receipt.queue, receipt.queue_offset)
        assert message.offset_message_id == receipt.offset_message_id
        assert (delivery.context_queue, message.reconsume_times) == (receipt.queue, 0)
    consumer.shutdown()
    assert consumer.state is ClientState.SHUTDOWN_ALREADY
    assert sum(committed(admin, unique_group, orders).values()) == 20
    assert len(heard.deliveries) == 20
    again = consume(heard, orders)
    sender.send(Message(orders, b"after"))
    heard.until_heard(b"after")
    assert len(heard.deliveries) == 21, "a group goes on where it was"
    again.shutdown()


@pytest.mark.feature("filters/tags")
@pytest.mark.behaviour("RES-03")
def test_tags_are_compared_by_broker_and_consumer(consume, heard, sender, topic, client, unique_group):
    queue = client.queue(topic)
    for tags in ("Aa", "BB", "other", None, "Aa"):  # the first two have the same hash code
        send(sender, queue, str(tags).encode(), tags=tags)
    send(sender, queue, b"last", tags="C")
    everything = Heard()
    consume(everything, topic, group=f"{unique_group}-all")
    consume(heard, {topic: "Aa || C"})
    heard.until_heard(b"last")
    everything.until(6)
    assert sorted(heard.bodies) == [b"Aa", b"Aa", b"last"]


@pytest.mark.feature("consume/start")
def test_a_new_group_begins_where_it_is_told(consume, sender, topic, client, unique_group, rocketmq_cluster, configure):
    queue = client.queue(topic)
    send(sender, queue, b"0", b"1")
    eventually(lambda: client.max_offset(topic) == 2)
    time.sleep(0.05)  # the broker's clock is to say that the next one is younger
    moment = datetime.now(UTC)
    time.sleep(0.05)
    send(sender, queue, b"2")
    eventually(lambda: client.max_offset(topic) == 3)

    # Brokers tell a new group that it is at 0 as long as the first message is in memory; then, as in Java, the start
    # position means nothing.
    young = Heard()
    consume(young, topic, group=f"{unique_group}-young", start_from=StartFrom.LAST)
    assert young.until(3) == [b"0", b"1", b"2"]

    configure(accessMessageInMemoryMaxRatio=0)  # for 4.9.7, which knows no such field
    first, last, at = Heard(), Heard(), Heard()
    with ClusterProxy(rocketmq_cluster.name_server_address, on_frame=ask_for_the_truth) as proxy:
        settings = {"name_servers": proxy.name_server_address}
        consume(first, topic, group=f"{unique_group}-first", start_from=StartFrom.FIRST, **settings)
        consume(last, topic, group=f"{unique_group}-last", start_from=StartFrom.LAST, **settings)
        consume(at, topic, group=f"{unique_group}-at", start_from=StartFrom.at(moment), **settings)
        send(sender, queue, b"3")
        for heard in (first, last, at):
            heard.until_heard(b"3")
    assert sorted(first.bodies) == [b"0", b"1", b"2", b"3"]
    assert last.bodies == [b"3"]
    # 4.9.7 is asked for a little earlier, so that it leaves nothing out.
    assert sorted(at.bodies) in ([b"2", b"3"], [b"1", b"2", b"3"])


def ask_for_the_truth(direction: str, command: Command) -> Command:
    """Have a broker say that it has no offset of a group, as it does once the first messages are on the disk only."""
    if direction == "up" and command.code == RequestCode.QUERY_CONSUMER_OFFSET:
        command.fields["setZeroIfNotFound"] = "false"
    return command


@pytest.mark.feature("consume/batches")
def test_a_listener_gets_batches_of_at_most_its_size(consume, heard, sender, topic, client, unique_group):
    sender.send_batch([Message(topic, b"%d" % n) for n in range(100)])
    eventually(lambda: client.max_offset(topic) == 100)
    single = Heard()
    consume(heard, topic, consume_message_batch_max_size=7, pull_batch_size=20)
    consume(single, topic, group=f"{unique_group}-1")
    heard.until(100)
    single.until(100)
    assert {len(call) for call in single.calls} == {1}
    assert max(len(call) for call in heard.calls) == 7
    assert sorted(heard.bodies, key=int) == [b"%d" % n for n in range(100)]
    for call in heard.calls:
        offsets = [message.queue_offset for message in call]
        assert offsets == list(range(offsets[0], offsets[0] + len(call))), "a batch is of neighbours"
        assert offsets[0] // 20 == offsets[-1] // 20, "and of one pull"


@pytest.mark.behaviour("PULL-13")
def test_offsets_travel_with_the_pulls(consume, heard, sender, topic, client, admin, unique_group, rocketmq_cluster):
    with ClusterProxy(rocketmq_cluster.name_server_address, record=True) as proxy:
        line = proxy.broker(rocketmq_cluster.brokers[0].address)
        consumer = consume(heard, topic, name_servers=proxy.name_server_address, persist_offset_interval=3600.0)
        queue = client.queue(topic)
        for number in range(3):
            send(sender, queue, b"%d" % number)
            heard.until(number + 1)
        # The pull after the last answer is under way, or was too soon to know; after one more it cannot be.
        send(sender, queue, b"one more")
        heard.until(4)
        eventually(lambda: committed(admin, unique_group, topic).get(0, 0) >= 3)
        consumer.shutdown()
    pulls = [
        PullMessageRequestHeader.from_fields(frame.command.fields)
        for frame in list(line.recorded)
        if frame.direction == "up" and frame.command is not None and frame.command.code == RequestCode.PULL_MESSAGE
    ]
    ours = [pull for pull in pulls if pull.topic == topic]
    assert ours[0].commit_offset == 0
    assert max(pull.commit_offset for pull in ours) >= 3
    for pull in pulls:
        assert bool(pull.sys_flag & 1) == (pull.commit_offset > 0)
        assert pull.sys_flag & 2, "a push consumer's pull waits at the broker"
    codes = {frame.command.code for frame in list(line.recorded) if frame.command is not None}
    assert RequestCode.PULL_MESSAGE in codes


@pytest.mark.feature("consume/long-poll")
def test_a_waiting_pull_is_answered_when_a_message_comes(consume, heard, sender, topic, client, rocketmq_cluster):
    with ClusterProxy(rocketmq_cluster.name_server_address, record=True) as proxy:
        line = proxy.broker(rocketmq_cluster.brokers[0].address)
        consumer = consume(heard, topic, name_servers=proxy.name_server_address)

        def pulls() -> list[int]:
            commands = [frame.command for frame in list(line.recorded) if frame.direction == "up"]
            return [
                command.opaque
                for command in commands
                if command is not None and command.code == RequestCode.PULL_MESSAGE and command.fields["topic"] == topic
            ]

        eventually(pulls)
        (waiting,) = pulls()
        send(sender, client.queue(topic), b"x")
        heard.until(1)
        answers = [frame.command for frame in list(line.recorded) if frame.direction == "down"]
        (answer,) = (answer for answer in answers if answer is not None and answer.opaque == waiting)
        assert b"x" in answer.body, "the one pull that waited brought it"
        consumer.shutdown()


@pytest.mark.feature("consume/listeners")
def test_handlers_and_async_listeners(consume, sender, client, broker, unique_topic, unique_group, rocketmq_cluster):
    topics = [f"{unique_topic}-{name}" for name in ("plain", "async", "listener")]
    for topic in topics:
        client.create_topic(broker, topic)
    plain, asynchronous, listened = Heard(), Heard(), Heard()
    consumer = new_consumer(unique_group, rocketmq_cluster.name_server_address, None, {})

    @consumer.handler(topics[0], "paid")
    def on_plain(message):
        plain.note([message], message.queue)

    @consumer.handler(topics[1])
    async def on_async(message):
        await asyncio.sleep(0)
        asynchronous.note([message], message.queue)

    async def listen(messages, context):
        await asyncio.sleep(0)
        listened.note(messages, context.queue)
        return ConsumeResult.SUCCESS

    consume(listen, topics[2], group=f"{unique_group}-2", consume_message_batch_max_size=3)
    with consumer:
        for topic in topics:
            for tags in ("paid", "shipped"):
                sender.send(Message(topic, tags.encode(), tags=tags))
        for heard in (asynchronous, listened):
            assert sorted(heard.until(2)) == [b"paid", b"shipped"]
        assert plain.until(1) == [b"paid"]
    assert {delivery.topic for delivery in asynchronous.deliveries} == {topics[1]}


@pytest.mark.feature("consume/suspend")
def test_subscriptions_can_change_while_it_runs(consume, heard, sender, topic, client, broker, unique_group):
    other = f"{topic}-other"
    client.create_topic(broker, other)
    consumer = consume(heard, {topic: "a"}, broker_suspend_max_time=1.0)
    with pytest.raises(TopicRouteNotFoundError, match=f"{topic}-nowhere"):
        consumer.subscribe(f"{topic}-nowhere")
    consumer.subscribe(other)
    eventually(lambda: {queue.topic for queue in consumer.assignment} == {topic, other})
    send(sender, client.queue(other), b"other")
    heard.until_heard(b"other")
    consumer.subscribe(topic, "b")
    send(sender, client.queue(topic), b"b", tags="b")
    heard.until_heard(b"b")
    consumer.unsubscribe(topic)
    eventually(lambda: {queue.topic for queue in consumer.assignment} == {other})
    assert stored_offset(client, unique_group, client.queue(topic)) == 1, "stored when it was given up"
    send(sender, client.queue(topic), b"nobody's", tags="b")
    send(sender, client.queue(other), b"still")
    heard.until_heard(b"still")
    assert sorted(heard.bodies) == [b"b", b"other", b"still"]


@pytest.mark.feature("consume/suspend")
def test_suspend_and_resume(consume, heard, sender, topic, client):
    consumer = consume(heard, topic, broker_suspend_max_time=0.2)
    send(sender, client.queue(topic), b"before")
    heard.until(1)
    consumer.suspend()
    assert consumer.status().paused
    # A pull that waits at the broker still brings what comes; after it there is none.
    eventually(lambda: "suspended" in (waits_for(consumer, topic) or ""), 1500)
    send(sender, client.queue(topic), b"meanwhile")
    eventually(lambda: client.max_offset(topic) == 2)
    eventually(lambda: consumer.status().queues[0].last_pull_ago < 0.5)
    assert heard.bodies == [b"before"]
    consumer.resume()
    assert heard.until(2) == [b"before", b"meanwhile"]


def waits_for(consumer, topic: str) -> str | None:
    (queue,) = (queue for queue in consumer.status().queues if queue.queue.topic == topic)
    return queue.waits_for


@pytest.mark.feature("filters/sql92-off")
@pytest.mark.behaviour("START-09")
def test_a_broker_without_sql_refuses_it_at_the_start(consume, heard, topic, configure, client, unique_group):
    configure(enablePropertyFilter=False)
    consumer = new_consumer(unique_group, client.instance.settings.name_servers, heard, {topic: Sql("amount > 100")})
    with pytest.raises(BrokerError, match="does not support consumer to filter message by SQL92"):
        consumer.start()
    assert consumer.state is ClientState.CREATE_JUST
    consumer.subscribe(topic, "paid")
    with consumer:
        assert consumer.assignment == (client.queue(topic),)
        with pytest.raises(BrokerError, match="SQL92"):
            consumer.subscribe(topic, Sql("amount > 100"))


@pytest.mark.feature("filters/sql92", "filters/sql92-check")
@pytest.mark.behaviour("START-09")
def test_sql_is_checked_and_used(consume, heard, sender, topic, client, unique_group):
    queue = client.queue(topic)
    for amount in ("50", "150"):
        send(sender, queue, amount.encode(), properties={"amount": amount})
    consume(heard, {topic: Sql("amount > 100")})
    assert heard.until(1) == [b"150"]
    wrong = new_consumer(f"{unique_group}-2", client.instance.settings.name_servers, heard, {topic: Sql("amount >")})
    with pytest.raises(BrokerError, match="SUBSCRIPTION_PARSE_FAILED"):
        wrong.start()


def test_a_retry_topic_is_there_with_the_group(consume, heard, topic, client, unique_group):
    consumer = consume(heard, topic)
    names = {queue.queue.topic for queue in consumer.status().queues}
    assert names <= {topic, retry_topic(unique_group)}
    assert consumer.assignment == (client.queue(topic),)
    assert client.wait_for_route(retry_topic(unique_group)).read_queues
