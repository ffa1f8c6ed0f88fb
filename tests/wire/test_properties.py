from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketstream.errors import ConfigurationError
from rocketstream.message import Message
from rocketstream.wire.properties import (
    MAX_PROPERTIES_SIZE,
    decode_properties,
    encode_properties,
    find_property,
    message_properties,
    properties_bytes,
)

# Without surrogates (no UTF-8) and without the two separators.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)


@given(st.dictionaries(words, words))
def test_round_trip(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


# What Java's MessageDecoder.string2messageProperties (5.5.0) made of the same strings.
@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b", {"a": "b"}),
        ("a\x01\x02c\x01d", {"c": "d"}),
        ("\x01x\x02", {}),
        ("x\x02y\x01z\x02\x02", {"y": "z"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),
        ("a\x01b\x02a\x01\x02", {"a": "b"}),
        ("novalue\x02a\x01b", {"a": "b"}),
    ],
)
def test_odd_strings_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert decode_properties(text) == properties


def test_encoding_is_javas() -> None:
    assert encode_properties({"TAGS": "paid", "KEYS": "k1 k2"}) == "TAGS\x01paid\x02KEYS\x01k1 k2\x02"


@pytest.mark.parametrize(
    ("name", "value"), [("a\x01", "b"), ("a\x02", "b"), ("a", "b\x01"), ("a", "b\x02c"), ("", "b"), ("a", "")]
)
def test_what_would_not_come_back_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        encode_properties({"fine": "fine", name: value})
    assert repr(name) in str(error.value)


odd = st.text(st.sampled_from("\x01\x02TAGSäb"), max_size=60)


@given(odd, st.binary(max_size=9), st.binary(max_size=9), st.sampled_from(["TAGS", "A", "ä", "T"]))
@example("TAGS\x01a\x02TAGS\x01\x02", b"", b"", "TAGS")
@example("TAGS\x01a\x02TAGS\x01b\x02TAGS\x01c\x02", b"", b"", "TAGS")
@example("b\x02TAGS\x01a", b"", b"S\x02", "TAGS")
@example("AGS\x01a", b"\x02T", b"", "TAGS")
def test_finding_one_is_decoding_all(text: str, before: bytes, after: bytes, name: str) -> None:
    raw = text.encode()
    found = find_property(before + raw + after, len(before), len(before) + len(raw), name)
    assert found == decode_properties(text).get(name)


@given(st.lists(st.sampled_from([b"TAGS", b"\x01", b"\x02", b"\xff", b"\xc3", b"\xa4", b"x"]), max_size=20))
def test_finding_one_in_bad_utf8_is_decoding_all(pieces: list[bytes]) -> None:
    raw = b"".join(pieces)
    assert find_property(raw, 0, len(raw), "TAGS") == decode_properties(raw.decode("utf-8", "replace")).get("TAGS")


def test_too_long_properties_are_refused() -> None:
    assert len(properties_bytes("ä" * (MAX_PROPERTIES_SIZE // 2))) == MAX_PROPERTIES_SIZE - 1
    with pytest.raises(ConfigurationError, match="32768 bytes, RocketMQ carries at most 32767"):
        properties_bytes("ä" * (MAX_PROPERTIES_SIZE // 2 + 1))
    with pytest.raises(ConfigurationError, match="UTF-8"):
        properties_bytes("\ud800")


def test_attributes_of_a_message_become_properties() -> None:
    message = Message(
        "orders", b"", tags="paid", keys=["k1", "k2"], properties={"region": "eu"}, sharding_key="42", delay_level=3
    )
    assert message_properties(message, unique_id="ID") == {
        "region": "eu",
        "TAGS": "paid",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "42",
        "UNIQ_KEY": "ID",
        "DELAY": "3",
        "WAIT": "true",
    }


def test_times_of_delivery_become_milliseconds() -> None:
    assert message_properties(Message("t", b"", delay=1.5)) == {"TIMER_DELAY_MS": "1500", "WAIT": "true"}
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    assert message_properties(Message("t", b"", deliver_at=moment))["TIMER_DELIVER_MS"] == "1704067200000"
    assert message_properties(Message("t", b"", deliver_at=1704067200001))["TIMER_DELIVER_MS"] == "1704067200001"


def test_no_wait_is_kept_and_empty_tags_are_none() -> None:
    assert message_properties(Message("t", b"", tags="", properties={"WAIT": "false"})) == {"WAIT": "false"}
