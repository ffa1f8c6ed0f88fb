"""The operator's client on the real brokers: what it lists, creates, finds and moves."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime

import pytest

from rocketstream import AdminClient, MessageQueue
from rocketstream.admin.errors import NotFoundError
from rocketstream.admin.values import TopicKind
from rocketstream.errors import (
    BrokerNotFoundError,
    ConfigurationError,
    TopicRouteNotFoundError,
    UnsupportedByBrokerError,
)
from tests.bare_client import BareConsumer, eventually


@pytest.fixture
def group(client, topic, unique_group) -> str:
    """A group that the broker knows and that nobody is in."""
    client.instance.register_consumer(BareConsumer(unique_group, topic))
    client.run(client.instance.heartbeat())
    client.run(client.instance.unregister_consumer(unique_group))
    return unique_group


# --- topics -----------------------------------------------------------------------------------------------------


def test_a_topic_from_its_creation_to_its_end(admin, rocketmq_cluster, unique_topic):
    route = admin.create_topic(unique_topic, queues=3)
    (broker,) = route.brokers
    assert (route.topic, broker.broker_name, broker.read_queues, broker.write_queues) == (
        unique_topic,
        rocketmq_cluster.brokers[0].name,
        3,
        3,
    )
    assert broker.addresses == {0: rocketmq_cluster.brokers[0].address}
    assert broker.permission == "RW"
    assert admin.route(unique_topic) == route

    (listed,) = [topic for topic in admin.topics() if topic.name == unique_topic]
    assert (listed.kind, listed.read_queues, listed.write_queues) == (TopicKind.NORMAL, 3, 3)

    admin.delete_topic(unique_topic)
    assert unique_topic not in [topic.name for topic in admin.topics()]
    with pytest.raises(TopicRouteNotFoundError, match=f"topic '{unique_topic}' has no route at"):
        admin.route(unique_topic)
    with pytest.raises(TopicRouteNotFoundError, match=f"topic '{unique_topic}' has no route at"):
        admin.delete_topic(unique_topic)


def test_creating_a_topic_again_changes_it_only_when_told_to(admin, unique_topic):
    admin.create_topic(unique_topic, queues=4)
    assert admin.create_topic(unique_topic, queues=4).brokers[0].read_queues == 4
    with pytest.raises(
        ConfigurationError, match=r"exists on broker-a with 4 read and 4 write queues.*update=True changes it"
    ):
        admin.create_topic(unique_topic, queues=2)
    assert admin.route(unique_topic).brokers[0].read_queues == 4
    changed = admin.create_topic(unique_topic, read_queues=6, write_queues=5, permission="R", update=True).brokers[0]
    assert (changed.read_queues, changed.write_queues, changed.permission) == (6, 5, "R")


def test_rocketmqs_own_topics_are_told_apart_and_left_alone(admin, rocketmq_cluster):
    kinds = {topic.name: topic.kind for topic in admin.topics()}
    assert kinds["TBW102"] is TopicKind.SYSTEM
    assert kinds[rocketmq_cluster.brokers[0].name] is TopicKind.SYSTEM, "a broker has a topic of its own name"
    with pytest.raises(ConfigurationError, match="topic='TBW102' is RocketMQ's own"):
        admin.delete_topic("TBW102")


def test_what_a_topic_holds(admin, client, topic):
    assert [(one.min_offset, one.max_offset, one.last_store_timestamp) for one in admin.queue_ranges(topic)] == [
        (0, 0, None)
    ]
    client.send(topic, b"1")
    (one,) = admin.queue_ranges(topic)
    assert (one.topic, one.queue_id, one.messages) == (topic, 0, 1)
    assert one.last_store_timestamp == client.pull_all("g", topic)[0].store_timestamp


def test_a_namespace_hides_the_others(admin, rocketmq_cluster, unique_topic):
    with AdminClient(rocketmq_cluster.name_server_address, namespace="spaced") as inside:
        assert inside.create_topic(unique_topic, queues=1).topic == unique_topic
        assert admin.route(f"spaced%{unique_topic}").brokers
        names = [topic.name for topic in inside.topics()]
        assert unique_topic in names
        assert "TBW102" not in names
        inside.delete_topic(unique_topic)
    with pytest.raises(TopicRouteNotFoundError):
        admin.route(f"spaced%{unique_topic}")


# --- reading ----------------------------------------------------------------------------------------------------


@pytest.fixture
def full_topic(admin, client, unique_topic) -> str:
    """Two queues with 50 messages each, bodies 0 to 99 in the order in which they were stored; every tenth is rare."""
    admin.create_topic(unique_topic, queues=2)
    for number in range(100):
        tag = "rare" if number % 10 == 0 else "often"
        client.send(
            unique_topic, b"%d" % number, {"TAGS": tag, "KEYS": f"k{number} all{number % 2}"}, queue_id=number % 2
        )
    return unique_topic


def numbers(messages) -> list[int]:
    return [int(message.body) for message in messages]


def test_peek_shows_the_newest_of_all_queues(admin, full_topic):
    newest = admin.peek(full_topic, 5)
    assert sorted(numbers(newest)) == [95, 96, 97, 98, 99]
    assert [message.store_timestamp for message in newest] == sorted(message.store_timestamp for message in newest)
    assert len(admin.peek(full_topic, 1000)) == 100
    assert {message.topic for message in newest} == {full_topic}


def test_peek_finds_a_rare_tag_further_back(admin, full_topic):
    assert numbers(admin.peek(full_topic, 3, tags="rare")) == [70, 80, 90]
    assert numbers(admin.peek(full_topic, 3, tags="rare", start="earliest")) == [0, 10, 20]
    assert admin.peek(full_topic, 3, tags="rare", queue_id=1) == []
    assert admin.peek(full_topic, 3, tags="rare || never", queue_id=0, scan=4) == [], "it looked at 92 to 98"
    assert numbers(admin.peek(full_topic, 3, tags="rare || never", queue_id=0, scan=5)) == [90]


def test_scan_bounds_the_search_for_a_tag_and_nothing_else(admin, full_topic):
    assert len(admin.peek(full_topic, 80, scan=5)) == 80
    assert len(admin.peek(full_topic, 80, start="earliest", scan=5)) == 80
    stored = admin.peek(full_topic, 1000)
    long_ago = stored[4].store_timestamp
    before = [message for message in stored if message.store_timestamp <= long_ago]
    assert len(before) < 90, "the newest of those are further back than the scan would go"
    assert numbers(admin.peek(full_topic, 2, until=long_ago, scan=5)) == numbers(before)[-2:]


def test_peek_from_a_time_and_from_an_offset(admin, full_topic):
    stored = admin.peek(full_topic, 1000)
    times = [message.store_timestamp for message in stored]
    middle = times[50]
    later = [message.body for message in stored if message.store_timestamp >= middle]
    assert sorted(message.body for message in admin.peek(full_topic, 1000, start=middle)) == sorted(later)
    moment = datetime.fromtimestamp(middle / 1000, UTC)
    assert len(admin.peek(full_topic, 1000, start=moment)) == len(later)
    until = admin.peek(full_topic, 1000, start="earliest", until=middle)
    assert sorted(numbers(until)) == sorted(
        int(message.body) for message in stored if message.store_timestamp <= middle
    )
    assert admin.peek(full_topic, 10, start=times[-1] + 1) == []
    assert admin.peek(full_topic, 10, start="latest") == []
    assert numbers(admin.peek(full_topic, 3, offset=20, queue_id=1)) == [41, 43, 45]
    assert numbers(admin.peek(full_topic, 2, until=times[0] - 1)) == []


def test_reading_on_as_messages_come(admin, client, topic):
    client.send(topic, b"old")
    reader = admin.read(topic, idle=5.0, step=0.1)
    client.send(topic, b"new")
    got = next(messages for messages in reader if messages)
    assert [message.body for message in got] == [b"new"]
    everything = [message.body for part in admin.read(topic, "earliest", idle=0.01) for message in part]
    assert everything == [b"old", b"new"]


def test_messages_are_found_by_key_and_by_both_ids(admin, java_peer, client, topic):
    receipt, _ = java_peer.produce(topic, bodies=[b"one", b"two"], keys="order-1 order-2", tags="t")
    eventually(lambda: len(admin.messages_by_key(topic, "order-2")) == 2)  # the index is written in its own time
    assert [message.body for message in admin.messages_by_key(topic, "order-1")] == [b"one", b"two"]
    assert admin.messages_by_key(topic, "order") == []
    java_peer.produce(topic, bodies=[b"three"], keys="Aa")
    eventually(lambda: len(admin.messages_by_key(topic, "Aa")) == 1)
    assert admin.messages_by_key(topic, "BB") == [], "it has the hash code of Aa, and brokers compare only that"
    stored = admin.messages_by_key(topic, "order-1")[1].store_timestamp
    assert admin.messages_by_key(topic, "order-1", start=stored + 3_600_000, until=stored + 7_200_000) == []

    by_unique_id = admin.message(receipt.message_id, topic)
    by_offset_id = admin.message(receipt.offset_message_id)
    assert by_unique_id.body == by_offset_id.body == b"one"
    assert by_unique_id.message_id == by_offset_id.message_id == receipt.message_id
    assert by_unique_id.queue == by_offset_id.queue == MessageQueue(topic, receipt.broker_name, receipt.queue_id)
    assert admin.message(receipt.offset_message_id, topic).body == b"one"

    with pytest.raises(NotFoundError, match=r"is not the offset id of a broker here.*give its topic too"):
        admin.message(receipt.message_id)
    unknown = "0" * 32
    with pytest.raises(NotFoundError, match=f"no message of topic '{topic}' has the id '{unknown}'"):
        admin.message(unknown, topic)
    with pytest.raises(ConfigurationError, match="'nonsense' is not a message id: 32 hexadecimal digits"):
        admin.message("nonsense")


# --- groups -----------------------------------------------------------------------------------------------------


@pytest.mark.feature("admin/connections", "admin/running-info")
@pytest.mark.slow(11, "Java stores its first offsets after ten seconds")
def test_a_group_at_work(admin, java_peer, rocketmq_cluster, unique_topic, unique_group):
    """A Java consumer: its members, its queues, its lag."""
    admin.create_topic(unique_topic, queues=2)
    java_peer.produce(unique_topic, count=10)
    consumed = java_peer.start_consuming(unique_group, unique_topic, count=11, timeout=60)
    try:
        eventually(lambda: unique_group in [group.group for group in admin.groups(lag=False)])
        eventually(lambda: admin.consumers(unique_group).online)
        there = admin.consumers(unique_group)
        (member,) = there.members
        assert (member.language, member.brokers) == ("JAVA", (rocketmq_cluster.brokers[0].name,))
        assert member.version == rocketmq_cluster.version
        assert (there.model, there.consume_type) == ("CLUSTERING", "CONSUME_PASSIVELY")
        assert {one.topic: one.expression for one in there.subscriptions}[unique_topic] == "*"

        # Of a queue without an offset nothing is told, and so nothing lags; Java stores offsets every five seconds.
        eventually(lambda: [queue.lag for queue in progress_of(admin, unique_group, unique_topic).queues] == [0, 0])
        progress = progress_of(admin, unique_group, unique_topic)
        assert [(queue.queue_id, queue.client_id) for queue in progress.queues] == [
            (0, member.client_id),
            (1, member.client_id),
        ]
        assert sum(queue.broker_offset for queue in progress.queues) == 10
        assert progress.members == 1
        (listed,) = [group for group in admin.groups() if group.group == unique_group]
        assert (listed.members, listed.model, listed.lag) == (1, "CLUSTERING", 0)

        (connected,) = admin.consumer_connections(unique_group).members
        assert (connected.client_id, connected.language, connected.orderly) == (member.client_id, "JAVA", False)
        assert {one.topic: one.expression for one in connected.subscriptions or ()}[unique_topic] == "*"
        info = admin.running_info(unique_group, member.client_id, stack=True)
        assert [queue.queue_id for queue in info.queues if queue.topic == unique_topic] == [0, 1]
        assert "java.lang.Thread.run(" in (info.stack or "")
    finally:
        java_peer.produce(unique_topic, count=1)
        consumed.result(90)

    java_peer.produce(unique_topic, count=4)
    eventually(lambda: not admin.consumers(unique_group).online)
    # A queue learns of them a moment later.
    eventually(lambda: sum(one.broker_offset for one in progress_of(admin, unique_group, unique_topic).queues) == 15)
    offline = progress_of(admin, unique_group, unique_topic)
    # Java's last offset may be lost (seen with 5.5.0), most likely to a pull of its own that carries an older one.
    assert offline.lag == 15 - sum(one.consumer_offset for one in offline.queues)
    assert offline.lag in (4, 5)
    assert offline.members == 0
    assert {queue.client_id for queue in offline.queues} == {None}
    assert json.loads(json.dumps(offline.to_dict()))["lag"] == offline.lag
    (listed,) = [group for group in admin.groups() if group.group == unique_group]
    assert (listed.members, listed.model, listed.lag) == (0, None, offline.lag)


def progress_of(admin, group, topic):
    return admin.consumer_progress(group, topic=topic)


def test_a_group_that_nobody_knows_is_an_error(admin, topic):
    text = r"group 'never-heard-of' does not exist: no broker knows it \(broker-a\)"
    with pytest.raises(NotFoundError, match=text):
        admin.consumer_progress("never-heard-of")
    with pytest.raises(NotFoundError, match=text):
        admin.consumers("never-heard-of")
    with pytest.raises(NotFoundError, match=r"group 'never-heard-of' does not exist on broker 'broker-a'"):
        admin.reset_offset("never-heard-of", topic, "earliest")


@pytest.mark.feature("admin/reset")
def test_a_group_without_members_is_moved(admin, client, topic, group):
    for number in range(10):
        client.send(topic, b"%d" % number)
    stored = [message.store_timestamp for message in client.pull_all("g", topic)]

    def offset() -> int:
        (queue,) = admin.consumer_progress(group, topic=topic).queues
        return queue.consumer_offset

    seen = admin.reset_offset(group, topic, "latest", dry_run=True)
    assert (seen.dry_run, seen.online, [queue.new_offset for queue in seen.queues]) == (True, False, [10])
    assert admin.consumer_progress(group, topic=topic).queues == (), "a dry run leaves no offset"

    assert [queue.new_offset for queue in admin.reset_offset(group, topic, "latest").queues] == [10]
    assert offset() == 10
    (moved,) = admin.reset_offset(group, topic, "earliest").queues
    assert (moved.old_offset, moved.new_offset, offset()) == (10, 0, 0)
    admin.reset_offset(group, topic, offset=7)
    assert offset() == 7
    first_of_its_time = stored.index(stored[5])
    admin.reset_offset(group, topic, datetime.fromtimestamp(stored[5] / 1000, UTC))
    assert offset() == first_of_its_time
    admin.reset_offset(group, topic, stored[-1] + 1)
    assert offset() == 10, "a time after all messages is the end"


@pytest.mark.feature("admin/reset")
@pytest.mark.parametrize("place", ["time", "earliest"])
@pytest.mark.slow(18, "Java stores its first offsets after ten seconds")
def test_a_group_with_members_is_moved(admin, java_peer, topic, unique_group, place):
    """Java consumers get again what lies behind them: with their next pull from 5.x, after 10 s from 4.9."""
    # The fourth has a millisecond of its own: 4.9 goes to any of those with the same time.
    for numbers in ((0, 1, 2), (3,), (4, 5)):
        java_peer.produce(topic, bodies=[b"%d" % number for number in numbers])
        eventually(lambda last=numbers[-1]: len(admin.peek(topic, 6)) == last + 1)
        stored_at = admin.peek(topic, 6)[-1].store_timestamp
        eventually(lambda moment=stored_at: time.time() * 1000 > moment + 1)
    stored = admin.peek(topic, 6)
    again = 6 if place == "earliest" else len([m for m in stored if m.store_timestamp >= stored[3].store_timestamp])
    consumed = java_peer.start_consuming(unique_group, topic, count=6 + again, timeout=60)
    eventually(lambda: unique_group in [group.group for group in admin.groups(lag=False)])
    eventually(lambda: admin.consumer_progress(unique_group, topic=topic).queues)
    eventually(lambda: admin.consumer_progress(unique_group, topic=topic).lag == 0)
    done = admin.reset_offset(unique_group, topic, "earliest" if place == "earliest" else stored[3].store_timestamp)
    assert done.online
    bodies = [int(message.body) for message in consumed.result(90)]
    assert sorted(bodies[:6]) == [0, 1, 2, 3, 4, 5]
    assert set(bodies[6:]) >= set(range(6 - again, 6))


@pytest.mark.rocketmq_versions("5.5.0")
@pytest.mark.slow(18, "Java stores its first offsets after ten seconds")
def test_members_of_a_5_x_broker_go_to_an_offset(admin, java_peer, topic, unique_group):
    java_peer.produce(topic, bodies=[b"%d" % number for number in range(6)])
    consumed = java_peer.start_consuming(unique_group, topic, count=8, timeout=60)
    eventually(lambda: unique_group in [group.group for group in admin.groups(lag=False)])
    eventually(lambda: admin.consumer_progress(unique_group, topic=topic).queues)  # before that, nothing lags
    eventually(lambda: admin.consumer_progress(unique_group, topic=topic).lag == 0)
    (moved,) = admin.reset_offset(unique_group, topic, offset=4).queues
    assert (moved.old_offset, moved.new_offset) == (6, 4)
    assert sorted(int(message.body) for message in consumed.result(90)[6:]) == [4, 5]


@pytest.mark.rocketmq_versions("4.9.7")
def test_members_of_an_old_broker_go_to_times_only(admin, client, topic, unique_group):
    client.instance.register_consumer(BareConsumer(unique_group, topic))
    client.run(client.instance.heartbeat())
    with pytest.raises(
        UnsupportedByBrokerError, match=r"has members online, and broker 'broker-a' .* only send those to a"
    ):
        admin.reset_offset(unique_group, topic, offset=0)


def test_an_offset_outside_of_a_queue_is_refused(admin, client, topic, group):
    client.send(topic, b"x")
    with pytest.raises(ConfigurationError, match=rf"offset=5 is not in queue 0 of topic '{topic}' on broker-a"):
        admin.reset_offset(group, topic, offset=5)
    with pytest.raises(ConfigurationError, match="has no queue with broker_name=None, queue_id=9"):
        admin.reset_offset(group, topic, "latest", queue_id=9)
    with pytest.raises(ConfigurationError, match="has no queue with broker_name='broker-z'"):
        admin.peek(topic, broker_name="broker-z")
    with pytest.raises(TopicRouteNotFoundError):
        admin.reset_offset(group, "no-such-topic", "latest")


# --- the cluster ------------------------------------------------------------------------------------------------


def test_the_cluster_and_its_settings(admin, rocketmq_cluster, client, topic):
    client.send(topic, b"x")
    eventually(lambda: admin.cluster().brokers[0].in_tps is not None)  # a broker samples itself for ten seconds first
    report = admin.cluster()
    (broker,) = report.brokers
    assert report.name_servers == (rocketmq_cluster.name_server_address,)
    assert (broker.broker_name, broker.address, broker.is_master) == (
        rocketmq_cluster.brokers[0].name,
        rocketmq_cluster.brokers[0].address,
        True,
    )
    assert (broker.version, broker.problem) == (rocketmq_cluster.version, None)
    assert broker.in_tps is not None
    assert broker.out_tps is not None
    assert broker.boot_timestamp is not None
    assert 0 < (broker.disk_used or 0) <= 1
    assert json.loads(json.dumps(report.to_dict()))["brokers"][0]["version"] == rocketmq_cluster.version
    assert admin.broker_config(broker.address)["brokerName"] == broker.broker_name


def test_many_threads_may_ask_before_it_has_started(rocketmq_cluster, topic):
    with AdminClient(rocketmq_cluster.name_server_address) as admin:
        seen: list[object] = []
        threads = [
            threading.Thread(target=lambda: seen.append(topic in {info.name for info in admin.topics()}))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [True] * 8


def test_a_broker_that_is_gone_is_listed_with_its_problem(admin, monkeypatch, rocketmq_cluster):
    nodes = admin._run(admin._core.nodes())
    dead = type(nodes[0])(nodes[0].cluster, "broker-dead", 0, "127.0.0.1:1")

    async def with_a_dead_one():
        return [*nodes, dead]

    monkeypatch.setattr(admin._core, "nodes", with_a_dead_one)
    alive, gone = admin.cluster().brokers
    assert alive.problem is None
    assert gone.problem is not None
    assert gone.problem.startswith("127.0.0.1:1: ")
    assert gone.version is None


def test_a_cluster_without_a_broker_says_so(rocketmq_cluster, monkeypatch):
    with AdminClient(rocketmq_cluster.name_server_address) as admin:

        async def none():
            return []

        monkeypatch.setattr(admin._core, "nodes", none)
        with pytest.raises(BrokerNotFoundError, match="no broker is registered at"):
            admin.groups()
