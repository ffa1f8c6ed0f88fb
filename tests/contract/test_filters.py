"""Filters on every broker: changed while running, members that disagree, and words that a user can act on."""

from __future__ import annotations

import logging

import pytest

from rocketstream import ConsumeResult, Message, Sql, Tag
from rocketstream.errors import BrokerError
from tests.bare_client import eventually
from tests.contract.consuming import Heard, new_consumer, persist, send, stored_offset


@pytest.mark.feature("filters/change")
def test_an_expression_is_changed_while_running(consume, heard, sender, topic, client, unique_group):
    queue = client.queue(topic)
    consumer = consume(heard, {topic: "a"})
    send(sender, queue, b"b1", tags="b", properties={"n": "1"})
    send(sender, queue, b"a1", tags="a", properties={"n": "1"})
    heard.until_heard(b"a1")
    settle(client, consumer, unique_group, queue, 2)

    consumer.subscribe(topic, Tag("b || c"))
    send(sender, queue, b"a2", tags="a", properties={"n": "2"})
    send(sender, queue, b"b2", tags="b", properties={"n": "2"})
    heard.until_heard(b"b2")
    settle(client, consumer, unique_group, queue, 4)

    consumer.subscribe(topic, Sql("n > 2 AND TAGS = 'a'"))
    send(sender, queue, b"b3", tags="b", properties={"n": "3"})
    send(sender, queue, b"a3", tags="a", properties={"n": "3"})
    heard.until_heard(b"a3")
    assert heard.bodies == [b"a1", b"b2", b"a3"]

    with pytest.raises(BrokerError, match="SUBSCRIPTION_PARSE_FAILED"):
        consumer.subscribe(topic, Sql("n >"))
    send(sender, queue, b"a4", tags="a", properties={"n": "4"})
    heard.until_heard(b"a4")  # what was refused changes nothing


def settle(client, consumer, group, queue, offset) -> None:
    """Until everything so far is behind the group: the next expression is for what follows."""
    eventually(lambda: (persist(consumer), stored_offset(client, group, queue))[1] == offset)


@pytest.mark.feature("filters/disagree")
def test_members_that_subscribe_to_something_else_are_told(
    consume, topic, client, unique_group, rocketmq_cluster, caplog
):
    with caplog.at_level(logging.ERROR, "rocketstream.consumer"):
        first = consume(Heard(), {topic: "a"}, instance_name="first")
        assert caplog.records == []
        # Who joins looks at the others before it is heard of itself.
        consume(Heard(), {topic: "b"}, instance_name="second")
        (told,) = (record.getMessage() for record in caplog.records)
        assert f"another member of group {unique_group} subscribes to topic {topic!r} with TAG 'a'" in told
        assert "this one to TAG 'b'" in told
        caplog.clear()
        # And who is there already notices with its next look, every 10 s.
        first.core.io.run(first.core.overview.watch())
        (told,) = (record.getMessage() for record in caplog.records)
        assert "with TAG 'b', this one to TAG 'a'" in told
        assert "messages are lost to the group" in told


@pytest.mark.feature("filters/post")
def test_each_pull_may_carry_its_expression(consume, sender, topic, client, unique_group):
    """Then members of a group may differ: a broker looks at the pull, not at what the group said last."""
    queue, tags, sql = client.queue(topic), Heard(), Heard()
    for number, tag in enumerate(("a", "b")):
        send(sender, queue, tag.encode(), tags=tag, properties={"n": str(number)})
    consume(tags, {topic: "b"}, group=f"{unique_group}-tags", post_subscription_when_pull=True)
    consume(sql, {topic: Sql("n = 0")}, group=f"{unique_group}-sql", post_subscription_when_pull=True)
    tags.until_heard(b"b")
    sql.until_heard(b"a")
    assert (tags.bodies, sql.bodies) == ([b"b"], [b"a"])


@pytest.mark.feature("filters/retry")
def test_what_fails_comes_again_whatever_the_filter(consume, sender, topic, client, unique_group):
    """The retry topic is subscribed to as a whole; its messages keep their tags and properties."""

    def fail_once(messages, context):
        if not messages[0].reconsume_times:
            context.delay_level_when_next_consume = 1
            raise RuntimeError("again, please")
        return ConsumeResult.SUCCESS

    heard = Heard(fail_once)
    consume(heard, {topic: Sql("n > 1")})
    for number in (1, 2):
        sender.send(Message(topic, b"%d" % number, properties={"n": str(number)}), queue=client.queue(topic))
    heard.until(2)
    assert [(delivery.body, delivery.reconsume_times) for delivery in heard.deliveries] == [(b"2", 0), (b"2", 1)]
    assert heard.deliveries[1].message.properties["n"] == "2"


def test_an_expression_that_no_broker_would_take_is_refused_before_the_start(rocketmq_cluster, unique_group):
    with pytest.raises(ValueError, match=r"names no tag; '\*' subscribes to everything"):
        new_consumer(unique_group, rocketmq_cluster.name_server_address, Heard(), {"t": " || "})
