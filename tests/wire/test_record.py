from __future__ import annotations

import sys
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.errors import ConfigurationError, CorruptMessageError, MissingCodecError
from rocketstream.message import MessageQueue
from rocketstream.wire.compression import compress
from rocketstream.wire.properties import encode_properties
from rocketstream.wire.record import MAGIC_V1, MAGIC_V2, body_crc_of, encode_record
from rocketstream.wire.record_decoder import decode_record, decode_records
from rocketstream.wire.sysflag import COMPRESSED, Codec, with_codec

PROPERTIES = {"TAGS": "paid", "KEYS": "k1 k2", "UNIQ_KEY": "7F0000010A0B18B4AAC2123456780001", "näme": "wert ✓"}
FIELDS: dict[str, Any] = {
    "queue_id": 3,
    "flag": 7,
    "queue_offset": 12345678901,
    "commit_log_offset": 98765432109,
    "born_timestamp": 1700000000123,
    "store_timestamp": 1700000000456,
    "reconsume_times": 2,
    "prepared_transaction_offset": 42,
}
V4_HOSTS = {"born_host": "10.1.2.3:50001", "store_host": "192.168.200.9:10911"}
V6_HOSTS = {"born_host": "[2001:db8::1]:50001", "store_host": "[fe80::2]:10911"}
LONG_TOPIC = "longtopic_" * 20

_JAVA_TAIL = (
    "004E544147530170616964024B455953016B31206B3202554E49515F4B4559013746303030303031304130423138423441414332"
    "313233343536373830303031026EC3A46D65017765727420E29C9302"
)
# MessageDecoder.encode of RocketMQ 5.5.0.
JAVA_V4 = bytes.fromhex(
    "000000BBDAA320A7179B78C6000000030000000700000002DFDC1C3500000016FEE0E52D000000000000018BCFE5687B"
    "0A0102030000C3510000018BCFE569C8C0A8C80900002A9F00000002000000000000002A"
    "0000000C68656C6C6F2077C3B6726C64066F7264657273" + _JAVA_TAIL
)
JAVA_V6 = bytes.fromhex(
    "000000CCDAA320A73610A686000000030000000700000002DFDC1C3500000016FEE0E52D000000300000018BCFE5687B"
    "20010DB80000000000000000000000010000C3510000018BCFE569C8FE80000000000000000000000000000200002A9F"
    "00000002000000000000002A0000000568656C6C6F066F7264657273" + _JAVA_TAIL
)
# The store's MessageExtEncoder of RocketMQ 5.5.0, version 2; it leaves the commit-log offset to the commit log.
JAVA_STORE_V2 = bytes.fromhex(
    "00000177DAA320AB3610A686000000030000000700000002DFDC1C350000000000000000000000000000018BCFE5687B"
    "0A0102030000C3510000018BCFE569C8C0A8C80900002A9F00000002000000000000002A0000000568656C6C6F00C8"
    + LONG_TOPIC.encode().hex()
    + _JAVA_TAIL
)


@pytest.mark.parametrize(
    ("golden", "topic", "body", "hosts"),
    [
        (JAVA_V4, "orders", "hello wörld".encode(), V4_HOSTS),
        (JAVA_V6, "orders", b"hello", V6_HOSTS),
        (JAVA_STORE_V2, LONG_TOPIC, b"hello", V4_HOSTS),
    ],
    ids=["v1-ipv4", "v1-ipv6", "v2"],
)
def test_golden_records_of_java(golden: bytes, topic: str, body: bytes, hosts: dict[str, str]) -> None:
    fields = {**FIELDS, **hosts}
    if golden is JAVA_STORE_V2:
        fields["commit_log_offset"] = 0
    assert encode_record(topic=topic, body=body, properties=encode_properties(PROPERTIES), **fields) == golden

    [message], corrupt = decode_records(golden)
    assert corrupt == []
    assert {name: getattr(message, name) for name in fields} == fields
    assert (message.topic, message.body, message.properties) == (topic, body, PROPERTIES)
    assert (message.tags, message.keys) == ("paid", "k1 k2")
    assert message.message_id == PROPERTIES["UNIQ_KEY"]
    assert message.body_crc == body_crc_of(body)
    assert (message.body_size, message.store_size) == (len(body), len(golden))
    if golden is JAVA_V4:
        assert message.offset_message_id == "C0A8C80900002A9F00000016FEE0E52D"


ips = st.ip_addresses()
longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20)


@st.composite
def hosts(draw: st.DrawFn) -> str:
    ip = draw(ips)
    return f"[{ip}]:{draw(st.integers(0, 65535))}" if ip.version == 6 else f"{ip}:{draw(st.integers(0, 65535))}"


@st.composite
def records(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """What a message should show, and the record it is in."""
    codec = draw(st.sampled_from([None, *Codec]))
    magic = draw(st.sampled_from([MAGIC_V1, MAGIC_V2]))
    values = {
        "topic": draw(st.text(st.sampled_from("abc_%-ä"), max_size=60 if magic == MAGIC_V1 else 300)),
        "body": draw(st.binary(max_size=100)),
        "properties": draw(st.dictionaries(texts, texts, max_size=4)),
        "queue_id": draw(ints),
        "queue_offset": draw(longs),
        "commit_log_offset": draw(longs),
        "flag": draw(ints),
        "born_timestamp": draw(longs),
        "born_host": draw(hosts()),
        "store_timestamp": draw(longs),
        "store_host": draw(hosts()),
        "reconsume_times": draw(ints),
        "prepared_transaction_offset": draw(longs),
    }
    stored = dict(values, properties=encode_properties(values["properties"]), sys_flag=with_codec(0x2, codec))
    if codec is not None:
        stored["body"] = compress(values["body"], codec)
    return values, encode_record(**stored, magic=magic)


@given(st.lists(records(), max_size=6))
def test_round_trip(expected: list[tuple[dict[str, Any], bytes]]) -> None:
    messages, corrupt = decode_records(b"".join(record for _, record in expected), broker_name="b")
    assert corrupt == []
    assert [
        {name: getattr(message, name) for name in values}
        for message, (values, _) in zip(messages, expected, strict=True)
    ] == [values for values, _ in expected]
    for message, (values, record) in zip(messages, expected, strict=True):
        assert message.store_size == len(record)
        assert message.queue == (values["topic"], "b", values["queue_id"])
        assert message.sys_flag & ~0x330 == 0x2


def test_java_masks_the_top_bit_of_the_checksum() -> None:
    body = next(body for n in range(99) if crc32(body := b"%d" % n) > 0x7FFFFFFF)
    assert body_crc_of(body) == crc32(body) - 0x80000000
    assert decode_record(encode_record(topic="t", body=body)).body == body
    assert decode_record(encode_record(topic="t", body=body, body_crc=crc32(body))).body == body


def test_wrong_checksum_is_an_error_that_names_the_message() -> None:
    record = encode_record(
        topic="orders", body=b"hello", body_crc=1, queue_offset=17, properties="UNIQ_KEY\x01CAFE\x02"
    )
    messages, corrupt = decode_records(encode_record(topic="orders", body=b"fine") + record)
    assert corrupt == []
    assert messages[0].body == b"fine"
    with pytest.raises(
        CorruptMessageError, match=r"message CAFE of orders at queue offset 17: .* 0x3610a686, stored is 0x00000001"
    ) as error:
        _ = messages[1].body
    assert error.value.position == messages[0].store_size
    assert messages[1].tags is None
    assert "CAFE" in repr(messages[1])


def test_checksum_zero_is_not_checked() -> None:
    assert decode_record(encode_record(topic="t", body=b"hello", body_crc=0)).body == b"hello"


@pytest.mark.parametrize("codec", Codec)
def test_compressed_bodies_are_inflated_once_and_the_flag_says_so(codec: Codec) -> None:
    packed = compress(b"x" * 5000, codec)
    message = decode_record(encode_record(topic="t", body=packed, sys_flag=with_codec(0, codec)))
    assert message.body == b"x" * 5000
    assert message.body is message.body
    assert message.body_size == len(packed)
    assert message.sys_flag == codec.bits


def test_compressed_without_a_type_is_zlib() -> None:
    packed = compress(b"x" * 50, Codec.ZLIB)
    assert decode_record(encode_record(topic="t", body=packed, sys_flag=COMPRESSED)).body == b"x" * 50


@pytest.mark.parametrize("flag", [COMPRESSED, *(with_codec(0, codec) for codec in Codec), COMPRESSED | 5 << 8], ids=hex)
def test_body_that_cannot_be_inflated_fails_alone(flag: int) -> None:
    bad = encode_record(topic="t", body=b"not compressed", sys_flag=flag, properties="UNIQ_KEY\x01CAFE\x02")
    good = encode_record(topic="t", body=b"fine")
    messages, corrupt = decode_records(good + bad + good)
    assert corrupt == []
    assert [messages[0].body, messages[2].body] == [b"fine", b"fine"]
    with pytest.raises(CorruptMessageError, match="message CAFE of t"):
        _ = messages[1].body


def test_missing_codec_fails_alone_and_names_message_and_package(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress(b"hello", Codec.LZ4)
    flag = with_codec(0, Codec.LZ4)
    bad = encode_record(topic="t", body=packed, sys_flag=flag, properties="UNIQ_KEY\x01CAFE\x02")
    messages, _ = decode_records(bad + encode_record(topic="t", body=b"fine"))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "lz4.frame", None)
        with pytest.raises(MissingCodecError, match=r"message CAFE of t .* rocketstream\[speed\]"):
            _ = messages[0].body
        assert messages[1].body == b"fine"
    assert messages[0].body == b"hello"


def test_size_limit_of_inflated_bodies() -> None:
    record = encode_record(topic="t", body=compress(bytes(1000), Codec.ZLIB), sys_flag=COMPRESSED)
    assert len(decode_record(record, max_body_size=1000).body) == 1000
    with pytest.raises(CorruptMessageError, match="999 bytes allowed"):
        _ = decode_record(record, max_body_size=999).body


def test_offsets_of_the_response_are_properties_and_the_broker_is_named() -> None:
    record = encode_record(topic="t", body=b"", queue_id=9, properties="MIN_OFFSET\x01old\x02TAGS\x01a\x02")
    queue = MessageQueue("t", "broker-a", 3)
    messages, _ = decode_records(record * 2, queue=queue, min_offset=5, max_offset=99)
    for message in messages:
        assert message.properties == {"TAGS": "a", "MIN_OFFSET": "5", "MAX_OFFSET": "99"}
        assert (message.broker_name, message.queue_id) == ("broker-a", 3)
        assert message.queue is queue


def test_message_without_a_unique_id_has_its_offset_id() -> None:
    message = decode_record(encode_record(topic="t", body=b"", store_host="1.2.3.4:5", commit_log_offset=6))
    assert message.message_id == message.offset_message_id == "01020304000000050000000000000006"


def test_properties_that_are_not_utf8_are_read_with_marks() -> None:
    record = bytearray(encode_record(topic="t", body=b"", properties="TAGS\x01abc\x02"))
    record[-3] = 0xFF
    message = decode_record(bytes(record))
    assert message.tags == "a\ufffdc"
    assert message.properties == {"TAGS": "a\ufffdc"}


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="room for 127"):
        encode_record(topic="t" * 128, body=b"", magic=MAGIC_V1)
    with pytest.raises(ConfigurationError, match="room for 32767"):
        encode_record(topic="t" * 32768, body=b"")
    with pytest.raises(ConfigurationError, match="32768 bytes"):
        encode_record(topic="t", body=b"", properties="x" * 32768)
    with pytest.raises(ConfigurationError, match="localhost"):
        encode_record(topic="t", body=b"", store_host="localhost:1")
