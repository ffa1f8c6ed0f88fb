"""What operators ask members of groups through the brokers; what `mqadmin` shows of it is in tests/interop."""

from __future__ import annotations

import pytest

from rocketstream import ConsumeResult, Message
from rocketstream.errors import BrokerError
from rocketstream.wire.bodies.offsets import GetConsumerStatusBody
from rocketstream.wire.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketstream.wire.codes import CMResult, RequestCode, ResponseCode
from rocketstream.wire.headers.group import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from tests.bare_client import eventually
from tests.contract.consuming import Heard


def running_info(client, broker, group, client_id) -> ConsumerRunningInfo:
    header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
    answer = client.run(client.instance.ask(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header))
    return ConsumerRunningInfo.decode(answer.body)


@pytest.mark.feature("operators/offsets")
@pytest.mark.feature("operators/directly")
def test_a_member_answers_through_its_broker(client, broker, topic, unique_group, consume, sender):
    heard = Heard()
    consumer = consume(heard, topic)
    receipt = sender.send(Message(topic, b"one"))
    heard.until(1)
    member = consumer.core.client_id

    def offsets(client_id: str | None = None) -> dict:
        header = GetConsumerStatusRequestHeader(topic=topic, group=unique_group, client_addr=client_id)
        answer = client.run(client.instance.ask(broker, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header))
        return dict(GetConsumerStatusBody.decode(answer.body).consumer_table)

    eventually(lambda: offsets().get(member) == {receipt.queue: 1})
    assert offsets(member) == offsets()
    assert offsets("somebody") == {}
    info = running_info(client, broker, unique_group, member)
    assert info.mq_table[receipt.queue].commit_offset == 1

    header = ConsumeMessageDirectlyRequestHeader(
        consumer_group=unique_group, client_id=member, msg_id=receipt.offset_message_id, topic=topic
    )
    answer = client.run(client.instance.ask(broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, header))
    assert ConsumeMessageDirectlyResult.decode(answer.body).consume_result is CMResult.CR_SUCCESS
    assert [(one.body, one.context_queue) for one in heard.deliveries] == [(b"one", receipt.queue)] * 2
    with pytest.raises(BrokerError, match=f"The Consumer <{unique_group}> <somebody> not online") as refused:
        running_info(client, broker, unique_group, "somebody")
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.feature("operators/pop")
@pytest.mark.feature("trace/pop")
@pytest.mark.rocketmq_versions("5.5.0")
def test_a_member_that_pops(client, broker, topic, unique_group, consume, sender, admin):
    traces = f"{unique_group}-traces"
    admin.create_topic(traces, queues=1)
    held = Heard()
    consumer = consume(held, topic, client_rebalance=False, rebalance_interval=0.5, trace=traces)
    admin.set_request_mode(unique_group, topic, "pop")
    eventually(lambda: any(queue.popped for queue in consumer.status().queues))
    sender.send(Message(topic, b"popped"))
    held.until(1)
    info = running_info(client, broker, unique_group, consumer.core.client_id)
    assert topic in {queue.topic for queue in info.mq_pop_table}
    assert topic not in {queue.topic for queue in info.mq_table}
    eventually(lambda: records(client, traces)[-1:] != [] and len(records(client, traces)) >= 2)
    assert [(one[0], one[4]) for one in records(client, traces) if one[0] == "SubAfter"] == [("SubAfter", "true")]


def records(client, topic) -> list[list[str]]:
    text = "".join(message.body.decode() for message in client.pull_all("reader", topic))
    return [record.split("\x01") for record in text.split("\x02") if record]


@pytest.mark.feature("operators/directly")
def test_a_listener_that_fails_says_why(client, broker, topic, unique_group, consume, sender):
    fine: list[bytes] = []

    def listen(messages, context):
        if fine:
            raise LookupError(f"no order {messages[0].body.decode()}")
        fine.append(messages[0].body)
        return ConsumeResult.SUCCESS

    consumer = consume(listen, topic)
    receipt = sender.send(Message(topic, b"7"))
    eventually(lambda: bool(fine))
    header = ConsumeMessageDirectlyRequestHeader(
        consumer_group=unique_group, client_id=consumer.core.client_id, msg_id=receipt.offset_message_id, topic=topic
    )
    answer = client.run(client.instance.ask(broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, header))
    result = ConsumeMessageDirectlyResult.decode(answer.body)
    assert result.consume_result is CMResult.CR_THROW_EXCEPTION
    assert result.remark is not None
    assert result.remark.startswith("LookupError: no order 7, tests.contract.test_operators.")
