from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.errors import ConfigurationError, CorruptMessageError
from rocketstream.wire.batch import MIN_ITEM_SIZE, BatchItem, decode_batch, encode_batch

# Java's MessageDecoder.encodeMessages (5.5.0) of two messages.
JAVA = bytes.fromhex(
    "0000002300000000000000000000000500000005626F64793000085441475301743002"
    "0000002300000000000000000000000600000005626F64793100085441475301743102"
)
ITEMS = [BatchItem(b"body0", "TAGS\x01t0\x02", 5), BatchItem(b"body1", "TAGS\x01t1\x02", 6)]

items = st.builds(
    BatchItem,
    st.binary(max_size=50),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    st.integers(-(2**31), 2**31 - 1),
)


def test_encoding_is_javas() -> None:
    assert encode_batch(ITEMS) == JAVA


def test_what_java_encoded_is_read() -> None:
    assert decode_batch(JAVA) == ITEMS


@given(st.lists(items))
def test_round_trip(batch: list[BatchItem]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptMessageError):
        decode_batch(data)


@pytest.mark.parametrize("size", [n for n in range(1, len(JAVA)) if n != len(JAVA) // 2])
def test_truncation_is_an_error(size: int) -> None:
    with pytest.raises(CorruptMessageError, match=f"at byte {0 if size < 35 else 35}"):
        decode_batch(JAVA[:size])


@pytest.mark.parametrize("total", [0, -1, MIN_ITEM_SIZE, 34, 36, 2**31 - 1])
def test_size_that_is_not_the_sum_of_the_fields_is_an_error(total: int) -> None:
    with pytest.raises(CorruptMessageError, match=f"at byte 35 says {total} bytes, its fields take 35"):
        decode_batch(JAVA[:35] + total.to_bytes(4, "big", signed=True) + JAVA[39:])


def test_too_long_properties_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="32768 bytes"):
        encode_batch([BatchItem(b"", "x" * 32768)])
