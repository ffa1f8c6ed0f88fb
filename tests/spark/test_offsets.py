from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.spark.offsets import Offsets, offsets_json, parse_offsets

names = st.text("abcXYZ09_-", min_size=1, max_size=8)
queues = st.builds(MessageQueue, names, names, st.integers(0, 2**31 - 1))
all_offsets = st.dictionaries(queues, st.integers(0, 2**63 - 1), max_size=12)


def test_offsets_are_readable_json_with_sorted_text_keys() -> None:
    offsets = {
        MessageQueue("orders", "broker-b", 0): 3,
        MessageQueue("orders", "broker-a", 10): 2,
        MessageQueue("orders", "broker-a", 9): 1,
        MessageQueue("bills", "broker-a", 0): 0,
    }
    text = json.dumps(offsets_json(offsets))
    assert text == '{"bills": {"broker-a": {"0": 0}}, "orders": {"broker-a": {"10": 2, "9": 1}, "broker-b": {"0": 3}}}'
    assert json.dumps(json.loads(text), sort_keys=True) == text


@given(all_offsets)
def test_what_is_written_is_read_again(offsets: Offsets) -> None:
    text = json.dumps(offsets_json(offsets))
    assert parse_offsets(text) == offsets
    assert parse_offsets(json.loads(text)) == offsets


@given(all_offsets, st.randoms())
def test_the_same_offsets_are_the_same_text(offsets: Offsets, random: Any) -> None:
    shuffled = list(offsets.items())
    random.shuffle(shuffled)
    assert json.dumps(offsets_json(dict(shuffled))) == json.dumps(offsets_json(offsets))


def test_a_namespace_is_not_shown() -> None:
    offsets = {MessageQueue("dev%orders", "b", 0): 5}
    assert offsets_json(offsets, "dev") == {"orders": {"b": {"0": 5}}}
    assert parse_offsets('{"orders": {"b": {"0": 5}}}', "dev") == offsets


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[]", "no object of topics"),
        ("5", "no object of topics"),
        ('{"orders": 5}', "where its brokers should be"),
        ('{"orders": {"b": 5}}', "where its queues should be"),
        ('{"orders": {"": {"0": 5}}}', "broker without a name"),
        ('{"or ders": {"b": {"0": 5}}}', "illegal characters"),
        ('{"orders": {"b": {"zero": 5}}}', "no queue id"),
        ('{"orders": {"b": {"-1": 5}}}', "no queue id"),
        ('{"orders": {"b": {"00": 5}}}', "no queue id"),
        ('{"orders": {"b": {"0": -1}}}', "no offset of queue 0"),
        ('{"orders": {"b": {"0": 1.5}}}', "no offset of queue 0"),
        ('{"orders": {"b": {"0": true}}}', "no offset of queue 0"),
        ('{"orders": {"b": {"0": "7"}}}', "no offset of queue 0"),
        ('{"orders": {"b": {"0": 9223372036854775808}}}', "no offset of queue 0"),
        ('{"orders": {"b": {"0": 1, "0": 2}}}', "there twice"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_offsets_is_refused_in_one_sentence(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        parse_offsets(text, what="startingOffsets")
    assert str(caught.value).startswith("startingOffsets=")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
