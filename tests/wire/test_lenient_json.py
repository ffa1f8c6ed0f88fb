"""RocketMQ's JSON: the same values from both parsers, nothing but ProtocolError from garbage, linear time."""

from __future__ import annotations

import contextlib
import json
import math
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.errors import ProtocolError
from rocketstream.wire.lenient_json import Pairs, _TolerantParser, dumps, loads

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)
with_pairs = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.lists(st.tuples(st.dictionaries(st.text(), inner, max_size=3), inner), min_size=1, max_size=3).map(Pairs)
    ),
    max_leaves=20,
)


@given(values)
def test_standard_json(value: object) -> None:
    assert loads(json.dumps(value)) == value
    assert loads(json.dumps(value, indent=2, ensure_ascii=True).encode()) == value
    assert json.loads(dumps(value)) == value


@given(values)
def test_both_parsers_give_the_same(value: object) -> None:
    text = json.dumps(value)
    assert _TolerantParser(text).parse() == loads(text)


@given(with_pairs)
def test_object_keys_round_trip(value: object) -> None:
    assert loads(dumps(value)) == value


@given(with_pairs, st.data())
def test_the_token_parser_agrees_with_the_short_cut(value: object, data: st.DataObject) -> None:
    text = dumps(value).decode()
    by_token = _TolerantParser(text)
    by_token._tries = 0
    assert by_token.parse() == _TolerantParser(text).parse() == value


@given(st.binary())
def test_arbitrary_bytes(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        loads(data)


@given(st.text("{}[]:,\"'\\0123.eE+-NaNtruefalsenull \n\0ab\ud800", max_size=60))
def test_arbitrary_almost_json(text: str) -> None:
    try:
        loads(text)
    except ProtocolError as error:
        said = str(error)
    else:
        said = ""
    assert len(said) < 300


@given(with_pairs, st.data())
def test_cut_texts(value: object, data: st.DataObject) -> None:
    text = dumps(value)
    cut = text[: data.draw(st.integers(0, max(0, len(text) - 1)))]
    with contextlib.suppress(ProtocolError):
        loads(cut)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"127.0.0.1:10911",1:"127.0.0.1:10921"}', {"0": "127.0.0.1:10911", "1": "127.0.0.1:10921"}),
        ('{"a":{-1:5}}', {"a": {"-1": 5}}),
        ("{1.5:true,9223372036854775807:null}", {"1.5": True, "9223372036854775807": None}),
        ("{abc:1,true:2,null:3}", {"abc": 1, "true": 2, "null": 3}),
        ('{{"q":0}:7}', Pairs([({"q": 0}, 7)])),
        ('{{"q":0}:{0:1},{"q":1}:{}}', Pairs([({"q": 0}, {"0": 1}), ({"q": 1}, {})])),
        ('{{0:1}:2,"x":3}', Pairs([({"0": 1}, 2), ("x", 3)])),
        ('{{{"a":1}:2}:3}', Pairs([(Pairs([({"a": 1}, 2)]), 3)])),
        ("{[1]:2}", Pairs([([1], 2)])),
        ("{'a':'it\\'s \"x\"','b':'\\\"'}", {"a": 'it\'s "x"', "b": '"'}),
        ('{0:"\\u4e2d\\n\\/"}', {"0": "中\n/"}),
        ('{0:"a{1:2}b,\\"c\\":"}', {"0": 'a{1:2}b,"c":'}),
        ("{0:[1,2,],}", {"0": [1, 2]}),
        ('{"a":1}\0\0', {"a": 1}),
        ('\ufeff{"a":1}', {"a": 1}),
        ('{"a":"b\x01c"}', {"a": "b\x01c"}),
        ('{0:"b\x01\\n"}', {"0": "b\x01\n"}),
        (" [ ] ", []),
        ("5", 5),
        ("{0:1,0:2}", {"0": 2}),
        ('{"a":1,"a":2}', {"a": 2}),
        ("{0:18446744073709551616}", {"0": 2**64}),
        ('{"a":18446744073709551616}', {"a": 2**64}),
        ("{0:-1.5e3}", {"0": -1500.0}),
    ],
)
def test_what_fastjson_writes(text: str, value: object) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value
    assert loads(memoryview(text.encode())) == value


@pytest.mark.parametrize("text", ['{"a":NaN}', "{0:NaN}"])
def test_nan(text: str) -> None:
    (value,) = loads(text).values()
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("\0 \0", "it is empty"),
        ("{", "the text ends"),
        ('{0:"x', "unreadable at character 3"),
        ("{0:1", "the text ends"),
        ("{0}", "a key without a value"),
        ("{0:}", "a key without a value"),
        ("{0:1]", "']' closes nothing"),
        ("]", "']' closes nothing"),
        ("{:1}", "':' separates nothing"),
        ("{0::1}", "':' separates nothing"),
        ("{0,1}", "',' separates nothing"),
        ("{0 1}", "a key without ':'"),
        ("{0:1 2:3}", "a comma is missing"),
        ("[1 2]", "a comma is missing"),
        ("[0:1]", "':' separates nothing"),
        ("{0:1}{", "something follows the value"),
        ("{0:abc}", "'abc' is no value"),
        ("{0:1_0}", "'1_0' is no value"),
        ("{0:" + "9" * 10_000 + "}", "is no value"),
        ('{0:"\\x"}', "unknown escape"),
        ("<html>", "is no value"),
    ],
)
def test_garbage_is_named(text: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(reason)):
        loads(text)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(ProtocolError, match="byte 1 is not UTF-8"):
        loads(b'"\xff"')


@pytest.mark.parametrize("bomb", ["[" * 200_000, "{0:" * 200_000, '{"a":' * 200_000, "{" * 200_000, "[{0:" * 100_000])
def test_bombs_of_brackets(bomb: str) -> None:
    with pytest.raises(ProtocolError):
        loads(bomb)
    with pytest.raises(ProtocolError):
        loads(bomb + "1" + "".join({"[": "]", "{": "}"}.get(mark, "") for mark in reversed(bomb)))


def seconds(text: str) -> float:
    started = time.process_time()
    with contextlib.suppress(ProtocolError):
        loads(text)
    return time.process_time() - started


@pytest.mark.parametrize(
    "unit",
    ["{0:1},", '{"a":{0:1}},', '{{"a":1}:1},', '"\\"', "'", "[],", "   ", "1,", '{"a":[{"b":{0:[]}}]},\n'],
)
def test_time_grows_with_length_only(unit: str) -> None:
    small = min(seconds("[" + unit * 1_000) for _ in range(5))
    large = min(seconds("[" + unit * 20_000) for _ in range(3))
    # 20 times the text; a quadratic parser would take 400 times as long.
    assert large < max(small, 0.0005) * 250


def test_written_texts() -> None:
    assert dumps({"a": [1, True, None, 1.5, "é\n"]}) == b'{"a":[1,true,null,1.5,"\\u00e9\\n"]}'
    assert dumps(Pairs([({"q": 0}, 1), ("x", [])])) == b'{{"q":0}:1,"x":[]}'
    assert dumps([math.nan, math.inf]) == b"[null,null]"
    with pytest.raises(TypeError, match="set has no JSON form"):
        dumps({1})


def test_pairs_say_what_they_are() -> None:
    pairs = Pairs([({"q": 0}, 1)])
    assert repr(pairs) == "Pairs([({'q': 0}, 1)])"
    assert len(pairs) == 1
    assert pairs != {"q": 0}
