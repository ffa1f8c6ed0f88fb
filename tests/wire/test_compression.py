from __future__ import annotations

import contextlib
import sys
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.errors import CorruptMessageError, MissingCodecError
from rocketstream.wire.compression import compress, decompress
from rocketstream.wire.sysflag import Codec

TEXT = b"RocketMQ " * 40

# TEXT as Java's compressors of RocketMQ 5.5.0 compressed it, level 5.
JAVA = {
    Codec.LZ4: "04224D18607073140000009F526F636B65744D51200900FF485065744D512000000000",
    Codec.ZSTD: "28B52FFD005884000048526F636B65744D512001005C54CB11010000",
    Codec.ZLIB: "785E0BCA4FCE4E2DF10D54081A65D0920100051F7DF1",
}


@pytest.mark.parametrize("codec", Codec)
def test_what_java_compressed_is_read(codec: Codec) -> None:
    assert decompress(bytes.fromhex(JAVA[codec]), codec) == TEXT


@given(st.binary(max_size=5000), st.sampled_from(Codec), st.integers(1, 9))
def test_round_trip(data: bytes, codec: Codec, level: int) -> None:
    assert decompress(compress(data, codec, level=level), codec) == data


@pytest.mark.parametrize("codec", Codec)
def test_large_and_very_compressible(codec: Codec) -> None:
    data = bytes(3_000_000)
    assert decompress(compress(data, codec), codec) == data


def test_lz4_blocks_are_independent() -> None:
    # lz4-java refuses a frame of linked blocks.
    frame = compress(bytes(200_000), Codec.LZ4)
    assert lz4.frame.get_frame_info(frame)["block_linked"] is False


@pytest.mark.parametrize("codec", Codec)
def test_limit_is_kept_to_the_byte(codec: Codec) -> None:
    packed = compress(bytes(1_000_000), codec)
    assert len(decompress(packed, codec, max_size=1_000_000)) == 1_000_000
    with pytest.raises(CorruptMessageError, match="999999 bytes allowed"):
        decompress(packed, codec, max_size=999_999)


def test_zstd_frame_without_a_size_keeps_the_limit_too() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    packed = stream.compress(bytes(1_000_000)) + stream.flush()
    assert zstandard.frame_content_size(packed) == -1
    assert len(decompress(packed, Codec.ZSTD, max_size=1_000_000)) == 1_000_000
    with pytest.raises(CorruptMessageError, match="999999 bytes allowed"):
        decompress(packed, Codec.ZSTD, max_size=999_999)


def test_zstd_frame_that_claims_gigabytes_allocates_nothing() -> None:
    # A frame header with an 8-byte content size of 2**50, and nothing after it.
    header = b"\x28\xb5\x2f\xfd\xe0" + (2**50).to_bytes(8, "little")
    with pytest.raises(CorruptMessageError, match="more than the 67108864 bytes allowed"):
        decompress(header, Codec.ZSTD)


@pytest.mark.parametrize("codec", Codec)
def test_every_truncation_is_an_error(codec: Codec) -> None:
    packed = compress(TEXT, codec)
    for size in range(len(packed)):
        with pytest.raises(CorruptMessageError):
            decompress(packed[:size], codec)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_bytes_after_the_frame_are_an_error(codec: Codec) -> None:
    with pytest.raises(CorruptMessageError):
        decompress(compress(TEXT, codec) + b"more", codec)


def test_bytes_after_a_zlib_stream_are_ignored_as_in_java() -> None:
    assert decompress(zlib.compress(TEXT) + b"more", Codec.ZLIB) == TEXT


@given(st.binary(max_size=300), st.sampled_from(Codec))
def test_arbitrary_bytes_raise_only_corrupt(data: bytes, codec: Codec) -> None:
    with contextlib.suppress(CorruptMessageError):
        decompress(data, codec, max_size=100_000)


@given(st.data(), st.sampled_from(Codec))
def test_damaged_bytes_raise_only_corrupt(data: st.DataObject, codec: Codec) -> None:
    packed = bytearray(compress(TEXT, codec))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptMessageError):
        decompress(bytes(packed), codec, max_size=100_000)


@pytest.mark.parametrize(
    ("codec", "module", "package"), [(Codec.LZ4, "lz4.frame", "lz4"), (Codec.ZSTD, "zstandard", "zstandard")]
)
def test_missing_package_is_named(codec: Codec, module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for call in (lambda: decompress(b"", codec), lambda: compress(b"", codec)):
        with pytest.raises(MissingCodecError, match=rf"package {package} is not .*rocketstream\[speed\]"):
            call()
