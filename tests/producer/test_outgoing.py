"""Messages made ready for the wire: once, with their id, their flags and their names."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstream.clock import ManualClock, SystemClock
from rocketstream.errors import ConfigurationError
from rocketstream.message import Message
from rocketstream.producer import outgoing
from rocketstream.producer.outgoing import Outgoing, Preparation, ProcessIds
from rocketstream.producer.settings import ProducerSettings
from rocketstream.producer.validation import check_batch
from rocketstream.wire.batch import MIN_ITEM_SIZE, decode_batch
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.compression import decompress
from rocketstream.wire.message_id import UniqueIds, decode_unique_id
from rocketstream.wire.properties import decode_properties, encode_properties, message_properties, message_text
from rocketstream.wire.sysflag import Codec, TransactionType, codec_of, is_compressed, transaction_type


def preparation(**others) -> Preparation:
    return Preparation(ProducerSettings(group="g", **others), ManualClock())


def properties(out: Outgoing) -> dict[str, str]:
    return decode_properties(out.fields["i"])


def test_the_header_of_a_message():
    message = Message("t", b"x", tags="a", keys=["k", "l"], properties={"p": "ü中"}, flag=-7, sharding_key="s")
    out = preparation(default_topic_queue_nums=3, unit_mode=True).single(message)
    assert (out.message, out.topic, out.code, out.body, out.count) == (
        message,
        "t",
        RequestCode.SEND_MESSAGE_V2,
        b"x",
        1,
    )
    fields = dict(out.fields)
    fields.pop("i")
    born = str(ManualClock().wall_ms())
    assert fields == {
        "a": "g",
        "b": "t",
        "c": "TBW102",
        "d": "3",
        "e": "0",
        "f": "0",
        "g": born,
        "h": "-7",
        "j": "0",
        "k": "true",
        "m": "false",
    }
    assert properties(out) == {
        "p": "ü中",
        "TAGS": "a",
        "KEYS": "k l",
        "__SHARDINGKEY": "s",
        "UNIQ_KEY": out.message_id,
        "WAIT": "true",
    }


def test_messages_share_no_header():
    maker = preparation()
    one, other = maker.single(Message("t", b"1", flag=1)), maker.single(Message("t", b"2", flag=2))
    one.fields["e"] = "5"
    assert (one.fields["h"], other.fields["h"], other.fields["e"]) == ("1", "2", "0")
    assert maker.single(Message("t", b"3")).fields["e"] == "0"


def test_properties_of_our_own_and_the_kind_of_transaction():
    message = Message("t", b"x" * 5000)
    out = preparation().single(message, {"TRAN_MSG": "true"}, transaction=TransactionType.PREPARED)
    assert properties(out)["TRAN_MSG"] == "true"
    sys_flag = int(out.fields["f"])
    assert transaction_type(sys_flag) is TransactionType.PREPARED
    assert is_compressed(sys_flag)


@pytest.mark.parametrize(
    ("others", "name", "value"),
    [
        ({"delay_level": 3}, "DELAY", "3"),
        ({"delay": 1.5}, "TIMER_DELAY_MS", "1500"),
        ({"deliver_at": 1_700_000_000_000}, "TIMER_DELIVER_MS", "1700000000000"),
    ],
)
def test_delays_are_properties(others, name, value):
    assert properties(preparation().single(Message("t", b"x", **others)))[name] == value


# --- compression ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "compressed"), [(4095, False), (4096, True), (4097, True)])
def test_compression_begins_at_exactly_the_setting(size, compressed):
    out = preparation().single(Message("t", b"x" * size))
    assert is_compressed(int(out.fields["f"])) is compressed
    assert (len(out.body) < size) is compressed
    assert out.size == len(out.body)


@pytest.mark.parametrize(
    ("name", "codec"), [("zlib", Codec.ZLIB), ("lz4", Codec.LZ4), ("zstd", Codec.ZSTD)], ids=lambda value: str(value)
)
def test_each_codec_sets_its_flag_and_can_be_read_back(name, codec):
    body = b"some text " * 1000
    out = preparation(compression=name).single(Message("t", body))
    assert codec_of(int(out.fields["f"])) is codec
    assert decompress(out.body, codec) == body
    assert out.message.body is body, "the message itself stays as it was"


def test_the_level_is_used():
    body = bytes(range(256)) * 200
    out = preparation(compression_level=9).single(Message("t", body))
    assert out.body == zlib.compress(body, 9)
    assert preparation().single(Message("t", body)).body == zlib.compress(body, 5), "Java's level"


def test_compressing_nothing_and_everything():
    assert preparation(compress_over=1 << 30).single(Message("t", b"x" * 100_000)).fields["f"] == "0"
    assert is_compressed(int(preparation(compress_over=0).single(Message("t", b"x")).fields["f"]))


# --- ids ------------------------------------------------------------------------------------------------------------


def test_ids_are_javas_and_unique_across_threads():
    found: list[list[str]] = [[] for _ in range(8)]
    gate = threading.Barrier(8)
    ids = ProcessIds()

    def make(mine: list[str]) -> None:
        gate.wait()
        mine += [ids.next(1_700_000_000_000) for _ in range(2000)]

    threads = [threading.Thread(target=make, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [each for mine in found for each in mine]
    assert len(set(everything)) == 16_000
    parts = decode_unique_id(everything[0], 1_700_000_000_000)
    assert parts.counter < 16_000
    assert len({each[:20] for each in everything}) == 1, "one process, one prefix"


FORK = """
import os, sys
from rocketstream.producer.outgoing import process_ids
before = process_ids.next(1_700_000_000_000)
reader, writer = os.pipe()
child = os.fork()
mine = [process_ids.next(1_700_000_000_000) for _ in range(100)]
if not child:
    os.write(writer, ",".join(mine).encode())
    os._exit(0)
os.waitpid(child, 0)
os.close(writer)
with os.fdopen(reader) as told:
    theirs = told.read().split(",")
assert len({before, *mine, *theirs}) == 201, "ids are shared with the child"
assert mine[0][:20] == before[:20]
assert theirs[0][:20] != before[:20]
"""


def test_a_forked_child_makes_ids_of_its_own():
    subprocess.run([sys.executable, "-c", FORK], check=True)


def test_every_message_has_its_own_id():
    maker = preparation()
    message = Message("t", b"x")
    assert maker.single(message).message_id != maker.single(message).message_id
    assert message.properties == {}, "sending the same message twice is allowed"


# --- namespaces -----------------------------------------------------------------------------------------------------


def test_namespaces_wrap_what_goes_out():
    maker = preparation(namespace="ns")
    out = maker.single(Message("t", b"x"))
    assert (out.topic, out.fields["b"], out.fields["a"], out.fields["c"]) == ("ns%t", "ns%t", "ns%g", "TBW102")
    assert properties(out)["INSTANCE_ID"] == "ns"
    (batch,) = maker.batches([Message("t", b"x")])
    assert (batch.topic, batch.fields["b"], batch.fields["a"]) == ("ns%t", "ns%t", "ns%g")
    assert "INSTANCE_ID" not in properties(preparation().single(Message("t", b"x")))


# --- batches --------------------------------------------------------------------------------------------------------


def test_a_batch():
    messages = [Message("t", b"%d" % n, tags=f"tag{n}", flag=n) for n in range(3)]
    (out,) = preparation().batches(messages)
    assert (out.code, out.count, out.fields["m"], out.fields["f"]) == (RequestCode.SEND_BATCH_MESSAGE, 3, "true", "0")
    items = decode_batch(out.body)
    assert [(item.body, item.flag) for item in items] == [(b"0", 0), (b"1", 1), (b"2", 2)]
    assert [decode_properties(item.properties)["TAGS"] for item in items] == ["tag0", "tag1", "tag2"]
    ids = [decode_properties(item.properties)["UNIQ_KEY"] for item in items]
    assert out.message_id == ",".join(ids)
    # A broker may add the properties of the request to those of each message: an id here would hide their own.
    assert properties(out) == {"WAIT": "true"}


def test_a_batch_is_never_compressed():
    (out,) = preparation().batches([Message("t", b"x" * 5000)] * 2)
    assert out.fields["f"] == "0"
    assert [item.body for item in decode_batch(out.body)] == [b"x" * 5000] * 2


MESSAGE = st.builds(
    Message,
    st.just("t"),
    st.binary(min_size=1, max_size=400),
    properties=st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.text("aü中😀", min_size=1, max_size=40), max_size=2
    ),
)


@given(st.lists(MESSAGE, min_size=1, max_size=40), st.integers(100, 3000))
@settings(max_examples=200)
def test_batches_keep_the_order_and_stay_below_the_limit(messages, limit):
    batches = preparation(max_message_size=limit).batches(messages)
    items = [item for batch in batches for item in decode_batch(batch.body)]
    assert [item.body for item in items] == [message.body for message in messages]
    assert [batch.count for batch in batches] == [len(decode_batch(batch.body)) for batch in batches]
    assert ",".join(batch.message_id for batch in batches).count(",") == len(messages) - 1
    for batch in batches:
        assert len(batch.body) <= limit or batch.count == 1, "one message over the limit passes alone"
    for batch, following in itertools.pairwise(batches):
        first = decode_batch(following.body)[0]
        needed = MIN_ITEM_SIZE + len(first.body) + len(first.properties.encode())
        assert len(batch.body) + needed > limit, "the next message would have fitted"


def test_messages_that_were_made_ready_one_by_one_can_be_joined():
    maker = preparation()
    outs = [maker.single(Message("t", b"%d" % n, flag=n)) for n in range(3)]
    joined = maker.joined(outs)
    items = decode_batch(joined.body)
    assert [(item.body, item.flag) for item in items] == [(b"0", 0), (b"1", 1), (b"2", 2)]
    assert [decode_properties(item.properties)["UNIQ_KEY"] for item in items] == [out.message_id for out in outs]
    assert joined.message_id == ",".join(out.message_id for out in outs)


def test_headers_of_many_topics_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(outgoing, "_MAX_TEMPLATES", 10)
    maker = preparation()
    for n in range(100):
        assert maker.single(Message(f"t{n}", b"x")).fields["b"] == f"t{n}"
    assert len(maker._templates) <= 11


# --- the short ways lead to the same bytes ----------------------------------------------------------------------------

TEXT = st.one_of(st.none(), st.text("aü中😀 ", max_size=5))


@given(
    st.builds(
        Message,
        st.just("t"),
        st.just(b"x"),
        tags=TEXT,
        keys=TEXT,
        sharding_key=TEXT,
        properties=st.dictionaries(st.text("abc", min_size=1), st.text("aü", min_size=1), max_size=2),
        delay_level=st.integers(0, 2),
    )
)
def test_the_text_of_a_messages_properties(message):
    assert message_text(message, "ID") == encode_properties(message_properties(message, unique_id="ID"))


@pytest.mark.parametrize("what", ["tags", "keys", "sharding_key"])
@pytest.mark.parametrize("separator", ["\x01", "\x02", "\x02A\x01"])
def test_separators_are_refused_and_named(what, separator):
    message = Message("t", b"x", **{what: f"a{separator}b"})
    with pytest.raises(ConfigurationError, match=r"contains \\x01 or \\x02"):
        message_text(message, "ID")


def without_ids(out):
    items = decode_batch(out.body)
    ids = [decode_properties(item.properties)["UNIQ_KEY"] for item in items]
    assert out.message_id == ",".join(ids)
    assert len(set(ids)) == len(ids)
    assert {len(each) for each in ids} == {len(ids[0])}
    return [item._replace(properties=item.properties.replace(own, "")) for item, own in zip(items, ids, strict=True)]


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=30), st.sampled_from([None, "ns"]))
def test_bodies_that_are_encoded_together(bodies, namespace):
    maker = preparation(namespace=namespace)
    messages = [Message("t", body) for body in bodies]
    assert check_batch(messages, maker._settings) == bodies
    (together,) = maker.batches(messages, bodies)
    (one_by_one,) = maker.batches(messages)
    assert without_ids(together) == without_ids(one_by_one)
    for out in (together, one_by_one):
        out.body, out.message_id, out.fields["g"] = b"", "", ""
    assert together == one_by_one


def test_bodies_that_do_not_fit_together_are_split():
    maker = preparation(max_message_size=1000)
    messages = [Message("t", b"x" * 200) for _ in range(10)]
    batches = maker.batches(messages, [message.body for message in messages])
    assert [batch.count for batch in batches] == [3, 3, 3, 1]


def test_very_many_messages_have_their_own_ids():
    maker = Preparation(ProducerSettings(group="g", max_message_size=1 << 30), SystemClock())
    (out,) = maker.batches([Message("t", b"x")] * 70_000, [b"x"] * 70_000)
    assert len(set(out.message_id.split(","))) == 70_000


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("body", bytearray(b"x"), "is bytearray: it must be bytes"),
        ("body", b"", "has an empty body"),
        ("body", b"x" * 1001, "has 1001 bytes, more than max_message_size"),
        ("flag", False, "flag=False must be a whole number"),
        ("flag", 1 << 31, "must be a whole number of 32 bits"),
        ("properties", None, "properties=None must be a dict of texts"),
        ("properties", [], r"properties=\[\] must be a dict of texts"),
        ("tags", 5, "tags=5 must be a text or None"),
        ("delay_level", 3, "a delayed message cannot be part of a batch"),
        ("deliver_at", 5, "a delayed message cannot be part of a batch"),
        ("topic", "other", "a batch has one topic, but this one has 't' and 'other'"),
        ("topic", ["t"], r"topic=\['t'\]: a topic needs a name"),
        ("sharding_key", "k", "the sharding keys None and 'k'"),
    ],
)
def test_what_was_changed_after_the_constructor_is_seen_in_a_batch(name, value, text):
    messages = [Message("t", b"x") for _ in range(3)]
    setattr(messages[1], name, value)
    with pytest.raises(ConfigurationError, match=text):
        check_batch(messages, ProducerSettings(group="g", max_message_size=1000))


def test_ids_in_two_parts_are_those_that_come_one_by_one():
    one, many = UniqueIds("10.2.3.4", 1, 2), UniqueIds("10.2.3.4", 1, 2)
    for now in (1_700_000_000_000, 1_700_000_000_001, 1_703_000_000_000):
        start, ends = many.several(now, 30_000)
        assert [(start + end).decode() for end in ends] == [one.next(now) for _ in range(30_000)]
