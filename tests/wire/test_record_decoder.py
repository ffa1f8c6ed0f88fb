from __future__ import annotations

import struct
import sys
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.errors import CorruptMessageError, MissingCodecError, ProtocolError
from rocketstream.message import MessageQueue
from rocketstream.wire.batch import BatchItem, encode_batch
from rocketstream.wire.compression import compress
from rocketstream.wire.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, encode_record
from rocketstream.wire.record_decoder import CorruptRecord, DecodedRecords, decode_record, decode_records
from rocketstream.wire.sysflag import INNER_BATCH, NEED_UNWRAP, Codec, with_codec

INNER = INNER_BATCH | NEED_UNWRAP


def record(offset: int, *, topic: str = "orders", body: bytes = b"hello", **fields: object) -> bytes:
    return encode_record(topic=topic, body=body, queue_offset=offset, properties="TAGS\x01a\x02", **fields)  # type: ignore[arg-type]


def offsets(decoded: DecodedRecords) -> list[int]:
    return [message.queue_offset for message in decoded.messages]


def patched(data: bytes, at: int, patch: bytes) -> bytes:
    return data[:at] + patch + data[at + len(patch) :]


def u32(number: int) -> bytes:
    return struct.pack(">I", number)


def test_nothing_is_nothing() -> None:
    assert decode_records(b"") == ([], [])


def test_records_of_every_shape_follow_one_another() -> None:
    shapes = [
        {},
        {},
        {"topic": "other"},
        {"topic": "t" * 200},
        {"topic": "t" * 200},
        {"magic": MAGIC_V2},
        {"store_host": "[::1]:1"},
        {"store_host": "[::1]:1"},
        {"born_host": "[::1]:1"},
        {"born_host": "[::1]:1", "store_host": "[::1]:2"},
        {"topic": ""},
        {"body": b""},
        {"topic": "orders_longer"},
        {"topic": "orders"},
        {"sys_flag": INNER_BATCH},
        {"sys_flag": NEED_UNWRAP},
        {"sys_flag": 0x2},
    ]
    messages, corrupt = decode_records(b"".join(record(n, **shape) for n, shape in enumerate(shapes)))  # type: ignore[arg-type]
    assert corrupt == []
    for message, (n, shape) in zip(messages, enumerate(shapes), strict=True):
        assert message.queue_offset == n
        assert message.topic == shape.get("topic", "orders")
        assert message.body == shape.get("body", b"hello")
        assert message.store_host == shape.get("store_host", "127.0.0.1:0")
        assert message.tags == "a"


# --- damage -----------------------------------------------------------------------------------------------------

BODIES = [b"hello", b"", b"x" * 300, record(7, topic="inside") * 2]
SIZE = len(record(0))


@pytest.mark.parametrize("version", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("body", BODIES, ids=["short", "empty", "long", "records"])
@pytest.mark.parametrize(
    ("at", "patch", "reason"),
    [
        (0, u32(0), "its size is 0 bytes"),
        (0, u32(2**32 - 1), "its size is 4294967295 bytes"),
        (0, u32(90), "its size is 90 bytes"),
        (0, u32(150), "its size is 150 bytes"),
        (4, u32(0), "its magic is 0x00000000"),
        (4, u32(0xDAA320A8), "its magic is 0xdaa320a8"),
        (84, u32(2**31), "its fields run past the end"),
        (84, u32(1), "its fields"),
        (36, b"\x00\x00\x00\x30", "its fields"),
    ],
)
@pytest.mark.parametrize("where", [0, 1, 2])
def test_damaged_record_is_reported_and_its_neighbours_kept(
    at: int, patch: bytes, reason: str, body: bytes, version: int, where: int
) -> None:
    records = [record(n, body=body, magic=version) for n in range(3)]
    records[where] = patched(records[where], at, patch)
    decoded = decode_records(b"".join(records))
    assert offsets(decoded) == [n for n in range(3) if n != where]
    assert [message.body for message in decoded.messages] == [body] * 2
    [corrupt] = decoded.corrupt
    assert corrupt[:2] == (where * len(records[0]), len(records[0]))
    assert reason in corrupt.reason


def test_several_damaged_records_side_by_side() -> None:
    records = [record(n) for n in range(6)]
    for n in (1, 2):
        records[n] = patched(records[n], 4, b"\xff")
    records[4] = patched(records[4], 0, u32(1))
    decoded = decode_records(b"".join(records))
    assert offsets(decoded) == [0, 3, 5]
    assert [(c.position, c.size) for c in decoded.corrupt] == [(SIZE, SIZE), (2 * SIZE, SIZE), (4 * SIZE, SIZE)]


@pytest.mark.parametrize("kept", range(1, SIZE))
def test_record_that_lost_its_end_costs_only_itself(kept: int) -> None:
    for after in ([2], [2, 3]):
        decoded = decode_records(record(0) + record(1)[:kept] + b"".join(record(n) for n in after))
        assert offsets(decoded) == [0, *after]
        [corrupt] = decoded.corrupt
        assert corrupt[:2] == (SIZE, kept)


@pytest.mark.parametrize("kept", range(1, SIZE))
def test_response_that_was_cut_keeps_what_came(kept: int) -> None:
    decoded = decode_records(record(0) + record(1)[:kept])
    assert offsets(decoded) == [0]
    [corrupt] = decoded.corrupt
    assert corrupt[:2] == (SIZE, kept)
    assert "too few" in corrupt.reason or "are left" in corrupt.reason or "magic" in corrupt.reason


def test_garbage_between_records_is_one_report() -> None:
    decoded = decode_records(record(0) + b"garbage \xda\xa3\x20\xa7 and more garbage" * 9 + record(1))
    assert offsets(decoded) == [0, 1]
    assert [c.position for c in decoded.corrupt] == [SIZE]


def test_topic_that_is_not_utf8_is_reported() -> None:
    bad = record(1).replace(b"orders", b"orde\xffs")
    decoded = decode_records(record(0) + bad + record(2))
    assert offsets(decoded) == [0, 2]
    assert decoded.corrupt == [CorruptRecord(SIZE, SIZE, "its topic is not UTF-8")]


def test_a_size_that_became_that_of_two_records_costs_the_next_one_nothing() -> None:
    decoded = decode_records(record(0) + patched(record(1), 0, u32(2 * SIZE)) + record(2) + record(3))
    assert offsets(decoded) == [0, 2, 3]
    reason = f"its size is {2 * SIZE} bytes, its fields take {SIZE}"
    assert decoded.corrupt == [CorruptRecord(SIZE, SIZE, reason)]


@given(st.data())
def test_damage_anywhere_keeps_the_records_after_the_next(data: st.DataObject) -> None:
    """Whatever one byte becomes, the record is told from its neighbours; only itself may be lost."""
    at = data.draw(st.integers(0, SIZE - 1))
    value = data.draw(st.integers(0, 255))
    damaged = patched(record(1), at, bytes([value]))
    decoded = decode_records(record(0) + damaged + record(2) + record(3))
    found = [(message._position, message.queue_offset) for message in decoded.messages]
    assert (0, 0) in found
    assert {(2 * SIZE, 2), (3 * SIZE, 3)} <= set(found)
    assert len(found) + len(decoded.corrupt) == 4
    assert all(corrupt.position == SIZE for corrupt in decoded.corrupt)


def look_at_everything(buffer: bytes) -> None:
    messages, corrupt = decode_records(buffer, max_body_size=100_000)
    spans = sorted([(m._position, m.store_size) for m in messages if m.store_size] + [c[:2] for c in corrupt])
    assert all(start + size <= following for (start, size), (following, _) in pairwise(spans))
    for message in messages:
        repr(message)
        assert message.properties.get("TAGS") == message.tags
        with suppress(ProtocolError):
            assert isinstance(message.body, bytes)


@given(st.binary(max_size=400))
def test_arbitrary_bytes(buffer: bytes) -> None:
    look_at_everything(buffer)


@given(st.data())
def test_records_with_arbitrary_damage(data: st.DataObject) -> None:
    flags = st.sampled_from([0, INNER, 0x101, 0x201, 0x301, INNER | 1])
    bodies = st.sampled_from([b"hello", encode_batch([BatchItem(b"a"), BatchItem(b"b")])])
    buffer = bytearray(
        b"".join(
            record(n, body=data.draw(bodies), sys_flag=data.draw(flags), body_crc=0)
            for n in range(data.draw(st.integers(1, 5)))
        )
    )
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(buffer) - 1))
        patch = data.draw(st.binary(min_size=1, max_size=4))
        if data.draw(st.booleans()):
            buffer[at : at + len(patch)] = patch
        else:
            del buffer[at : at + len(patch)]
    look_at_everything(bytes(buffer))


@pytest.mark.parametrize(
    "pattern",
    [
        b"\x00",
        b"\xda\xa3\x20\xa7",
        b"\x00\x00\x00\x5b\xda\xa3\x20\xa7",
        b"\x00\x00\xff\xff\xda\xa3\x20\xab",
        b"\x7f\xff\xff\xff\xda\xa3\x20\xa7" + bytes(80),
        record(0)[:-1],
        patched(record(0), 0, u32(200)),
    ],
    ids=lambda pattern: pattern[:8].hex(),
)
def test_garbage_takes_work_that_grows_with_its_size_only(pattern: bytes) -> None:
    def calls(size: int) -> int:
        buffer = (pattern * (size // len(pattern) + 1))[:size]
        count = 0

        def count_one(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(count_one)
        try:
            decode_records(buffer)
        finally:
            sys.setprofile(None)
        return count

    # 4 times the bytes may take 4 times the calls and some; quadratic would be 16 times.
    assert calls(400_000) <= 6 * calls(100_000) + 100


# --- blanks and single records ----------------------------------------------------------------------------------


@pytest.mark.parametrize("claimed", [20, 10_000])
def test_blank_end_of_a_commit_log_file_is_not_damage(claimed: int) -> None:
    blank = u32(claimed) + u32(MAGIC_BLANK) + bytes(12)
    decoded = decode_records(record(0) + blank + (record(1) if claimed == 20 else b""))
    assert decoded.corrupt == []
    assert offsets(decoded) == ([0, 1] if claimed == 20 else [0])


def test_one_record() -> None:
    message = decode_record(record(5), broker_name="broker-a")
    assert (message.queue_offset, message.body, message.broker_name) == (5, b"hello", "broker-a")


@pytest.mark.parametrize(
    "answer", [b"", b"short", record(0)[:-1], patched(record(0), 4, b"\x00"), u32(8) + u32(MAGIC_BLANK)]
)
def test_one_record_that_is_none(answer: bytes) -> None:
    with pytest.raises(CorruptMessageError, match=r"record at byte 0 of the response"):
        decode_record(answer)


# --- inner batches ----------------------------------------------------------------------------------------------

ITEMS = [
    BatchItem(b"one", "UNIQ_KEY\x01ID1\x02TAGS\x01x\x02", 4),
    BatchItem(b"", ""),
    BatchItem(b"three", "UNIQ_KEY\x01ID3\x02", -1),
]


@pytest.mark.parametrize("codec", [None, *Codec])
def test_inner_batches_become_their_messages(codec: Codec | None) -> None:
    body = encode_batch(ITEMS)
    batch = record(
        100,
        body=body if codec is None else compress(body, codec),
        sys_flag=with_codec(INNER, codec),
        queue_id=3,
        born_host="10.0.0.1:5",
        store_host="10.0.0.2:6",
        born_timestamp=11,
        store_timestamp=12,
        commit_log_offset=13,
        reconsume_times=2,
    )
    queue = MessageQueue("orders", "broker-a", 3)
    decoded = decode_records(record(99) + batch + record(103), queue=queue, min_offset=1, max_offset=200)
    assert decoded.corrupt == []
    assert offsets(decoded) == [99, 100, 101, 102, 103]
    inner = decoded.messages[1:4]
    assert [message.body for message in inner] == [b"one", b"", b"three"]
    assert [message.flag for message in inner] == [4, 0, -1]
    assert [message.tags for message in inner] == ["x", None, None]
    assert inner[0].message_id == "ID1"
    assert inner[1].message_id == inner[1].offset_message_id == "0A00000200000006000000000000000D"
    for message, item in zip(inner, ITEMS, strict=True):
        assert message.body_size == len(item.body)
        assert (message.topic, message.queue, message.queue_id) == ("orders", queue, 3)
        assert (message.born_host, message.store_host) == ("10.0.0.1:5", "10.0.0.2:6")
        assert (message.born_timestamp, message.store_timestamp, message.commit_log_offset) == (11, 12, 13)
        assert message.sys_flag == with_codec(INNER, codec) & ~1
        assert (message.properties["MIN_OFFSET"], message.properties["MAX_OFFSET"]) == ("1", "200")
        assert message.reconsume_times == 0


@pytest.mark.parametrize(
    ("body", "crc", "reason"),
    [
        (encode_batch(ITEMS)[:-1], None, "inner batch that cannot be unpacked"),
        (encode_batch(ITEMS), 1, "checksum"),
    ],
)
def test_inner_batch_that_cannot_be_unpacked_fails_alone(body: bytes, crc: int | None, reason: str) -> None:
    decoded = decode_records(record(0) + record(1, body=body, sys_flag=INNER, body_crc=crc) + record(9))
    assert decoded.corrupt == []
    assert offsets(decoded) == [0, 1, 9]
    with pytest.raises(CorruptMessageError, match=reason):
        _ = decoded.messages[1].body
    assert [decoded.messages[n].body for n in (0, 2)] == [b"hello"] * 2


def test_inner_batch_without_its_codec_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = with_codec(INNER, Codec.LZ4)
    buffer = record(0, body=compress(encode_batch(ITEMS), Codec.LZ4), sys_flag=flag)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    [message], _ = decode_records(buffer)
    with pytest.raises(MissingCodecError, match="lz4"):
        _ = message.body


def test_inner_batch_by_id_stays_one_message() -> None:
    body = encode_batch(ITEMS)
    assert decode_record(record(1, body=body, sys_flag=INNER)).body == body
