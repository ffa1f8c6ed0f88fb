"""The requests that everything else is made of, with their typed headers and bodies, on the real brokers."""

from __future__ import annotations

import pytest

from rocketstream.errors import BrokerError
from rocketstream.wire.bodies.assignment import QueryAssignmentRequestBody, QueryAssignmentResponseBody
from rocketstream.wire.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rocketstream.wire.bodies.stats import ConsumeStats, TopicStatsTable
from rocketstream.wire.bodies.topic import TopicList
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.group import GetConsumeStatsRequestHeader
from rocketstream.wire.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketstream.wire.headers.topic import DeleteTopicRequestHeader, GetTopicStatsInfoRequestHeader
from tests.bare_client import BareConsumer, eventually


def offset_of(client, broker, code, header) -> int:
    return OffsetResponseHeader.from_fields(client.ask(broker, code, header).fields).offset


def test_offsets_of_a_queue(client, broker, topic):
    for number in range(5):
        client.send(topic, b"%d" % number)
    code, header = RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=topic, queue_id=0)
    assert offset_of(client, broker, code, header) == 5
    code, header = RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=topic, queue_id=0)
    assert offset_of(client, broker, code, header) == 0
    stored = [message.store_timestamp for message in client.pull_all("g", topic)]
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    at = SearchOffsetRequestHeader(topic=topic, queue_id=0, timestamp=stored[3])
    assert stored[offset_of(client, broker, code, at)] == stored[3]
    before_all = SearchOffsetRequestHeader(topic=topic, queue_id=0, timestamp=stored[0] - 1000)
    assert offset_of(client, broker, code, before_all) == 0


def test_offsets_of_a_group(client, broker, topic, unique_group):
    client.send(topic, b"x")
    client.instance.register_consumer(BareConsumer(unique_group, topic))
    client.run(client.instance.heartbeat())  # a 5.x broker takes offsets of groups that it knows only
    ask = QueryConsumerOffsetRequestHeader(consumer_group=unique_group, topic=topic, queue_id=0)
    # A broker that has the whole queue in memory answers 0 for a group that it has never seen.
    assert offset_of(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, ask) == 0
    tell = UpdateConsumerOffsetRequestHeader(consumer_group=unique_group, topic=topic, queue_id=0, commit_offset=1)
    client.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, tell)
    assert offset_of(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, ask) == 1


def test_locks_are_given_to_one_member_at_a_time(connect, client, broker, topic, unique_group):
    other = connect()
    wanted = frozenset({client.queue(topic)})

    def lock(who) -> frozenset:
        body = LockBatchRequestBody(consumer_group=unique_group, client_id=who.instance.client_id, mq_set=wanted)
        answer = who.ask(broker, RequestCode.LOCK_BATCH_MQ, body=body.encode())
        return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set

    assert lock(client) == wanted
    assert lock(other) == frozenset()
    assert lock(client) == wanted
    body = UnlockBatchRequestBody(consumer_group=unique_group, client_id=client.instance.client_id, mq_set=wanted)
    client.ask(broker, RequestCode.UNLOCK_BATCH_MQ, body=body.encode())
    assert lock(other) == wanted


def test_statistics_have_queues_as_keys(client, broker, topic, unique_group):
    client.send(topic, b"x")
    queue = client.queue(topic)
    client.instance.register_consumer(BareConsumer(unique_group, topic))
    client.run(client.instance.heartbeat())
    tell = UpdateConsumerOffsetRequestHeader(consumer_group=unique_group, topic=topic, queue_id=0, commit_offset=1)
    client.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, tell)
    answer = client.ask(
        broker, RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumer_group=unique_group, topic=topic)
    )
    stats = ConsumeStats.decode(answer.body).offset_table
    assert set(stats) == {queue}
    assert (stats[queue].broker_offset, stats[queue].consumer_offset) == (1, 1)
    answer = client.ask(broker, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic=topic))
    table = TopicStatsTable.decode(answer.body).offset_table
    assert (table[queue].min_offset, table[queue].max_offset) == (0, 1)


def test_topics_are_listed_and_deleted(client, broker, topic):
    name_server = client.instance.name_servers.addresses[0]

    def listed() -> bool:
        answer = client.ask(name_server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return topic in TopicList.decode(answer.body).topic_list

    assert listed()
    client.ask(broker, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))
    with pytest.raises(BrokerError) as caught:
        client.pull("g", topic, 0)
    assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.rocketmq_versions("5.5.0")
def test_a_5_x_broker_assigns_queues(client, broker, topic, unique_group):
    client.instance.register_consumer(BareConsumer(unique_group, topic))
    client.run(client.instance.heartbeat())

    def assigned() -> set:
        body = QueryAssignmentRequestBody(
            topic=topic,
            consumer_group=unique_group,
            client_id=client.instance.client_id,
            strategy_name="AVG",
            message_model="CLUSTERING",
        )
        answer = client.ask(broker, RequestCode.QUERY_ASSIGNMENT, body=body.encode())
        assignments = QueryAssignmentResponseBody.decode(answer.body).message_queue_assignments
        return {assignment.message_queue for assignment in assignments}

    eventually(lambda: assigned() == {client.queue(topic)})
