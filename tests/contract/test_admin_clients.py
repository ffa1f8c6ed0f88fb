"""Clients, groups, settings and resets on the real brokers, as an operator sees and changes them."""

from __future__ import annotations

import pytest

from rocketstream import AdminClient, MessageModel
from rocketstream.admin.errors import NotFoundError
from rocketstream.errors import ClientStateError, ConfigurationError
from rocketstream.message import MessageQueue
from tests.bare_client import BareConsumer, eventually
from tests.contract.consuming import Heard, committed, send


@pytest.mark.feature("admin/connections", "admin/running-info")
def test_members_say_what_they_want_and_that_they_disagree(admin, sender, topic, unique_group, consume, heard):
    send(sender, MessageQueue(topic, "broker-a", 0), b"1")
    first = consume(heard, topic, max_reconsume_times=3)
    heard.until(1)
    alone = admin.consumer_connections(unique_group)
    (member,) = alone.members
    assert (member.client_id, member.brokers, member.orderly) == (first.client_id, ("broker-a",), False)
    assert (member.language, bool(member.address), bool(member.start_timestamp)) == ("PYTHON", True, True)
    assert {one.topic: one.expression for one in member.subscriptions or ()}[topic] == "*"
    assert (alone.model, alone.consume_type) == ("CLUSTERING", "CONSUME_PASSIVELY")
    assert (alone.disagreements, alone.silent) == ((), ())

    info = admin.running_info(unique_group, first.client_id, stack=True)
    (queue,) = [queue for queue in info.queues if queue.topic == topic]
    assert (queue.broker_name, queue.queue_id, queue.dropped, queue.popped) == ("broker-a", 0, False, False)
    eventually(lambda: _cached(admin, first, topic) == 0)
    assert info.subscriptions == member.subscriptions
    assert (info.consume_type, info.orderly) == ("CONSUME_PASSIVELY", False)
    assert "Thread" in (info.stack or "")
    with pytest.raises(NotFoundError, match=f"client 'somebody' is not in group .* members are {first.client_id}"):
        admin.running_info(unique_group, "somebody")

    second = consume(Heard(), {topic: "red || blue"}, instance_name="second")
    eventually(lambda: len(admin.consumer_connections(unique_group).members) == 2)
    both = admin.consumer_connections(unique_group)
    (sentence,) = both.disagreements
    assert sentence.startswith(f"topic '{topic}': ")
    assert f"{first.client_id} wants '*'" in sentence
    assert f"{second.client_id} wants 'red || blue'" in sentence
    second.shutdown()
    first.shutdown()
    eventually(lambda: not admin.consumer_connections(unique_group).online)


def _cached(admin: AdminClient, consumer, topic: str) -> int:
    info = admin.running_info(consumer.group, consumer.client_id)
    return sum(queue.cached for queue in info.queues if queue.topic == topic)


@pytest.mark.feature("admin/producers")
def test_producers_are_listed(admin, sender, topic, unique_group):
    send(sender, MessageQueue(topic, "broker-a", 0), b"1")
    group = f"{unique_group}-p"
    sender.core.io.run(sender.core.instance.heartbeat())
    (member,) = admin.producer_connections(group).members
    assert (member.client_id, member.language, member.brokers) == (sender.client_id, "PYTHON", ("broker-a",))
    assert admin.producer_connections(group, topic).members == (member,)
    assert not admin.producer_connections("nobody-ever").online


@pytest.mark.feature("admin/config")
def test_settings_and_counters_of_servers(rocketmq_cluster, admin, broker):
    by_name, by_address = admin.broker_config("broker-a"), admin.broker_config(broker)
    assert by_name == by_address
    assert (by_name["brokerName"], by_name["listenPort"]) == ("broker-a", broker.rpartition(":")[2])
    assert admin.node_config("broker-a") == by_name
    with pytest.raises(NotFoundError, match=r"no broker is called 'broker-z' at .*: there are broker-a"):
        admin.broker_config("broker-z")
    eventually(lambda: "putTps" in admin.broker_runtime("broker-a"))
    port = rocketmq_cluster.name_server_address.rpartition(":")[2]
    assert admin.name_server_config()["listenPort"] == port
    assert admin.name_server_config(rocketmq_cluster.name_server_address)["listenPort"] == port


@pytest.mark.feature("admin/groups")
def test_a_group_from_its_creation_to_its_end(admin, client, topic, unique_group):
    (made,) = admin.create_group(unique_group, max_retries=3, retry_queues=2)
    assert (made.broker_name, made.max_retries, made.retry_queues, made.consume_enabled) == ("broker-a", 3, 2, True)
    assert admin.group_settings(unique_group) == [made]
    assert admin.create_group(unique_group) == [made], "what is not given is left as it is"
    with pytest.raises(
        ConfigurationError, match=r"exists on broker-a with other settings \(max_retries=3.*update=True"
    ):
        admin.create_group(unique_group, max_retries=4)
    (changed,) = admin.create_group(unique_group, max_retries=4, consume_enabled=False, update=True)
    assert (changed.max_retries, changed.retry_queues, changed.consume_enabled) == (4, 2, False)
    assert admin.group_settings(unique_group) == [changed]

    client.send(topic, b"1")
    admin.reset_offset(unique_group, topic, "latest")
    client.instance.register_consumer(BareConsumer(unique_group, topic))
    client.run(client.instance.heartbeat())
    with pytest.raises(ClientStateError, match=f"has members online .*{client.instance.client_id}.* stop them first"):
        admin.delete_group(unique_group)
    client.run(client.instance.unregister_consumer(unique_group))
    eventually(lambda: not admin.consumers(unique_group).online)
    admin.delete_group(unique_group, offsets=True)
    with pytest.raises(NotFoundError, match="does not exist: no broker knows it"):
        admin.group_settings(unique_group)
    with pytest.raises(NotFoundError, match="does not exist: no broker knows it"):
        admin.delete_group(unique_group)
    admin.create_group(unique_group)
    assert committed(admin, unique_group, topic) == {}, "its offsets went with it"


@pytest.mark.feature("admin/reset", "admin/reset-queues")
def test_queues_go_where_they_are_sent_and_where_another_group_is(admin, client, broker, unique_topic, unique_group):
    client.create_topic(broker, unique_topic, queues=2)
    for queue_id in (0, 0, 0, 1, 1):
        client.send(unique_topic, b"x", queue_id=queue_id)
    other = f"{unique_group}-other"
    for group in (unique_group, other):
        admin.create_group(group)
    admin.reset_offset(unique_group, unique_topic, "latest")
    seen = admin.reset_offset(unique_group, unique_topic, offsets={("broker-a", 0): 1}, dry_run=True)
    (queue,) = seen.queues
    assert (queue.queue_id, queue.old_offset, queue.new_offset, queue.end_offset) == (0, 3, 1, 3)
    assert (seen.again, seen.skipped, seen.to_dict()["again"]) == (2, 0, 2)
    assert committed(admin, unique_group, unique_topic) == {0: 3, 1: 2}
    named = {MessageQueue(unique_topic, "broker-a", 0): 1, MessageQueue(unique_topic, "broker-a", 1): 0}
    admin.reset_offset(unique_group, unique_topic, offsets=named)
    assert committed(admin, unique_group, unique_topic) == {0: 1, 1: 0}
    with pytest.raises(ConfigurationError, match=f"topic '{unique_topic}' has no queue broker-a:7"):
        admin.reset_offset(unique_group, unique_topic, offsets={("broker-a", 0): 1, ("broker-a", 7): 1})
    with pytest.raises(ConfigurationError, match=r"offset=9 is not in queue 1 of topic .*: it holds 0 to 2"):
        admin.reset_offset(unique_group, unique_topic, offsets={("broker-a", 0): 1, ("broker-a", 1): 9})

    taken = admin.reset_offset(other, unique_topic, like=unique_group)
    assert [queue.new_offset for queue in taken.queues] == [1, 0]
    assert committed(admin, other, unique_topic) == {0: 1, 1: 0}


@pytest.mark.feature("admin/reset-refused")
def test_a_reset_that_would_surprise_is_refused(admin, client, topic, unique_group):
    client.send(topic, b"1")
    client.instance.register_consumer(BareConsumer(unique_group, "something-else"))
    client.run(client.instance.heartbeat())
    eventually(lambda: _is_online(admin, unique_group))
    with pytest.raises(
        ConfigurationError, match=f"does not consume topic '{topic}': its members subscribe to something"
    ):
        admin.reset_offset(unique_group, topic, "latest")
    client.run(client.instance.unregister_consumer(unique_group))
    eventually(lambda: not _is_online(admin, unique_group))
    assert admin.reset_offset(unique_group, topic, "latest").queues[0].new_offset == 1, "before its first start it may"
    everybody = f"{unique_group}-b"
    client.instance.register_consumer(BareConsumer(everybody, topic, message_model=MessageModel.BROADCASTING))
    client.run(client.instance.heartbeat())
    eventually(lambda: _is_online(admin, everybody))
    with pytest.raises(ConfigurationError, match="is BROADCASTING: each member keeps offsets of its own"):
        admin.reset_offset(everybody, topic, "latest")
    with pytest.raises(ConfigurationError, match="is in the future: 'latest' skips everything"):
        admin.reset_offset(unique_group, topic, 4_000_000_000_000)


def _is_online(admin: AdminClient, group: str) -> bool:
    try:
        return admin.consumers(group).online
    except NotFoundError:
        return False
