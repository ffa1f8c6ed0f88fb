"""SQL92 conditions and namespaces between Java and us: what one of them wraps or filters the other reads."""

from __future__ import annotations

import pytest

from rocketstream import ConsumeResult, Message, Producer, Sql
from rocketstream.testing import RocketMQCluster
from tests.bare_client import BareClient, eventually
from tests.contract.consuming import Heard, new_consumer
from tests.interop.java_peer import JavaPeer


@pytest.mark.feature("filters/sql92", "filters/tags")
def test_the_same_conditions_choose_the_same_messages(
    rocketmq_cluster: RocketMQCluster, java_peer: JavaPeer, topic: str, unique_group: str
) -> None:
    address = rocketmq_cluster.name_server_address
    condition = "amount BETWEEN 10 AND 20 AND (region = 'eu' OR region IS NULL) AND TAGS <> 'BB'"
    with Producer(f"{unique_group}-p", address, send_timeout=10.0) as producer:
        ours = [("Aa", {"amount": "15"}), ("BB", {"amount": "15"}), ("Aa", {"amount": "20", "region": "eu"})]
        ours += [("Aa", {"amount": "21"}), ("Aa", {"amount": "12", "region": "us"}), ("Aa", {})]
        for number, (tags, properties) in enumerate(ours):
            producer.send(Message(topic, b"p%d" % number, tags=tags, properties=properties))
    java_peer.produce(topic, [b"j0"], tags="Aa", properties={"amount": "10"})
    java_peer.produce(topic, [b"j1"], tags="BB", properties={"amount": "10"})
    wanted = {b"p0", b"p2", b"j0"}
    by_sql, by_tag = Heard(), Heard()
    with (
        new_consumer(f"{unique_group}-sql", address, by_sql, {topic: Sql(condition)}),
        new_consumer(f"{unique_group}-tag", address, by_tag, {topic: "BB"}),
    ):
        by_sql.until_heard(*wanted)
        by_tag.until_heard(b"p1", b"j1")
    assert set(by_sql.bodies) == wanted
    assert set(by_tag.bodies) == {b"p1", b"j1"}
    java = java_peer.consume(f"{unique_group}-java", topic, count=3, expression=condition, sql=True)
    assert {message.body for message in java} == wanted


@pytest.mark.feature("names/namespace")
def test_a_namespace_is_one_place_for_java_and_us(
    rocketmq_cluster: RocketMQCluster, java_peer: JavaPeer, client: BareClient, broker: str, unique_topic: str
) -> None:
    """What fails for one member is tried again by whichever: retry topics are wrapped alike, too."""
    address, group = rocketmq_cluster.name_server_address, unique_topic.replace("t-", "g-", 1)
    client.create_topic(broker, f"shop%{unique_topic}")
    java_peer.produce(unique_topic, [b"from java"], namespace="shop")
    with Producer(f"{group}-p", address, namespace="shop", send_timeout=10.0) as producer:
        producer.send(Message(unique_topic, b"from us"))
    eventually(lambda: client.max_offset(f"shop%{unique_topic}") == 2)

    def fail_once(messages, context):
        context.delay_level_when_next_consume = 1
        return ConsumeResult.SUCCESS if messages[0].reconsume_times else ConsumeResult.RECONSUME_LATER

    heard = Heard(fail_once)
    with new_consumer(group, address, heard, unique_topic, namespace="shop"):
        heard.until(2)
    java = java_peer.consume(group, unique_topic, count=2, namespace="shop", timeout=60.0)
    again = {(delivery.body, delivery.reconsume_times) for delivery in heard.deliveries}
    again |= {(message.body, message.reconsume_times) for message in java}
    assert again == {(body, times) for body in (b"from java", b"from us") for times in (0, 1)}
    assert {delivery.topic for delivery in heard.deliveries} == {unique_topic}
    assert {message.topic for message in java} <= {unique_topic}
