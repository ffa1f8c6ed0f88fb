"""Bodies: round trips, what fastjson of both versions really prints, and errors that name the place."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.errors import ProtocolError
from rocketstream.message import MessageQueue
from rocketstream.wire import bodies
from rocketstream.wire.bodies import (
    BatchAck,
    BatchAckMessageRequestBody,
    Body,
    BrokerData,
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerData,
    ConsumerListByGroup,
    ConsumerOffsetSerializeWrapper,
    ConsumerRunningInfo,
    ConsumeStats,
    DataVersion,
    GetConsumerStatusBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueueAssignment,
    OffsetWrapper,
    ProcessQueueInfo,
    ProducerData,
    QueryAssignmentResponseBody,
    QueueData,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
)
from rocketstream.wire.codes import ConsumeFromWhere, ConsumeType, MessageModel, MessageRequestMode
from rocketstream.wire.lenient_json import Pairs, dumps, loads
from rocketstream.wire.subscription import subscription

GOLDEN = Path(__file__).parent / "golden"
ALL = [one for _, one in inspect.getmembers(bodies, inspect.isclass) if issubclass(one, Body) and one is not Body]

texts = st.text(max_size=10)
queues = st.builds(MessageQueue, texts, texts, st.integers(-(2**31), 2**31 - 1))


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values_of, arguments))
    if origin is Annotated:
        if annotation == BITS:
            return st.frozensets(st.integers(0, 70))
        if isinstance(arguments[1], int):
            return st.integers(-(2 ** (arguments[1] - 1)), 2 ** (arguments[1] - 1) - 1)
        return values_of(RESET if arguments[0] == RESET else arguments[0])
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if origin is frozenset:
        return st.frozensets(values_of(arguments[0]), max_size=2)
    if origin is Mapping:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=2)
    if annotation is type(None):
        return st.none()
    if annotation is MessageQueue:
        return queues
    if issubclass(annotation, Body):
        return made(annotation)
    if issubclass(annotation, StrEnum):
        return st.sampled_from(annotation)
    return {
        str: texts,
        int: st.integers(-(2**63), 2**63 - 1),
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
    }[annotation]


BITS = get_type_hints(BatchAck, include_extras=True)["bits"]
RESET = Mapping[MessageQueue, int]


def made(cls: type[Body]) -> st.SearchStrategy[Body]:
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{name: values_of(hint) for name, hint in hints.items() if not name.startswith("_")})


def complaint(call: Callable[..., object], *arguments: object) -> str | None:
    """The text of the ProtocolError of a call, or None if it had none; anything else gets through."""
    try:
        call(*arguments)
    except ProtocolError as error:
        return str(error)
    return None


any_body = st.sampled_from(ALL).flatmap(made)


@given(any_body)
def test_round_trip(value: Body) -> None:
    assert type(value).decode(value.encode()) == value
    assert type(value).decode(memoryview(value.encode())) == value


@given(any_body, st.data())
def test_unknown_fields_are_ignored_and_null_is_absent(value: Body, data: st.DataObject) -> None:
    json = value.to_json()
    json["someFieldOfTheFuture"] = data.draw(st.sampled_from([1, [], {}, "x"]))
    for one in value._plan:
        if not one.required:
            json.setdefault(one.wire, None)
    assert type(value).from_json(json) == value


@given(st.sampled_from(ALL), st.binary())
def test_arbitrary_bytes(cls: type[Body], data: bytes) -> None:
    said = complaint(cls.decode, data)
    assert said is None or cls.__name__ in said


shapes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["topic", "queueId", "brokerName", "0"]), inner, max_size=3
        )
        | st.lists(st.tuples(inner, inner), min_size=1, max_size=2).map(Pairs)
    ),
    max_leaves=8,
)


@given(any_body, st.data())
def test_a_wrong_shape_is_a_protocol_error_that_names_the_field(value: Body, data: st.DataObject) -> None:
    json = value.to_json()
    if not json:
        return
    name = data.draw(st.sampled_from(sorted(json)))
    json[name] = data.draw(shapes)
    said = complaint(type(value).decode, dumps(json))
    assert said is None or f"{type(value).__name__}.{name}" in said


# --- what Java prints -------------------------------------------------------------------------------------------

OUR_NAME = {"GetConsumerListByGroupResponseBody": "ConsumerListByGroup", "ResetOffsetBodyForC": "ResetOffsetBody"}
# Java prints these too, and nothing of ours needs them.
NOT_OURS = {
    "consumeTimeStampStr",
    "maxTimeStampStr",
    "minTimeStampStr",
    "mappingDataVersion",
    "topicQueueMappingDetailMap",
    "topicQueueMappingInfoMap",
}


def java_bodies() -> list[Any]:
    found = []
    for version in ("5.5.0", "4.9.7"):
        for line in (GOLDEN / f"protocol-{version}.txt").read_text("utf-8").splitlines():
            if line.startswith("BODY "):
                _, name, text = line.split(" ", 2)
                short = name.rpartition(".")[2]
                found.append(pytest.param(short, text, id=f"{short}-{version}"))
    return found


def missing_from(ours: Any, java: Any, place: str = "") -> list[str]:
    """Where `ours` does not say what `java` says; ours may say more, in Java's own defaults."""
    if isinstance(java, dict) and isinstance(ours, dict):
        found = []
        for name, value in java.items():
            if name in ours:
                found += missing_from(ours[name], value, f"{place}.{name}")
            elif name not in NOT_OURS:
                found.append(f"{place}.{name} is missing")
        return found
    if isinstance(java, list) and isinstance(ours, list) and len(java) == len(ours):
        return [line for one, other in zip(ours, java, strict=True) for line in missing_from(one, other, f"{place}[]")]
    if isinstance(java, Pairs) and isinstance(ours, Pairs):
        return missing_from([list(pair) for pair in ours], [list(pair) for pair in java], place)
    if ours == java or (isinstance(ours, str) and not isinstance(java, str) and ours == str(java)):
        return []
    return [f"{place}: {ours!r} is not {java!r}"]


@pytest.mark.parametrize(("java_name", "text"), java_bodies())
def test_java_bodies_are_read_completely(java_name: str, text: str) -> None:
    cls = getattr(bodies, OUR_NAME.get(java_name, java_name))
    value = cls.decode(text.encode())
    if java_name == "ResetOffsetBodyForC":
        (entry,) = loads(text)["offsetTable"]
        queue = MessageQueue(entry["topic"], entry["brokerName"], entry["queueId"])
        assert value.offset_table == {queue: entry["offset"]}
    else:
        assert missing_from(loads(value.encode()), loads(text)) == []


def test_route_with_bare_numbers_as_keys() -> None:
    text = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    expected = TopicRouteData(
        queue_datas=(QueueData(broker_name="broker-a", read_queue_nums=8, write_queue_nums=4, perm=6),),
        broker_datas=(
            BrokerData(
                broker_name="broker-a",
                cluster="DefaultCluster",
                broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
            ),
        ),
    )
    assert TopicRouteData.decode(text) == expected
    assert TopicRouteData.decode(text.replace(b"0:", b'"0":', 1).replace(b",1:", b',"1":', 1)) == expected
    assert expected.order_topic_conf is None


def test_consume_stats_with_queues_as_keys() -> None:
    text = (
        b'{"consumeTps":0.5,"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:{"brokerOffset":10,'
        b'"consumerOffset":7,"lastTimestamp":1700000000000},{"brokerName":"a","queueId":1,"topic":"t"}:'
        b'{"brokerOffset":3,"consumerOffset":-1,"lastTimestamp":0,"pullOffset":3}}}'
    )
    assert ConsumeStats.decode(text) == ConsumeStats(
        consume_tps=0.5,
        offset_table={
            MessageQueue("t", "a", 0): OffsetWrapper(broker_offset=10, consumer_offset=7, last_timestamp=1700000000000),
            MessageQueue("t", "a", 1): OffsetWrapper(broker_offset=3, consumer_offset=-1, pull_offset=3),
        },
    )


def test_queues_as_quoted_keys() -> None:
    text = rb'{"offsetTable":{"{\"brokerName\":\"a\",\"queueId\":0,\"topic\":\"t\"}":5}}'
    assert ResetOffsetBody.decode(text).offset_table == {MessageQueue("t", "a", 0): 5}


def test_members_of_a_group() -> None:
    assert ConsumerListByGroup.decode(b'{"consumerIdList":["10.0.0.1@1","10.0.0.2@2"]}').consumer_id_list == (
        "10.0.0.1@1",
        "10.0.0.2@2",
    )
    assert ConsumerListByGroup.decode(b"{}").consumer_id_list == ()


def test_consumer_offsets() -> None:
    text = b'{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":9},"offsetTable":{"t@g":{0:10,1:11}}}'
    assert ConsumerOffsetSerializeWrapper.decode(text) == ConsumerOffsetSerializeWrapper(
        offset_table={"t@g": {0: 10, 1: 11}}, data_version=DataVersion(timestamp=9, counter=3)
    )


def test_connections_of_an_unknown_language() -> None:
    text = (
        b'{"connectionSet":[{"clientAddr":"10.0.0.1:5000","clientId":"c","language":"KLINGON","version":513}],'
        b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
        b'"messageModel":"CLUSTERING","subscriptionTable":{}}'
    )
    assert ConsumerConnection.decode(text) == ConsumerConnection(
        connection_set=(Connection(client_id="c", client_addr="10.0.0.1:5000", language="KLINGON", version=513),),
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
    )


def test_assignment() -> None:
    text = b'{"messageQueueAssignments":[{"messageQueue":{"brokerName":"a","queueId":-1,"topic":"t"},"mode":"POP"}]}'
    assert QueryAssignmentResponseBody.decode(text).message_queue_assignments == (
        MessageQueueAssignment(message_queue=MessageQueue("t", "a", -1), mode=MessageRequestMode.POP),
    )


def test_group_settings_of_4_9_have_the_defaults_of_5() -> None:
    text = (
        b'{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
        b'"groupName":"g","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":1,'
        b'"whichBrokerWhenConsumeSlowly":1}'
    )
    assert SubscriptionGroupConfig.decode(text) == SubscriptionGroupConfig(group_name="g", retry_max_times=3)


# --- what we print ----------------------------------------------------------------------------------------------


def test_heartbeat() -> None:
    heartbeat = HeartbeatData(
        client_id="10.0.0.1@7",
        producer_data_set=(ProducerData(group_name="p"),),
        consumer_data_set=(
            ConsumerData(
                group_name="g",
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.BROADCASTING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                subscription_data_set=(subscription("t", "BB || Aa", version=5),),
                unit_mode=True,
            ),
        ),
    )
    assert loads(heartbeat.encode()) == {
        "clientID": "10.0.0.1@7",
        "producerDataSet": [{"groupName": "p"}],
        "consumerDataSet": [
            {
                "groupName": "g",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "BROADCASTING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [
                    {
                        "topic": "t",
                        "subString": "BB || Aa",
                        "tagsSet": ["Aa", "BB"],
                        "codeSet": [2112],
                        "subVersion": 5,
                        "expressionType": "TAG",
                        "classFilterMode": False,
                    }
                ],
                "unitMode": True,
            }
        ],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
    }
    assert HeartbeatData.decode(heartbeat.encode()) == heartbeat


def test_lock_and_its_answer() -> None:
    queue = MessageQueue("t", "a", 0)
    lock = LockBatchRequestBody(consumer_group="g", client_id="c", mq_set=frozenset([queue]))
    assert lock.encode() == (
        b'{"consumerGroup":"g","clientId":"c","mqSet":[{"brokerName":"a","queueId":0,"topic":"t"}],'
        b'"onlyThisBroker":false}'
    )
    answer = b'{"lockOKMQSet":[{"brokerName":"a","queueId":0,"topic":"t"}]}'
    assert LockBatchResponseBody.decode(answer).lock_ok_mq_set == {queue}
    assert LockBatchResponseBody(lock_ok_mq_set=frozenset([queue])).encode() == answer


def test_tables_by_queue_have_objects_as_keys() -> None:
    body = GetConsumerStatusBody(message_queue_table={MessageQueue("t", "a", 0): 5})
    assert body.encode() == (b'{"messageQueueTable":{{"brokerName":"a","queueId":0,"topic":"t"}:5},"consumerTable":{}}')


def test_running_info_of_python_uses_javas_names() -> None:
    info = ConsumerRunningInfo(
        properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
        mq_table={MessageQueue("t", "a", 0): ProcessQueueInfo(cached_msg_size_in_mib=3, dropped=True)},
    )
    (pair,) = loads(info.encode())["mqTable"]
    assert pair[1]["cachedMsgSizeInMiB"] == 3
    assert pair[1]["droped"] is True


def test_properties_that_java_wrote_as_numbers_are_texts() -> None:
    info = ConsumerRunningInfo.decode(b'{"properties":{"A":1700000000000,"B":true,"C":"x"}}')
    assert info.properties == {"A": "1700000000000", "B": "true", "C": "x"}


def test_batch_ack_bits_are_javas_bit_set() -> None:
    ack = BatchAck(
        consumer_group="g",
        topic="t",
        retry="0",
        start_offset=100,
        queue_id=0,
        revive_queue_id=1,
        pop_time=5,
        invisible_time=6,
        bits=frozenset([0, 2, 8]),
    )
    body = BatchAckMessageRequestBody(broker_name="a", acks=(ack,))
    assert loads(body.encode())["acks"] == [
        {"c": "g", "t": "t", "r": "0", "so": 100, "q": 0, "rq": 1, "pt": 5, "it": 6, "b": "BQE="}
    ]
    assert loads(dataclasses.replace(ack, bits=frozenset()).encode())["b"] == ""


def test_sets_are_written_in_a_stable_order() -> None:
    assert TopicList(topic_list=frozenset("dbca")).encode() == b'{"topicList":["a","b","c","d"]}'


def test_what_is_not_set_is_left_out() -> None:
    assert "attributes" not in TopicConfig(topic_name="t").to_json()
    assert "consumeResult" not in ConsumeMessageDirectlyResult().to_json()


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "text", "message"),
    [
        (TopicList, b"", "TopicList: not a JSON text: it is empty"),
        (TopicList, b"[]", "TopicList should be an object, not list"),
        (TopicList, b'{"topicList":5}', "TopicList.topicList should be an array, not 5"),
        (TopicList, b'{"topicList":["a",5]}', "TopicList.topicList.1 should be a text, not 5"),
        (HeartbeatData, b"{}", "HeartbeatData.clientID is missing"),
        (HeartbeatData, b'{"clientID":null}', "HeartbeatData.clientID is missing"),
        (
            HeartbeatData,
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":"SOLO"}]}',
            "HeartbeatData.consumerDataSet.0.messageModel should be one of BROADCASTING, CLUSTERING, LITE_SELECTIVE,"
            " not 'SOLO'",
        ),
        (
            TopicRouteData,
            b'{"queueDatas":[{"brokerName":"a","readQueueNums":true,"writeQueueNums":1,"perm":6}]}',
            "TopicRouteData.queueDatas.0.readQueueNums should be a 32-bit number, not True",
        ),
        (
            TopicRouteData,
            b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"x":"1.2.3.4:5"}}]}',
            "TopicRouteData.brokerDatas.0.brokerAddrs.x should be a number, not 'x'",
        ),
        (
            ConsumeStats,
            b'{"offsetTable":{{"brokerName":"a","topic":"t"}:{}}}',
            "ConsumeStats.offsetTable.key should be a queue, but has no queueId",
        ),
        (
            ConsumeStats,
            b'{"offsetTable":{{"brokerName":"a","queueId":"0","topic":"t"}:{}}}',
            "ConsumeStats.offsetTable.key.queueId should be a 32-bit number, not '0'",
        ),
        (ConsumeStats, b'{"offsetTable":{"x":{}}}', "ConsumeStats.offsetTable.x should be a queue, not 'x'"),
        (ConsumeStats, b'{"offsetTable":[]}', "ConsumeStats.offsetTable should be an object, not list"),
        (ConsumeStats, b'{"consumeTps":"fast"}', "ConsumeStats.consumeTps should be a number, not 'fast'"),
        (
            TopicConfigSerializeWrapper,
            b'{"topicConfigTable":{"t":{"topicName":"t","order":1}}}',
            "TopicConfigSerializeWrapper.topicConfigTable.t.order should be true or false, not 1",
        ),
        (
            BatchAckMessageRequestBody,
            b'{"brokerName":"a","acks":[{"c":"g","t":"t","r":"0","so":1,"q":0,"rq":0,"pt":1,"it":1,"b":"!"}]}',
            "BatchAckMessageRequestBody.acks.0.b should be a bit set in base64, not '!'",
        ),
        (ResetOffsetBody, b'{"offsetTable":[5]}', "ResetOffsetBody.offsetTable should be a queue, not 5"),
    ],
)
def test_errors_name_the_place(cls: type[Body], text: bytes, message: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        cls.decode(text)
    assert str(raised.value) == message


def test_deep_or_huge_values_do_not_fill_the_error() -> None:
    with pytest.raises(ProtocolError) as raised:
        TopicList.decode(b'{"topicList":' + b'{"a":' * 500 + b"1" + b"}" * 501)
    assert str(raised.value) == "TopicList.topicList should be an array, not dict"
    with pytest.raises(ProtocolError) as raised:
        HeartbeatData.decode(b'{"clientID":' + b"9" * 4000 + b"}")
    assert len(str(raised.value)) < 300
