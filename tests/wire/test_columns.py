from __future__ import annotations

import pkgutil
import struct
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import rocketstream.wire
from rocketstream.errors import ConfigurationError, CorruptMessageError, MissingCodecError
from rocketstream.wire import columns as columns_module
from rocketstream.wire.batch import BatchItem, encode_batch
from rocketstream.wire.columns import COLUMNS, Pulled, arrow_schema, read_columns
from rocketstream.wire.compression import compress
from rocketstream.wire.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from rocketstream.wire.sysflag import COMPRESSED, INNER_BATCH, NEED_UNWRAP, Codec, with_codec
from tests.wire.column_rows import OTHER, QUEUE, TIMES, UNIQUE, check, expected, record, rows_of

INNER = INNER_BATCH | NEED_UNWRAP


@pytest.fixture
def no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the record decoder was asked")

    monkeypatch.setattr(columns_module, "decode_records", refuse)


# --- property-based ---------------------------------------------------------------------------------------------

HOSTS = st.sampled_from(["127.0.0.1:10911", "10.1.2.255:65535", "[::1]:1", "[fe80::1:ffff]:10911"])
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
MILLIS = st.integers(0, 2**41) | INT64
# Names that are asked for, that begin or end like them, that are equal in their first or last eight bytes.
LONG_NAMES = [b"a-name-of-many-bytes", b"a-name-OF-many-bytes", b"UNIQ_KEYS", "Größe".encode()]
SHORT_NAMES = [b"TAGS", b"KEYS", b"UNIQ_KEY", b"TAG", b"TAGS\0", b"XTAGS", b"WAIT", b"a", b""]
NAMES = st.sampled_from(LONG_NAMES + SHORT_NAMES) | st.binary(max_size=4)
ODD_VALUES = [b"", b"paid", b"true", "größer".encode(), "😀".encode(), b"\xe2\x82", b"\xff"]
VALUES = st.sampled_from(ODD_VALUES) | st.binary(max_size=9)
SCRAPS = st.sampled_from([b"\x01", b"\x02", b"TAGS", b"KEYS", b"x", b"\xc3", b"\xa9", b"\0"])
PIECES = st.tuples(NAMES, st.sampled_from([b"\x01"] * 8 + [b"", b"\x01\x01"]), VALUES).map(b"".join)
PROPERTIES = st.one_of(
    st.lists(PIECES, max_size=6).map(b"\x02".join),
    st.lists(PIECES, max_size=6).map(lambda pieces: b"".join(piece + b"\x02" for piece in pieces)),
    st.lists(SCRAPS, max_size=12).map(b"".join),
    st.just(b"TAGS\x01a\x02KEYS\x01k\x02" + UNIQUE),
)
TOPICS = st.sampled_from(["orders"] * 5 + ["refunds", "order", "", "bestellungen-ü", "t" * 127, "t" * 300])
BATCHES = st.lists(
    st.builds(
        BatchItem,
        st.binary(max_size=9),
        st.sampled_from(["", "TAGS\x01a\x02TAGS\x01b", "KEYS\x01k\x02"]),
        INT32,
    ),
    max_size=3,
)


ODD_FLAGS = [INNER_BATCH, NEED_UNWRAP, 0x2, 0x8, 0x700, COMPRESSED, 0x701, ~0xF1]
ODD_BYTES = [b"\xff", struct.pack(">II", 20, MAGIC_BLANK), bytes(4)]


@st.composite
def records(draw: st.DrawFn) -> bytes:
    body = draw(st.binary(max_size=20))
    sys_flag = draw(st.sampled_from([0] * 6 + ODD_FLAGS))
    kind = draw(st.sampled_from(["plain"] * 6 + ["compressed", "batch", "compressed batch", "broken batch"]))
    if "batch" in kind:
        body, sys_flag = encode_batch(draw(BATCHES)) + (b"x" if kind == "broken batch" else b""), INNER
    if "compressed" in kind:
        codec = draw(st.sampled_from(Codec))
        body, sys_flag = compress(body, codec), with_codec(sys_flag, codec)
    topic = draw(TOPICS)
    return record(
        draw(st.integers(0, 30) | INT64),
        topic=topic,
        body=body,
        properties=draw(PROPERTIES),
        sys_flag=sys_flag,
        queue_id=draw(INT32),
        flag=draw(INT32),
        commit_log_offset=draw(INT64),
        born_timestamp=draw(MILLIS),
        store_timestamp=draw(MILLIS),
        born_host=draw(HOSTS),
        store_host=draw(HOSTS),
        reconsume_times=draw(INT32),
        body_crc=draw(st.sampled_from([None] * 6 + [0, 1, 2**31, 2**32 - 1])),
        magic=draw(st.sampled_from([MAGIC_V1, MAGIC_V2])) if len(topic.encode()) < 128 else MAGIC_V2,
    )


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    body = b"".join(draw(st.lists(records(), max_size=6)))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(body)))
        lost = draw(st.sampled_from([0, 1, 1, 4, 50]))
        gained = draw(st.binary(max_size=4) | st.sampled_from(ODD_BYTES))
        body = body[:at] + gained + body[at + lost :]
    return body


OFFSETS = st.none() | st.integers(0, 30)
PULLED = st.builds(Pulled, st.sampled_from([QUEUE, OTHER]), responses(), OFFSETS, OFFSETS)
PROJECTIONS = st.just(COLUMNS) | st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True).map(tuple)


@settings(max_examples=400, deadline=None)
@given(st.lists(PULLED, max_size=3), PROJECTIONS)
@pytest.mark.slow(12, "compares many generated messages")
def test_rows_are_the_record_decoders(pulled: list[Pulled], names: tuple[str, ...]) -> None:
    check(pulled, names)


@settings(max_examples=400, deadline=None)
@given(st.lists(PROPERTIES, min_size=1, max_size=8))
@pytest.mark.slow(8, "compares many generated messages")
def test_properties_are_the_record_decoders(properties: list[bytes]) -> None:
    body = b"".join(record(n, properties=raw) for n, raw in enumerate(properties))
    check([Pulled(QUEUE, body)])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.sampled_from([b"a", b"b", b"TAGS"]), max_size=3), min_size=1, max_size=40))
def test_repeated_name_shows_the_last_value_in_the_first_place(rows: list[list[bytes]]) -> None:
    texts = [b"".join(b"%s\x01%d\x02" % (name, n) for n, name in enumerate(names)) for names in rows]
    check([Pulled(QUEUE, b"".join(record(n, properties=text) for n, text in enumerate(texts)))])


@pytest.mark.parametrize("count", [5, 24, 25, 40])
@pytest.mark.parametrize("name", ["{}", "{}-name-of-many-bytes", "a-name-of-many-bytes-{}", "a-name-{}-of-many-bytes"])
def test_repeated_name_among_many(count: int, name: str) -> None:
    names = [name.format(number) for number in range(count)]
    texts = [names, [*names[1:], names[1]], [names[-1], *names], [], names]
    body = b"".join(
        record(row, properties="".join(f"{each}\x01{n}\x02" for n, each in enumerate(some)).encode())
        for row, some in enumerate(texts)
    )
    check([Pulled(QUEUE, body)])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_reported(body: bytes) -> None:
    check([Pulled(QUEUE, body), Pulled(OTHER, record(1))])


# --- by example -------------------------------------------------------------------------------------------------


def test_all_columns_of_one_message() -> None:
    body = record(
        7,
        body=b"\x00\xff",
        properties=b"TAGS\x01paid\x02KEYS\x01k1 k2\x02" + UNIQUE,
        born_timestamp=1_700_000_000_123,
        store_timestamp=1_700_000_000_456,
        reconsume_times=2,
        queue_id=9,
    )
    [row] = rows_of(read_columns([Pulled(QUEUE, body)]))
    assert row == {
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 3,
        "queue_offset": 7,
        "message_id": "7F00000100002A139A5506A1000000AB",
        "tags": "paid",
        "keys": "k1 k2",
        "body": b"\x00\xff",
        "born_timestamp": 1_700_000_000_123_000,
        "store_timestamp": 1_700_000_000_456_000,
        "reconsume_times": 2,
        "properties": [("TAGS", "paid"), ("KEYS", "k1 k2"), ("UNIQ_KEY", "7F00000100002A139A5506A1000000AB")],
    }


@pytest.mark.parametrize("names", [COLUMNS, ("body", "topic"), tuple(reversed(COLUMNS))])
def test_no_message_is_no_row(names: tuple[str, ...]) -> None:
    for pulled in ([], [Pulled(QUEUE, b"")], [Pulled(QUEUE, record(5), 6)]):
        assert check(pulled, names).batch.num_rows == 0


@pytest.mark.usefixtures("no_decoder")
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"properties": b"TAGS\x01a\x02" + UNIQUE},
        {"properties": b"TAGS\x01a\x02" + UNIQUE[:-1]},
        {"properties": b"TAGS\x01\x02KEYS\x01a\x01b\x02\x01c\x02plain\x02\x02"},
        {"properties": "TAGS\x01größer\x02Größe\x01😀".encode()},
        {"store_host": "[::1]:1", "born_host": "[::1]:2"},
        {"magic": MAGIC_V2},
        {"topic": "t" * 300},
        {"topic": "ü"},
        {"sys_flag": INNER_BATCH},
        {"body": b""},
        {"body": b"", "body_crc": 5},
        {"body_crc": 0},
        {"born_timestamp": 2**63 - 1, "store_timestamp": -(2**63)},
    ],
    ids=repr,
)
def test_the_decoder_is_not_asked_for_sound_records(more: dict[str, Any]) -> None:
    body = record(0, properties=UNIQUE) + record(1, **more) + record(2, properties=UNIQUE)
    columns = read_columns([Pulled(QUEUE, body), Pulled(OTHER, body)])
    rows, _ = expected([Pulled(QUEUE, body), Pulled(OTHER, body)], COLUMNS)
    assert rows_of(columns) == rows


@pytest.mark.usefixtures("no_decoder")
def test_offset_ids_stand_in_for_unique_ids() -> None:
    hosts = ["[::1]:10911", "10.0.0.1:10911", "[::2]:10911", "10.0.0.2:10911"]
    body = b"".join(record(n, store_host=host, commit_log_offset=n) for n, host in enumerate(hosts))
    body += record(4, properties=UNIQUE) + record(5, commit_log_offset=255)
    rows, _ = expected([Pulled(QUEUE, body)], ["message_id"])
    assert rows[3] == {"message_id": "0A00000200002A9F0000000000000003"}
    assert rows_of(read_columns([Pulled(QUEUE, body)], ["message_id"])) == rows


@pytest.mark.parametrize("name", ["TAGS", "KEYS", "UNIQ_KEY"])
def test_names_that_only_begin_alike_are_others(name: str) -> None:
    for other in (f"{name}\0", f"{name}S", name[:-1], f"X{name}", name.lower()):
        body = record(0, properties=f"{other}\x01v\x02".encode())
        row = check([Pulled(QUEUE, body)]).batch.to_pylist()[0]
        assert "v" not in (row["tags"], row["keys"], row["message_id"])


def test_odd_records_keep_their_place() -> None:
    batch = encode_batch([BatchItem(b"one"), BatchItem(b"two")])
    body = b"".join(
        [
            record(0),
            record(1, body=compress(b"packed", Codec.ZLIB), sys_flag=with_codec(0, Codec.ZLIB)),
            record(2),
            record(3, body=batch, sys_flag=INNER),
            record(5, body_crc=1),
            record(6, properties=b"a\x011\x02a\x012\x02"),
            record(7, properties=b"TAGS\x01\xff\x02"),
            record(8),
        ]
    )
    columns = check([Pulled(QUEUE, body), Pulled(OTHER, record(0))])
    bodies = [b"hi", b"packed", b"hi", b"one", b"two", None, b"hi", b"hi", b"hi", b"hi"]
    assert columns.batch["body"].to_pylist() == bodies
    assert columns.batch["queue_offset"].to_pylist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]


def test_body_that_cannot_be_read_is_null_and_reported() -> None:
    body = record(4) + record(5, body_crc=1)
    [problem] = check([Pulled(OTHER, record(1)), Pulled(QUEUE, body)]).unreadable
    assert (problem.queue, problem.queue_offset) == (QUEUE, 5)
    assert isinstance(problem.error, CorruptMessageError)
    assert problem.error.position == len(record(4))
    assert check([Pulled(QUEUE, body)], ["queue_offset", "tags"]).unreadable == []


def test_missing_codec_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    body = record(4) + record(5, body=compress(b"packed", Codec.LZ4), sys_flag=with_codec(0, Codec.LZ4))
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    monkeypatch.setitem(sys.modules, "lz4", None)
    [problem] = check([Pulled(QUEUE, body)]).unreadable
    assert isinstance(problem.error, MissingCodecError)


def test_damage_costs_no_other_response() -> None:
    damaged = record(1) + b"garbage" * 20 + record(2)
    columns = check([Pulled(QUEUE, record(0)), Pulled(QUEUE, damaged), Pulled(OTHER, record(3))])
    assert columns.batch["queue_offset"].to_pylist() == [0, 1, 2, 3]
    [problem] = columns.unreadable
    assert (problem.queue, problem.queue_offset, problem.error.position) == (QUEUE, None, len(record(1)))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("at", "patch"),
    [
        (4, "daa320a8"),  # another magic
        (36, "00000030"),  # two IPv6 hosts, which leave no room for the rest
        (84, "80000000"),  # a body of two gigabytes
        (84, "00000004"),  # a body up to the record's last bytes
        (0, "0000005a"),  # too small a size
        (0, "00000000"),
    ],
)
@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
def test_damaged_head_is_reported_wherever_it_is(at: int, patch: str, magic: int) -> None:
    smallest = record(1, topic="", body=b"", magic=magic)
    damaged = smallest[:at] + bytes.fromhex(patch) + smallest[at + 4 :]
    for body in (damaged, damaged + record(2), record(0) + damaged, record(0) + damaged + record(2)):
        columns = check([Pulled(QUEUE, body), Pulled(OTHER, b"")])
        assert 1 not in columns.batch["queue_offset"].to_pylist()
        assert len(columns.unreadable) == 1


def test_topic_that_is_not_utf8_is_reported() -> None:
    wrong = record(1).replace(b"orders", b"orde\xffs")
    assert check([Pulled(QUEUE, record(0) + wrong + record(2))]).batch.num_rows == 2
    assert check([Pulled(QUEUE, wrong)], ["body"]).batch.num_rows == 0


def test_offsets_cut_batches_too() -> None:
    batch = encode_batch([BatchItem(b"%d" % n) for n in range(4)])
    body = record(3, body=batch, sys_flag=INNER) + record(7) + record(8)
    columns = check([Pulled(QUEUE, body, 5, 8)])
    assert columns.batch["queue_offset"].to_pylist() == [5, 6, 7]


def test_offset_that_is_too_large_for_a_column_is_null() -> None:
    body = record(2**63 - 1, body=encode_batch([BatchItem(b"one"), BatchItem(b"two")]), sys_flag=INNER)
    assert check([Pulled(QUEUE, body)]).batch["queue_offset"].to_pylist() == [2**63 - 1, None]


@pytest.mark.usefixtures("no_decoder")
def test_unread_columns_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "crc32", None)
    monkeypatch.setattr(columns_module, "PropertyTable", None)
    body = record(0, body=b"not zlib", sys_flag=COMPRESSED, properties=b"\xff\x01\xff\x02")
    names = ["topic", "broker_name", "queue_id", "queue_offset", "born_timestamp", "store_timestamp", "reconsume_times"]
    assert read_columns([Pulled(QUEUE, body)], names).batch.num_rows == 1


def test_more_than_arrow_can_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "_MAX_BYTES", 1000)
    packed = record(0, body=compress(bytes(2000), Codec.ZLIB), sys_flag=with_codec(0, Codec.ZLIB))
    for body in (packed, record(0) * 20):
        with pytest.raises(ConfigurationError, match="read fewer at a time"):
            read_columns([Pulled(QUEUE, body)])


# --- the schema -------------------------------------------------------------------------------------------------


def test_schema_is_what_pyspark_wants() -> None:
    kinds: dict[str, DataType] = dict.fromkeys(COLUMNS, StringType())
    kinds |= {"queue_id": IntegerType(), "reconsume_times": IntegerType(), "queue_offset": LongType()}
    kinds |= {"body": BinaryType(), "properties": MapType(StringType(), StringType())}
    kinds |= dict.fromkeys(TIMES, TimestampType())
    wanted = to_arrow_schema(StructType([StructField(name, kind) for name, kind in kinds.items()]), timezone="UTC")
    assert arrow_schema().equals(wanted, check_metadata=True)
    packed = record(1, body=compress(b"packed", Codec.ZLIB), sys_flag=with_codec(0, Codec.ZLIB))
    for body in (b"", record(0, properties=UNIQUE), record(0) + packed):
        assert read_columns([Pulled(QUEUE, body)]).batch.schema.equals(wanted, check_metadata=True)


@pytest.mark.parametrize("names", [[], ["topic", "offset"]])
def test_unknown_columns_are_refused(names: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="a message has topic, broker_name"):
        read_columns([], names)


def test_only_the_columns_need_numpy_and_arrow() -> None:
    names = {found.name for found in pkgutil.iter_modules(rocketstream.wire.__path__)}
    others = [f"rocketstream.wire.{name}" for name in names - {"columns", "property_table", "record_table"}]
    code = f"import sys; sys.modules['numpy'] = sys.modules['pyarrow'] = None; import {', '.join(others)}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
