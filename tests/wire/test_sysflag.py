from __future__ import annotations

import pytest

from rocketstream.errors import CorruptMessageError
from rocketstream.wire import sysflag
from rocketstream.wire.sysflag import Codec, TransactionType


def test_bits_are_javas() -> None:
    assert (sysflag.COMPRESSED, sysflag.MULTI_TAGS) == (0x1, 0x2)
    assert [kind.value for kind in TransactionType] == [0x0, 0x4, 0x8, 0xC]
    assert (sysflag.BORN_HOST_V6, sysflag.STORE_HOST_V6) == (0x10, 0x20)
    assert (sysflag.NEED_UNWRAP, sysflag.INNER_BATCH) == (0x40, 0x80)
    assert [codec.bits for codec in Codec] == [0x100, 0x200, 0x300]


@pytest.mark.parametrize("codec", Codec)
def test_codec_round_trip_keeps_other_bits(codec: Codec) -> None:
    flag = sysflag.with_codec(sysflag.BORN_HOST_V6 | sysflag.MULTI_TAGS, codec)
    assert sysflag.codec_of(flag) is codec
    assert sysflag.is_compressed(flag)
    assert sysflag.with_codec(flag, None) == sysflag.BORN_HOST_V6 | sysflag.MULTI_TAGS


def test_compressed_without_a_type_is_zlib() -> None:
    assert sysflag.codec_of(sysflag.COMPRESSED) is Codec.ZLIB


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_unknown_codec_is_an_error(number: int) -> None:
    with pytest.raises(CorruptMessageError, match=f"compression type {number} is not known"):
        sysflag.codec_of(number << 8 | sysflag.COMPRESSED)


@pytest.mark.parametrize("kind", TransactionType)
def test_transaction_type_replaces_the_old_one(kind: TransactionType) -> None:
    flag = sysflag.with_transaction_type(TransactionType.PREPARED | sysflag.COMPRESSED, kind)
    assert sysflag.transaction_type(flag) is kind
    assert sysflag.is_compressed(flag)


def test_inner_batch_needs_both_bits() -> None:
    assert sysflag.is_inner_batch(0xC0)
    assert not sysflag.is_inner_batch(sysflag.INNER_BATCH)
    assert not sysflag.is_inner_batch(sysflag.NEED_UNWRAP)
