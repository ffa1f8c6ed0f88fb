"""Headers: round trips, presence and types as Java declares them, and errors that name the field."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.errors import ProtocolError
from rocketstream.wire import headers
from rocketstream.wire.headers import (
    ConsumeMessageDirectlyRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    EndTransactionRequestHeader,
    GetMaxOffsetRequestHeader,
    Header,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryMessageRequestHeader,
    RegisterBrokerRequestHeader,
    ResetOffsetRequestHeader,
    RpcRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    TopicRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketstream.wire.headers.base import FieldPlan

BASES = {Header, RpcRequestHeader, TopicRequestHeader}
ALL = [one for _, one in inspect.getmembers(headers, inspect.isclass) if issubclass(one, Header) and one not in BASES]
GOLDEN = Path(__file__).parent / "golden"

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "str": st.text(max_size=20),
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
}


def plan_of(cls: Any) -> tuple[FieldPlan, ...]:
    plan: tuple[FieldPlan, ...] = cls._plan
    return plan


def made(cls: type[Header]) -> st.SearchStrategy[Header]:
    """Any header of a class, optional fields present or not."""
    values = {}
    for one in plan_of(cls):
        values[one.name] = st.none() | VALUES[one.kind] if one.nullable else VALUES[one.kind]
    return st.builds(cls, **values)


def complaint(call: Callable[..., object], *arguments: object) -> str | None:
    """The text of the ProtocolError of a call, or None if it had none; anything else gets through."""
    try:
        call(*arguments)
    except ProtocolError as error:
        return str(error)
    return None


any_header = st.sampled_from(ALL).flatmap(made)


@given(any_header)
def test_round_trip(value: Header) -> None:
    fields = value.to_fields()
    assert all(type(name) is str and type(text) is str for name, text in fields.items())
    assert type(value).from_fields(fields) == value
    assert type(value).from_fields({**fields, "someFieldOfTheFuture": "x"}) == value


@given(st.sampled_from(ALL), st.dictionaries(st.text(), st.text()), st.data())
def test_arbitrary_fields_are_a_header_or_a_protocol_error(
    cls: type[Header], fields: dict[str, str], data: st.DataObject
) -> None:
    for one in plan_of(cls):
        if data.draw(st.booleans()):
            fields[one.wire] = data.draw(st.text(max_size=5) | st.sampled_from(["1", "true", "9" * 5000]))
    said = complaint(cls.from_fields, fields)
    assert said is None or cls.__name__ in said


# --- exact texts ----------------------------------------------------------------------------------------------


def test_pull_request() -> None:
    header = PullMessageRequestHeader(
        consumer_group="g",
        topic="t",
        queue_id=3,
        queue_offset=9_000_000_000,
        max_msg_nums=32,
        sys_flag=3,
        commit_offset=-1,
        suspend_timeout_millis=15000,
        sub_version=1700000000000,
        expression_type="TAG",
        bname="broker-a",
    )
    assert header.to_fields() == {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "3",
        "queueOffset": "9000000000",
        "maxMsgNums": "32",
        "sysFlag": "3",
        "commitOffset": "-1",
        "suspendTimeoutMillis": "15000",
        "subVersion": "1700000000000",
        "expressionType": "TAG",
        "bname": "broker-a",
    }


def test_pull_response_of_4_9_and_5() -> None:
    fields = {"suggestWhichBrokerId": "1", "nextBeginOffset": "7", "minOffset": "0", "maxOffset": "9"}
    old = PullMessageResponseHeader.from_fields(fields)
    assert (old.suggest_which_broker_id, old.next_begin_offset, old.min_offset, old.max_offset) == (1, 7, 0, 9)
    assert old.group_sys_flag is None
    new = PullMessageResponseHeader.from_fields({**fields, "groupSysFlag": "0", "topicSysFlag": "0", "xyz": "?"})
    assert (new.group_sys_flag, new.topic_sys_flag, new.offset_delta) == (0, 0, None)


SENT = {
    "producer_group": "g",
    "topic": "t",
    "default_topic": "TBW102",
    "default_topic_queue_nums": 4,
    "queue_id": 1,
    "sys_flag": 0,
    "born_timestamp": 1700000000000,
    "flag": 2,
    "properties": "KEYS\x01k\x02",
    "reconsume_times": 5,
    "unit_mode": False,
    "max_reconsume_times": 16,
    "batch": True,
}


def test_send_v2_is_send_in_letters() -> None:
    long_names = SendMessageRequestHeader(**SENT).to_fields()
    letters = SendMessageRequestHeaderV2(**SENT, broker_name="b").to_fields()
    assert letters == {
        "a": "g",
        "b": "t",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "g": "1700000000000",
        "h": "2",
        "i": "KEYS\x01k\x02",
        "j": "5",
        "k": "false",
        "l": "16",
        "m": "true",
        "n": "b",
    }
    assert sorted(long_names.values()) == sorted(value for name, value in letters.items() if name != "n")


def test_send_response_without_5x_fields() -> None:
    header = SendMessageResponseHeader.from_fields({"msgId": "7F", "queueId": "1", "queueOffset": "12"})
    assert header == SendMessageResponseHeader(msg_id="7F", queue_id=1, queue_offset=12)


def test_names_that_are_not_camel_case() -> None:
    assert UnregisterClientRequestHeader(client_id="c").to_fields() == {"clientID": "c"}
    query = QueryMessageRequestHeader(
        topic="t", key="k", max_num=1, begin_timestamp=0, end_timestamp=1, unique_key_query=True
    )
    assert query.to_fields()["_UNIQUE_KEY_QUERY"] == "true"


def test_defaults_are_written_and_assumed() -> None:
    assert GetMaxOffsetRequestHeader(topic="t", queue_id=0).to_fields()["committed"] == "true"
    assert GetMaxOffsetRequestHeader.from_fields({"topic": "t", "queueId": "0"}).committed is True
    end = EndTransactionRequestHeader(
        producer_group="p", tran_state_table_offset=1, commit_log_offset=2, commit_or_rollback=8, msg_id="m"
    )
    assert end.to_fields()["fromTransactionCheck"] == "false"
    assert "topic" not in end.to_fields()
    reset = ResetOffsetRequestHeader.from_fields({"group": "g", "topic": "t", "timestamp": "-1", "isForce": "true"})
    assert (reset.queue_id, reset.offset, reset.is_force) == (-1, None, True)
    assert DeleteSubscriptionGroupRequestHeader(group_name="g", clean_offset=True, remove_offset=True).to_fields() == {
        "groupName": "g",
        "cleanOffset": "true",
        "removeOffset": "true",
    }


def test_own_broker_name_and_the_rpc_one_are_two_fields() -> None:
    header = ConsumeMessageDirectlyRequestHeader(consumer_group="g", broker_name="a", bname="b")
    assert header.to_fields() == {"consumerGroup": "g", "brokerName": "a", "bname": "b"}


def test_java_spelling_of_booleans_is_read_in_any_case() -> None:
    assert RpcRequestHeader.from_fields({"oway": "TRUE", "nsd": "False"}) == RpcRequestHeader(oway=True, nsd=False)


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "OffsetResponseHeader: field 'offset' is missing"),
        ({"offset": "x"}, "OffsetResponseHeader: field 'offset' should be a 64-bit number, not 'x'"),
        ({"offset": ""}, "OffsetResponseHeader: field 'offset' should be a 64-bit number, not ''"),
        ({"offset": "1_0"}, "OffsetResponseHeader: field 'offset' should be a 64-bit number, not '1_0'"),
        ({"offset": "1.0"}, "OffsetResponseHeader: field 'offset' should be a 64-bit number, not '1.0'"),
        (
            {"offset": str(2**63)},
            "OffsetResponseHeader: field 'offset' should be a 64-bit number, not '9223372036854775808'",
        ),
    ],
)
def test_wrong_numbers_are_named(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        OffsetResponseHeader.from_fields(fields)
    assert str(raised.value) == message


def test_32_bits_are_32_bits() -> None:
    with pytest.raises(ProtocolError, match=r"'queueId' should be a 32-bit number, not '2147483648'"):
        GetMaxOffsetRequestHeader.from_fields({"topic": "t", "queueId": str(2**31)})


def test_a_boolean_is_true_or_false() -> None:
    with pytest.raises(
        ProtocolError, match=r"GetMaxOffsetRequestHeader: field 'committed' .* true or false, not 'yes'"
    ):
        GetMaxOffsetRequestHeader.from_fields({"topic": "t", "queueId": "1", "committed": "yes"})


def test_ill_typed_optional_field_is_an_error_too() -> None:
    good = RegisterBrokerRequestHeader(
        broker_name="b", broker_addr="a", cluster_name="c", ha_server_addr="h", broker_id=0
    ).to_fields()
    with pytest.raises(ProtocolError, match="'heartbeatTimeoutMillis' should be a 64-bit number, not 'soon'"):
        RegisterBrokerRequestHeader.from_fields({**good, "heartbeatTimeoutMillis": "soon"})


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(ProtocolError) as raised:
        OffsetResponseHeader.from_fields({"offset": "z" * 100_000})
    assert len(str(raised.value)) < 300


# --- against Java's declarations ------------------------------------------------------------------------------

# One class of ours for several of Java's, or a plainer name.
JAVA_NAMES = {
    "OffsetResponseHeader": [
        "QueryConsumerOffsetResponseHeader",
        "GetMaxOffsetResponseHeader",
        "GetMinOffsetResponseHeader",
        "SearchOffsetResponseHeader",
    ],
    "QueryCorrectionOffsetRequestHeader": ["QueryCorrectionOffsetHeader"],
    "ConsumeMessageDirectlyRequestHeader": ["ConsumeMessageDirectlyResultRequestHeader"],
    "GetBrokerConsumeStatsRequestHeader": ["GetConsumeStatsInBrokerHeader"],
    "WritePermOfBrokerRequestHeader": ["WipeWritePermOfBrokerRequestHeader", "AddWritePermOfBrokerRequestHeader"],
}
KIND = {
    "String": "str",
    "BoundaryType": "str",
    "Integer": "int32",
    "int": "int32",
    "Long": "int64",
    "long": "int64",
    "Boolean": "bool",
    "boolean": "bool",
}
# Where we know better than the annotation: fields that brokers of 4.9 do not send, or that nothing works without.
LOOSER = {
    ("GetAllSubscriptionGroupResponseHeader", "totalGroupNum"),
    ("GetAllTopicConfigResponseHeader", "totalTopicNum"),
}
STRICTER = {("QueryConsumeQueueRequestHeader", name) for name in ("topic", "queueId", "index", "count")}


def java_headers(version: str) -> dict[str, dict[str, tuple[str, bool]]]:
    found: dict[str, dict[str, tuple[str, bool]]] = defaultdict(dict)
    for line in (GOLDEN / f"protocol-{version}.txt").read_text("utf-8").splitlines():
        if line.startswith("FIELD "):
            _, cls, name, kind, presence = line.split()
            found[cls][name] = (kind, presence == "required")
    return found


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_fields_are_javas(cls: type[Header], version: str) -> None:
    java = java_headers(version)
    plan = {one.wire: one for one in plan_of(cls)}
    for java_name in JAVA_NAMES.get(cls.__name__, [cls.__name__]):
        if java_name not in java:
            assert version == "4.9.7", f"{java_name} is unknown to Java"
            continue
        declared = java[java_name]
        for name, (kind, required) in declared.items():
            assert name in plan, f"{java_name}.{name} is missing"
            assert plan[name].kind == KIND[kind], f"{java_name}.{name}"
            if (cls.__name__, name) not in LOOSER:
                # A field with a default is always written, so Java finds it.
                assert not (required and plan[name].nullable), f"{java_name}.{name} must not be left out"
            if plan[name].required and (cls.__name__, name) not in STRICTER:
                assert required, f"{java_name}.{name} may be absent"
        for name in plan.keys() - declared.keys():
            assert not plan[name].required, f"{java_name} has no {name} in {version}"


def test_the_newest_java_knows_every_field_of_ours() -> None:
    newest, oldest = java_headers("5.5.0"), java_headers("4.9.7")
    for cls in ALL:
        for java_name in JAVA_NAMES.get(cls.__name__, [cls.__name__]):
            known = {*newest[java_name], *oldest[java_name], "_UNIQUE_KEY_QUERY"}
            assert {one.wire for one in plan_of(cls)} <= known, java_name
