"""Frames of RocketMQ's own Java clients and brokers, captured by `tests/interop/capture_golden.py`: read exactly.

Each file is one session: what the Java client was asked to send, what its consumer made of it, and one frame of each
kind that passed between it and the broker.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketstream.message import MessageQueue
from rocketstream.wire.batch import decode_batch
from rocketstream.wire.bodies.base import Body
from rocketstream.wire.bodies.heartbeat import HeartbeatData
from rocketstream.wire.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rocketstream.wire.bodies.members import ConsumerListByGroup
from rocketstream.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketstream.wire.codes import (
    ConsumeFromWhere,
    LanguageCode,
    RequestCode,
    ResponseCode,
    SerializeType,
)
from rocketstream.wire.command import Command
from rocketstream.wire.compression import decompress
from rocketstream.wire.frame import FrameReader, encode_frame
from rocketstream.wire.headers import (
    GetConsumerListByGroupRequestHeader,
    GetRouteInfoRequestHeader,
    Header,
    NotifyConsumerIdsChangedRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketstream.wire.properties import decode_properties
from rocketstream.wire.record_decoder import decode_records
from rocketstream.wire.sysflag import COMPRESSED, Codec, codec_of, is_compressed

FILES = sorted((Path(__file__).parent / "golden" / "frames").glob("*.json"))
# V4_9_7 and V5_5_0 in Java's list of versions.
PROTOCOL_VERSIONS = {"4.9.7": 407, "5.5.0": 513}

# What each kind is made of: request code, its header and body, the header and body of its response.
KINDS: dict[str, tuple[RequestCode, type[Header] | None, type[Body] | None, type[Header] | None, type[Body] | None]] = {
    "route": (RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader, None, None, TopicRouteData),
    "heartbeat": (RequestCode.HEART_BEAT, None, HeartbeatData, None, None),
    "send": (RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, None, SendMessageResponseHeader, None),
    "send compressed": (RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, None, SendMessageResponseHeader, None),
    "send batch": (RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2, None, SendMessageResponseHeader, None),
    "pull": (RequestCode.PULL_MESSAGE, PullMessageRequestHeader, None, PullMessageResponseHeader, None),
    "query offset": (
        RequestCode.QUERY_CONSUMER_OFFSET,
        QueryConsumerOffsetRequestHeader,
        None,
        OffsetResponseHeader,
        None,
    ),
    "update offset": (RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader, None, None, None),
    "lock": (RequestCode.LOCK_BATCH_MQ, None, LockBatchRequestBody, None, LockBatchResponseBody),
    "unlock": (RequestCode.UNLOCK_BATCH_MQ, None, UnlockBatchRequestBody, None, None),
    "consumer list": (
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        GetConsumerListByGroupRequestHeader,
        None,
        None,
        ConsumerListByGroup,
    ),
    "members changed": (
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        NotifyConsumerIdsChangedRequestHeader,
        None,
        None,
        None,
    ),
    "unregister": (RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader, None, None, None),
}
# The fields of a message that Java's consumer shows as they came.
SAME = (
    *("topic", "broker_name", "queue_id", "queue_offset", "message_id", "offset_message_id", "tags", "keys", "flag"),
    *("body_crc", "born_timestamp", "store_timestamp", "born_host", "store_host", "reconsume_times"),
    *("commit_log_offset", "prepared_transaction_offset"),
)
ONE_WAY = {"update offset", "members changed"}


class Session:
    """One golden file."""

    def __init__(self, path: Path) -> None:
        self.data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.topic: str = self.data["topic"]
        self.group: str = self.data["group"]
        self.broker_name: str = self.data["broker_name"]
        self.queue = MessageQueue(self.topic, self.broker_name, 0)

    def raw(self, kind: str, side: str) -> bytes:
        return bytes.fromhex(self.data["frames"][kind][side])

    def request(self, kind: str) -> Command:
        return read_one(self.raw(kind, "request"))

    def response(self, kind: str) -> Command:
        return read_one(self.raw(kind, "response"))

    def frames(self) -> list[tuple[str, str, bytes]]:
        return [
            (kind, side, bytes.fromhex(frame[side]))
            for kind, frame in self.data["frames"].items()
            for side in ("request", "response")
            if frame[side]
        ]

    @property
    def client_id(self) -> str:
        return self.request("unregister").fields["clientID"]


def read_one(frame: bytes) -> Command:
    reader = FrameReader()
    (command,) = reader.feed(frame)
    assert not reader.mid_frame
    return command


@pytest.fixture(params=FILES, ids=[path.stem for path in FILES])
def session(request: pytest.FixtureRequest) -> Session:
    return Session(request.param)


def test_there_are_sessions_of_both_versions_and_encodings():
    assert {(data["client"], data["broker"], data["encoding"]) for data in (Session(path).data for path in FILES)} == {
        ("5.5.0", "5.5.0", "JSON"),
        ("5.5.0", "4.9.7", "JSON"),
        ("4.9.7", "5.5.0", "JSON"),
        ("4.9.7", "4.9.7", "JSON"),
        ("5.5.0", "5.5.0", "ROCKETMQ"),
        ("4.9.7", "4.9.7", "ROCKETMQ"),
    }
    for path in FILES:
        assert set(Session(path).data["frames"]) == set(KINDS)


@pytest.mark.behaviour("REM-14")
@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_read_as_what_it_is(session: Session, kind: str):
    code, header, body, response_header, response_body = KINDS[kind]
    asked = session.request(kind)
    sender = session.data["frames"][kind]["from"]
    assert sender == ("broker" if kind == "members changed" else "client")
    assert asked.code == code
    assert asked.language == LanguageCode.JAVA
    assert asked.version == PROTOCOL_VERSIONS[session.data[sender]]
    assert asked.serialize_type == SerializeType[session.data["encoding"]]
    assert (asked.is_response, asked.is_one_way) == (False, kind in ONE_WAY)
    assert_typed(asked, header, body)
    if kind in ONE_WAY:
        assert session.data["frames"][kind]["response"] is None
        return
    answer = session.response(kind)
    assert answer.is_response
    assert answer.opaque == asked.opaque
    assert answer.code == ResponseCode.SUCCESS
    assert answer.version == PROTOCOL_VERSIONS[session.data["broker"]]
    # 4.9 answers in the encoding of the question; 5.x in the server's own, which is JSON at the name server here.
    own = kind == "route" and session.data["broker"] == "5.5.0"
    assert answer.serialize_type == (SerializeType.JSON if own else asked.serialize_type)
    assert_typed(answer, response_header, response_body)


def assert_typed(command: Command, header: type[Header] | None, body: type[Body] | None) -> None:
    """The typed header loses nothing of what was sent, and the typed body is itself after a round trip."""
    if header is not None:
        ours = header.from_fields(command.fields).to_fields()
        # What a broker adds to any answer (trace switch, region) belongs to no header.
        assert {name: command.fields[name] for name in ours if name in command.fields} == {
            name: value for name, value in ours.items() if name in command.fields
        }
        if not command.is_response:
            assert ours.keys() >= command.fields.keys(), "every field of Java's is known"
    if body is not None:
        decoded = body.decode(command.body)
        assert body.decode(decoded.encode()) == decoded


@pytest.mark.behaviour("REM-14")
def test_writing_a_command_again_gives_an_equal_one_in_both_encodings(session: Session):
    for _, _, raw in session.frames():
        command = read_one(raw)
        assert read_one(b"".join(encode_frame(command))) == command
        other = replace(command, serialize_type=1 - command.serialize_type)
        assert read_one(b"".join(encode_frame(other))) == other


def test_all_frames_of_a_session_are_the_same_in_any_chunks(session: Session):
    raws = [raw for _, _, raw in session.frames()]
    stream = b"".join(raws)
    commands = [read_one(raw) for raw in raws]
    for size in (1, 7, 1000, len(stream)):
        reader = FrameReader()
        read = [command for at in range(0, len(stream), size) for command in reader.feed(stream[at : at + size])]
        assert read == commands


def test_the_route_names_the_broker(session: Session):
    asked = GetRouteInfoRequestHeader.from_fields(session.request("route").fields)
    assert asked.topic == session.topic
    route = TopicRouteData.decode(session.response("route").body)
    assert route.broker_datas == (
        BrokerData(
            broker_name=session.broker_name,
            cluster="DefaultCluster",
            broker_addrs={0: session.data["broker_address"]},
        ),
    )
    assert route.queue_datas == (
        QueueData(broker_name=session.broker_name, read_queue_nums=1, write_queue_nums=1, perm=6),
    )


def test_the_heartbeat_tells_the_subscription(session: Session):
    heartbeat = HeartbeatData.decode(session.request("heartbeat").body)
    assert heartbeat.client_id == session.client_id
    (consumer,) = heartbeat.consumer_data_set
    assert consumer.group_name == session.group
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert {wanted.topic: wanted.sub_string for wanted in consumer.subscription_data_set} == {
        session.topic: "*",
        f"%RETRY%{session.group}": "*",
    }


def test_a_send_carries_the_message(session: Session):
    command = session.request("send")
    sent = session.data["sent"]["plain"]
    header = SendMessageRequestHeaderV2.from_fields(command.fields)
    assert command.body.decode() == sent["body"]
    assert (header.topic, header.queue_id, header.flag, header.sys_flag) == (session.topic, 0, sent["flag"], 0)
    assert (header.producer_group, header.batch, header.broker_name) == (
        "java-peer-producer-0",
        False,
        session.broker_name,
    )
    receipt = session.data["receipts"][0]
    assert decode_properties(header.properties or "") == {
        **sent["properties"],
        "TAGS": sent["tags"],
        "KEYS": sent["keys"],
        "UNIQ_KEY": receipt["message_id"],
        "WAIT": "true",
    }
    stored = SendMessageResponseHeader.from_fields(session.response("send").fields)
    assert (stored.msg_id, stored.queue_id, stored.queue_offset) == (
        receipt["offset_message_id"],
        receipt["queue_id"],
        receipt["queue_offset"],
    )


def test_a_large_send_is_compressed(session: Session):
    command = session.request("send compressed")
    header = SendMessageRequestHeaderV2.from_fields(command.fields)
    assert is_compressed(header.sys_flag)
    assert codec_of(header.sys_flag) is Codec.ZLIB
    assert decompress(command.body, Codec.ZLIB).decode() == session.data["sent"]["compressed"]["body"]


def test_a_batch_carries_many_messages(session: Session):
    command = session.request("send batch")
    header = SendMessageRequestHeaderV2.from_fields(command.fields)
    assert header.batch is True
    items = decode_batch(command.body)
    sent = session.data["sent"]["batch"]
    receipt = session.data["receipts"][2]
    ids = receipt["message_id"].split(",")
    assert [item.body.decode() for item in items] == sent["bodies"]
    assert [decode_properties(item.properties) for item in items] == [
        {"UNIQ_KEY": unique_id, "WAIT": "true", "TAGS": sent["tags"]} for unique_id in ids
    ]
    stored = SendMessageResponseHeader.from_fields(session.response("send batch").fields)
    assert stored.msg_id.split(",") == receipt["offset_message_id"].split(",")
    assert stored.queue_offset == receipt["queue_offset"] == 2


def test_a_pull_brings_what_the_java_consumer_saw(session: Session):
    asked = PullMessageRequestHeader.from_fields(session.request("pull").fields)
    assert (asked.consumer_group, asked.topic, asked.queue_id) == (session.group, session.topic, 0)
    assert (asked.queue_offset, asked.max_msg_nums, asked.suspend_timeout_millis) == (0, 32, 15_000)
    response = session.response("pull")
    header = PullMessageResponseHeader.from_fields(response.fields)
    javas = session.data["consumed"]
    assert (header.next_begin_offset, header.min_offset, header.max_offset) == (len(javas), 0, len(javas))
    decoded = decode_records(
        response.body, queue=session.queue, min_offset=header.min_offset, max_offset=header.max_offset
    )
    assert decoded.corrupt == []
    sent = session.data["sent"]
    assert [message.body.decode() for message in decoded.messages] == [
        sent["plain"]["body"],
        sent["compressed"]["body"],
        *sent["batch"]["bodies"],
    ]
    for ours, java in zip(decoded.messages, javas, strict=True):
        assert {name: getattr(ours, name) for name in SAME} == {name: java[name] for name in SAME}
        assert ours.body.decode() == java["body"]
        assert ours.sys_flag == java["sys_flag"] & ~COMPRESSED  # 4.9 leaves the bit although it has inflated the body
        # The consumer notes when it began; whatever else it shows was on the wire or told by the pull.
        assert ours.properties == {k: v for k, v in java["properties"].items() if k != "CONSUME_START_TIME"}


def test_offsets_are_asked_for_and_told(session: Session):
    asked = QueryConsumerOffsetRequestHeader.from_fields(session.request("query offset").fields)
    assert (asked.consumer_group, asked.topic, asked.queue_id) == (session.group, session.topic, 0)
    assert OffsetResponseHeader.from_fields(session.response("query offset").fields).offset == 0
    told = UpdateConsumerOffsetRequestHeader.from_fields(session.request("update offset").fields)
    assert (told.consumer_group, told.topic, told.queue_id) == (session.group, session.topic, 0)
    assert told.commit_offset == len(session.data["consumed"])


def test_locks_name_queues_and_owner(session: Session):
    lock = LockBatchRequestBody.decode(session.request("lock").body)
    assert (lock.consumer_group, lock.client_id) == (session.group, session.client_id)
    retry = MessageQueue(f"%RETRY%{session.group}", session.broker_name, 0)
    assert {session.queue} <= lock.mq_set <= {session.queue, retry}
    assert LockBatchResponseBody.decode(session.response("lock").body).lock_ok_mq_set == lock.mq_set
    unlock = UnlockBatchRequestBody.decode(session.request("unlock").body)
    assert (unlock.consumer_group, unlock.client_id) == (session.group, session.client_id)
    assert session.queue in unlock.mq_set


def test_the_group_has_one_member_that_leaves(session: Session):
    asked = GetConsumerListByGroupRequestHeader.from_fields(session.request("consumer list").fields)
    assert asked.consumer_group == session.group
    members = ConsumerListByGroup.decode(session.response("consumer list").body)
    assert members.consumer_id_list == (session.client_id,)
    changed = NotifyConsumerIdsChangedRequestHeader.from_fields(session.request("members changed").fields)
    assert changed.consumer_group == session.group
    leaving = UnregisterClientRequestHeader.from_fields(session.request("unregister").fields)
    assert (leaving.client_id, leaving.consumer_group, leaving.producer_group) == (
        session.client_id,
        session.group,
        None,
    )
