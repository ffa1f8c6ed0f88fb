"""The requests about popping themselves, as any client may send them, and every field of their answers."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rocketstream.message import ReceivedMessage
from rocketstream.property_names import PropertyName
from rocketstream.testing import RocketMQCluster
from rocketstream.wire.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketstream.wire.check_point import CheckPoint, set_check_points
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.offsets import OffsetResponseHeader, QueryConsumerOffsetRequestHeader
from rocketstream.wire.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketstream.wire.record_decoder import decode_records
from tests.bare_client import BareClient, eventually

#: What a broker's answer says that has a header and was given a code but no remark.
NO_REMARK = "not set any response code"


class Popper:
    """A client that pops by hand."""

    def __init__(self, client: BareClient, broker: str, broker_name: str, topic: str, group: str) -> None:
        self.client = client
        self.broker = broker
        self.broker_name = broker_name
        self.topic = topic
        self.group = group
        self.order = False
        self.messages: list[ReceivedMessage] = []

    def send(self, *bodies: bytes, **properties: str) -> None:
        for body in bodies:
            self.client.send(self.topic, body, properties)

    def invoke(self, code: RequestCode, header: Any = None, body: bytes = b"", timeout: float = 30.0) -> Command:
        return self.client.invoke(self.broker, request(code, header, body), timeout)

    def pop(self, **others: Any) -> Command:
        fields: dict[str, Any] = {
            "consumer_group": self.group,
            "topic": self.topic,
            "queue_id": 0,
            "max_msg_nums": 32,
            "invisible_time": 60_000,
            "poll_time": 0,
            "born_time": 0,
            "init_mode": 0,
            "order": self.order,
        }
        answer = self.invoke(RequestCode.POP_MESSAGE, PopMessageRequestHeader(**{**fields, **others}))
        self.messages = []
        if answer.code == ResponseCode.SUCCESS:
            self.messages = list(decode_records(answer.body).messages)
            header = PopMessageResponseHeader.from_fields(answer.fields)
            set_check_points(self.messages, header, self.broker_name, order=self.order)
        return answer

    def popped(self, **others: Any) -> list[bytes]:
        self.pop(**others)
        return [message.body for message in self.messages]

    def ack(self, message: ReceivedMessage, **others: Any) -> Command:
        header = AckMessageRequestHeader(**{**self._lease(message), **others})
        return self.invoke(RequestCode.ACK_MESSAGE, header)

    def change(self, message: ReceivedMessage, invisible_time: int, **others: Any) -> Command:
        fields = {**self._lease(message), "invisible_time": invisible_time, **others}
        return self.invoke(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeRequestHeader(**fields))

    def _lease(self, message: ReceivedMessage) -> dict[str, Any]:
        point = point_of(message)
        return {
            "consumer_group": self.group,
            "topic": point.real_topic(self.topic, self.group),
            "queue_id": point.queue_id,
            "extra_info": point.encode(),
            "offset": point.offset,
        }

    def offset(self) -> int:
        header = QueryConsumerOffsetRequestHeader(consumer_group=self.group, topic=self.topic, queue_id=0)
        answer = self.invoke(RequestCode.QUERY_CONSUMER_OFFSET, header)
        return OffsetResponseHeader.from_fields(answer.fields).offset


def point_of(message: ReceivedMessage) -> CheckPoint:
    return CheckPoint.decode(message.properties[PropertyName.POP_CHECK_POINT])


def told(answer: Command, *but: str) -> tuple[ResponseCode, str | None, dict[str, str]]:
    """Everything of an answer that is not a matter of time or chance."""
    remark = None if answer.remark is None else re.sub(r"/?\d+\.\d+\.\d+\.\d+(:\d+)?", "ADDRESS", answer.remark)
    fields = {name: value for name, value in answer.fields.items() if name not in {"popTime", "reviveQid", *but}}
    return ResponseCode(answer.code), remark, fields


@pytest.fixture
def popper(rocketmq_cluster: RocketMQCluster, client: BareClient, broker: str, topic: str, unique_group: str) -> Popper:
    """Somebody who pops a topic of one queue."""
    if rocketmq_cluster.version.startswith("4."):
        pytest.skip("brokers of 4.x do not pop")
    return Popper(client, broker, client.queue(topic).broker_name, topic, unique_group)


def test_what_a_pop_is_told(popper):
    popper.send(b"a", b"b", b"c")
    assert told(popper.pop(max_msg_nums=2)) == (
        ResponseCode.SUCCESS,
        "FOUND",
        {"invisibleTime": "60000", "restNum": "1", "startOffsetInfo": "0 0 0", "msgOffsetInfo": "0 0 0,1"},
    )
    assert [message.body for message in popper.messages] == [b"a", b"b"]
    eventually(lambda: popper.offset() == 2)
    assert told(popper.pop()) == (
        ResponseCode.SUCCESS,
        "FOUND",
        {"invisibleTime": "60000", "restNum": "0", "startOffsetInfo": "0 0 2", "msgOffsetInfo": "0 0 2"},
    )
    for poll_time in (0, 600):
        assert told(popper.pop(poll_time=poll_time)) == (
            ResponseCode.POLLING_TIMEOUT,
            "NO_MESSAGE_IN_QUEUE",
            {"invisibleTime": "60000", "restNum": "0", "startOffsetInfo": "", "msgOffsetInfo": ""},
        )
    eventually(lambda: popper.offset() == 3)


def test_what_is_filtered_is_passed_by(popper):
    popper.send(b"a", TAGS="x")
    popper.send(b"b", TAGS="y")
    popper.send(b"c", TAGS="x")
    popper.send(b"d", TAGS="y")
    answer = popper.pop(exp="x || z", exp_type="TAG")
    assert told(answer)[2] == {
        "invisibleTime": "60000",
        "restNum": "0",
        "startOffsetInfo": "0 0 0",
        "msgOffsetInfo": "0 0 0,2",
    }
    eventually(lambda: popper.offset() == 4)
    assert popper.pop(exp="||", exp_type="TAG").code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert popper.pop(exp="a >", exp_type="SQL92").code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST, r"topic\[nowhere\] not exist, apply first please!.*"),
        (
            {"queue_id": 8},
            ResponseCode.INVALID_PARAMETER,
            r"queueId\[8\] is illegal, topic:\[.*\] topicConfig.readQueueNums:\[1\] consumer:\[ADDRESS\]",
        ),
        (
            {"max_msg_nums": 33},
            ResponseCode.INVALID_PARAMETER,
            r"the broker\[ADDRESS\] pop message's num is greater than 32",
        ),
        ({"born_time": 1}, ResponseCode.POLLING_TIMEOUT, r"the broker\[ADDRESS\] pop message is timeout too much"),
        (
            {"consumer_group": "not legal!"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            r"subscription group \[not legal!\] does not exist, .*",
        ),
    ],
)
def test_pops_that_are_refused(popper, fields, code, remark):
    answer = told(popper.pop(**fields))
    assert answer[0] == code
    assert re.fullmatch(remark, answer[1], re.DOTALL)


def test_acknowledgements_that_are_refused(popper):
    popper.send(b"a")
    popper.pop()
    (message,) = popper.messages
    code, remark, _ = told(popper.ack(message, topic="nowhere"))
    assert code == ResponseCode.TOPIC_NOT_EXIST
    assert remark.startswith("topic[nowhere] not exist, apply first please!")
    assert told(popper.ack(message, queue_id=7)) == (
        ResponseCode.MESSAGE_ILLEGAL,
        f"queueId[7] is illegal, topic:[{popper.topic}] topicConfig.readQueueNums:[1] consumer:[ADDRESS]",
        {},
    )
    assert told(popper.ack(message, offset=9)) == (
        ResponseCode.NO_MESSAGE,
        f"offset is illegal, key:{popper.topic}@0, commit:9, store:0~1",
        {},
    )
    assert told(popper.invoke(RequestCode.BATCH_ACK_MESSAGE)) == (ResponseCode.NO_MESSAGE, None, {})
    assert told(popper.ack(message)) == (ResponseCode.SUCCESS, None, {})
    assert told(popper.ack(message)) == (ResponseCode.SUCCESS, None, {}), "a second time as well"
    assert popper.ack(message, extra_info="gibberish").code == ResponseCode.SYSTEM_ERROR


def test_changes_that_are_refused(popper):
    popper.send(b"a")
    popper.pop()
    (message,) = popper.messages
    nothing = {"invisibleTime": "0"}
    assert told(popper.change(message, 1000, topic="nowhere"))[0] == ResponseCode.TOPIC_NOT_EXIST
    assert told(popper.change(message, 1000, queue_id=7))[0] == ResponseCode.MESSAGE_ILLEGAL
    assert told(popper.change(message, 1000, offset=1)) == (ResponseCode.NO_MESSAGE, NO_REMARK, nothing)
    assert told(popper.change(message, 1000)) == (ResponseCode.SUCCESS, NO_REMARK, {"invisibleTime": "1000"})


def test_what_comes_again(popper):
    """Of five popped messages one is acknowledged, two are acknowledged together, one is given more time."""
    popper.send(b"0", b"1", b"2", b"3", TAGS="t", KEYS="k", UNIQ_KEY="7F000001000000000000000000000001")
    popper.send(b"4")
    popper.pop(invisible_time=2000)
    messages = popper.messages
    point = point_of(messages[0])
    first_popped = str(point.pop_time)
    popper.ack(messages[0])
    batch = BatchAck(
        consumer_group=popper.group,
        topic=popper.topic,
        retry="0",
        start_offset=0,
        queue_id=0,
        revive_queue_id=point.revive_queue_id,
        pop_time=point.pop_time,
        invisible_time=2000,
        bits=frozenset({1, 2}),
    )
    body = BatchAckMessageRequestBody(broker_name=popper.broker_name, acks=(batch,))
    assert told(popper.invoke(RequestCode.BATCH_ACK_MESSAGE, body=body.encode())) == (ResponseCode.SUCCESS, None, {})
    assert popper.change(messages[4], 60_000).code == ResponseCode.SUCCESS
    came: list[Command] = []

    def comes() -> bool:
        came[:] = [popper.pop(poll_time=1000)]
        return came[0].code == ResponseCode.SUCCESS

    eventually(comes, tries=200)
    assert told(came[0]) == (
        ResponseCode.SUCCESS,
        "FOUND",
        {"invisibleTime": "60000", "restNum": "0", "startOffsetInfo": "1 0 0", "msgOffsetInfo": "1 0 0"},
    )
    (message,) = popper.messages
    assert (message.body, message.topic, message.queue_id, message.queue_offset) == (b"3", popper.topic, 0, 0)
    assert (message.reconsume_times, message.tags, message.keys) == (1, "t", "k")
    assert message.properties[PropertyName.FIRST_POP_TIME] == first_popped
    assert message.message_id == messages[3].message_id
    assert message.born_timestamp == messages[3].born_timestamp
    header = PopMessageResponseHeader.from_fields(came[0].fields)
    expected = CheckPoint(0, header.pop_time, 60_000, header.revive_qid, "1", popper.broker_name, 0, 0)
    assert point_of(message) == expected
    assert popper.ack(message).code == ResponseCode.SUCCESS


def test_popping_in_order(popper):
    popper.order = True
    popper.send(b"a", b"b", b"c")
    lease = {"invisibleTime": "60000", "startOffsetInfo": "0 0 0"}
    assert told(popper.pop(max_msg_nums=2, attempt_id="1")) == (
        ResponseCode.SUCCESS,
        "FOUND",
        {**lease, "restNum": "1", "msgOffsetInfo": "0 0 0,1", "orderCountInfo": "0 0 0"},
    )
    first, second = popper.messages
    assert point_of(first).revive_queue_id == 999
    assert popper.offset() == 0
    blocked = {"invisibleTime": "60000", "restNum": "0", "startOffsetInfo": "", "msgOffsetInfo": ""}
    assert told(popper.pop()) == (
        ResponseCode.POLLING_TIMEOUT,
        "NO_MESSAGE_IN_QUEUE",
        {**blocked, "orderCountInfo": ""},
    )
    assert popper.popped(max_msg_nums=2, attempt_id="1") == [b"a", b"b"], "the same attempt once more"
    first, second = popper.messages
    code, remark, _ = told(popper.ack(first, offset=2))
    assert (code, remark) == (
        ResponseCode.MESSAGE_ILLEGAL,
        f"offset is illegal, key:{popper.topic}@{popper.group}@0, old:0, commit:2, next:-1, ADDRESS",
    )
    assert told(popper.ack(second)) == (ResponseCode.SUCCESS, None, {})
    assert popper.offset() == 0
    changed = popper.change(first, 1000)
    new = ChangeInvisibleTimeResponseHeader.from_fields(changed.fields)
    assert (new.pop_time, new.revive_qid) == (point_of(first).pop_time, 999)
    assert new.invisible_time >= 1000
    again = popper.pop(poll_time=20_000)
    assert told(again)[2] == {
        **lease,
        "restNum": "0",
        "msgOffsetInfo": "0 0 0,1,2",
        "orderCountInfo": "0 qo0%0 1;0 qo0%1 1;0 0 0",
    }
    assert [message.reconsume_times for message in popper.messages] == [1, 1, 0]
    for message in popper.messages:
        assert popper.ack(message).code == ResponseCode.SUCCESS
    assert popper.offset() == 3


def test_looking_without_popping(popper):
    who = {"consumer_group": popper.group, "topic": popper.topic, "queue_id": 0}

    def notified(**others: Any) -> tuple[ResponseCode, str | None, dict[str, str]]:
        header = NotificationRequestHeader(**{**who, "poll_time": 0, "born_time": 0, **others})
        return told(popper.invoke(RequestCode.NOTIFICATION, header))

    def peeked(count: int) -> tuple[ResponseCode, str | None, dict[str, str]]:
        header = PeekMessageRequestHeader(**who, max_msg_nums=count)
        return told(popper.invoke(RequestCode.PEEK_MESSAGE, header))

    polling = popper.invoke(RequestCode.POLLING_INFO, PollingInfoRequestHeader(**who))
    assert told(polling) == (ResponseCode.SUCCESS, NO_REMARK, {"pollingNum": "0"})
    silence = (ResponseCode.SUCCESS, NO_REMARK, {"hasMsg": "false", "pollingFull": "false"})
    assert notified() == silence
    assert notified(poll_time=600) == silence
    nothing = (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", {"invisibleTime": "0", "restNum": "0"})
    assert peeked(1) == nothing
    popper.send(b"a", b"b")
    eventually(lambda: popper.client.max_offset(popper.topic) == 2)
    assert notified() == (ResponseCode.SUCCESS, NO_REMARK, {"hasMsg": "true", "pollingFull": "false"})
    assert peeked(1) == (ResponseCode.SUCCESS, "FOUND", {"invisibleTime": "0", "restNum": "2"})
    assert popper.popped() == [b"a", b"b"]


def test_a_pop_that_waits_is_counted_and_woken(popper, connect):
    other = connect()
    header = PopMessageRequestHeader(
        consumer_group=popper.group,
        topic=popper.topic,
        queue_id=-1,
        max_msg_nums=1,
        invisible_time=60_000,
        poll_time=20_000,
        born_time=0,
        init_mode=0,
    )
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(other.invoke, popper.broker, request(RequestCode.POP_MESSAGE, header), 30.0)
        who = PollingInfoRequestHeader(consumer_group=popper.group, topic=popper.topic, queue_id=-1)
        eventually(lambda: popper.invoke(RequestCode.POLLING_INFO, who).fields["pollingNum"] == "1")
        popper.send(b"a")
        answer = waiting.result(30)
    assert [message.body for message in decode_records(answer.body).messages] == [b"a"]
    assert told(answer)[2]["startOffsetInfo"] == "0 0 0"
