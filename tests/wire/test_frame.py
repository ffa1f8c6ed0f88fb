"""Frames: round trips, any chunking, limits, garbage."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketstream.errors import ProtocolError
from rocketstream.wire.codes import LanguageCode, SerializeType
from rocketstream.wire.command import Command, request, response
from rocketstream.wire.frame import MAX_FRAME_LENGTH, FrameReader, encode_frame

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
int32 = st.integers(-(2**31), 2**31 - 1)


def commands(encoding: SerializeType) -> st.SearchStrategy[Command]:
    short = st.integers(-(2**15), 2**15 - 1)
    return st.builds(
        Command,
        code=short if encoding is SerializeType.ROCKETMQ else int32,
        opaque=int32,
        flag=int32,
        fields=st.dictionaries(texts, texts, max_size=5),
        remark=st.none() | texts.filter(bool),
        body=st.binary(max_size=200),
        language=st.sampled_from(sorted(LanguageCode)),
        version=short if encoding is SerializeType.ROCKETMQ else int32,
        serialize_type=st.just(encoding),
    )


any_command = commands(SerializeType.JSON) | commands(SerializeType.ROCKETMQ)


def frame(command: Command) -> bytes:
    return b"".join(encode_frame(command))


@pytest.mark.behaviour("REM-14")
@given(any_command)
def test_a_command_survives_the_wire(command):
    assert FrameReader().feed(frame(command)) == [command]


@given(st.lists(any_command, max_size=6), st.data())
def test_cutting_a_stream_anywhere_gives_the_same_commands(sent, data):
    stream = b"".join(map(frame, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    reader = FrameReader()
    received: list[Command] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += reader.feed(stream[start:end])
    assert received == sent
    assert not reader.mid_frame


def test_byte_by_byte():
    sent = [request(11, {"a": "b"}, b"x" * 1000), response(request(11), 0, "ok")]
    reader = FrameReader()
    received = [command for byte in b"".join(map(frame, sent)) for command in reader.feed(bytes([byte]))]
    assert received == sent


@given(st.lists(st.binary(max_size=200), max_size=5))
@example([b"GET / HTTP/1.1\r\n\r\n"])
@example([struct.pack(">iI", 8, 4), b"null"])
@example([struct.pack(">iI", 6, 2), b"[]"])
@example([struct.pack(">iI", 4, 1 << 24)])
@example([struct.pack(">iI", 20, (1 << 24) | 16), b"\0" * 16])
def test_arbitrary_bytes_raise_nothing_but_protocol_errors(chunks):
    reader = FrameReader()
    with contextlib.suppress(ProtocolError):
        for chunk in chunks:
            reader.feed(chunk)


@given(st.binary(max_size=120), st.sampled_from([0, 1]))
def test_arbitrary_headers_raise_nothing_but_protocol_errors(header, encoding):
    data = struct.pack(">iI", 4 + len(header), encoding << 24 | len(header)) + header
    reader = FrameReader()
    try:
        (command,) = reader.feed(data)
    except ProtocolError:
        assert reader.failure
    else:
        assert all(isinstance(text, str) for text in command.fields.values())


header_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["code", "opaque", "flag", "extFields", "remark", "language", "version"]), header_values
    )
)
def test_json_headers_of_any_shape_raise_nothing_but_protocol_errors(header):
    data = json.dumps(header).encode()
    with contextlib.suppress(ProtocolError):
        FrameReader().feed(struct.pack(">iI", 4 + len(data), len(data)) + data)


def test_fields_that_are_not_texts_are_read_as_java_would():
    data = b'{"code":0,"extFields":{"n":5,"t":true,"x":null,"f":1.5,"s":"a"}}'
    (command,) = FrameReader().feed(struct.pack(">iI", 4 + len(data), len(data)) + data)
    assert command.fields == {"n": "5", "t": "true", "f": "1.5", "s": "a"}


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        (struct.pack(">iI", MAX_FRAME_LENGTH + 1, 0), "frame length 16777217 is not between 4 and 16777216"),
        (struct.pack(">iI", -1, 0), "frame length -1 "),
        (struct.pack(">iI", 3, 0), "frame length 3 "),
        (struct.pack(">iI", 20, 17), "header length 17 exceeds the frame's 16 bytes"),
        (struct.pack(">iI", 20, 7 << 24), "unknown header encoding 7"),
    ],
)
def test_a_false_prefix_is_refused_with_what_was_wrong(prefix, reason):
    reader = FrameReader()
    with pytest.raises(ProtocolError, match=reason):
        reader.feed(prefix)
    with pytest.raises(ProtocolError, match="the stream is broken"):
        reader.feed(b"more")


def test_a_frame_is_limited_by_the_setting():
    data = frame(request(11, body=b"x" * 1000))
    assert len(FrameReader(2000).feed(data)) == 1
    with pytest.raises(ProtocolError, match="not between 4 and 1000"):
        FrameReader(1000).feed(data)


def test_what_a_length_claims_is_not_allocated():
    reader = FrameReader()
    tracemalloc.start()
    reader.feed(struct.pack(">iI", MAX_FRAME_LENGTH, 100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000


def test_commands_before_garbage_are_still_given():
    reader = FrameReader()
    good = request(11, {"a": "b"})
    assert reader.feed(frame(good) + b"\xff" * 20) == [good]
    assert reader.failure is not None
    assert "frame length -1" in reader.failure


def test_a_large_body_in_many_chunks_is_joined_once():
    body = bytes(range(256)) * 16384  # 4 MiB
    data = frame(request(11, body=body))
    reader = FrameReader()
    received: list[Command] = []
    tracemalloc.start()
    chunks = [data[start : start + 4096] for start in range(0, len(data), 4096)]
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    for chunk in chunks:
        received += reader.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert received[0].body == body
    assert peak - before < 1.2 * len(body), "a second copy of the body would take twice that"


def test_a_large_body_is_not_copied_into_its_frame():
    body = b"x" * 100_000
    pieces = encode_frame(request(11, body=body))
    assert pieces[-1] is body


def test_what_does_not_fit_the_binary_encoding_is_a_protocol_error():
    too_big = request(70_000)
    too_big.serialize_type = SerializeType.ROCKETMQ
    with pytest.raises(ProtocolError, match="does not fit the binary encoding"):
        encode_frame(too_big)


def test_a_reader_and_a_command_tell_their_state():
    reader = FrameReader()
    assert repr(reader) == "<FrameReader between frames, 0 bytes buffered>"
    reader.feed(frame(request(11, body=b"x" * 10))[:20])
    assert "waiting for" in repr(reader)
    secret = request(11, {"AccessKey": "me", "Signature": "s3cret"}, b"12")
    assert repr(secret) == "<request PULL_MESSAGE opaque=0 fields=['AccessKey', 'Signature'] body=2B>"
