"""Bodies compressed the way Java's `Compressor`s compress them: zlib streams, LZ4 frames, Zstandard frames.

The rule of this file: a body never inflates past the limit it is given, however small its compressed form, and
whatever is wrong with it ends as `CorruptMessageError`. lz4 and zstandard are imported when a message needs them,
because most clusters never do.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

from rocketstream.errors import CorruptMessageError, MissingCodecError
from rocketstream.wire.sysflag import Codec

#: Far above a broker's limit for a message (4 MiB stored), far below what a process can bear to lose.
DEFAULT_MAX_BODY_SIZE: Final = 64 * 1024 * 1024

#: Java's default, `MixAll.MESSAGE_COMPRESS_LEVEL`.
DEFAULT_LEVEL: Final = 5

_FIRST_STEP: Final = 64 * 1024


def compress(data: bytes, codec: Codec, *, level: int = DEFAULT_LEVEL) -> bytes:
    """`data` compressed so that Java's client inflates it."""
    if codec is Codec.ZLIB:
        return zlib.compress(data, level)
    if codec is Codec.LZ4:
        # Java reads independent blocks only ("BLOCK_INDEPENDENCE must be set"), and has one speed.
        packed: bytes = _lz4_frame().compress(data, block_linked=False, store_size=False)
    else:
        packed = _zstandard().ZstdCompressor(level=level).compress(data)
    return packed


def decompress(data: bytes, codec: Codec, *, max_size: int = DEFAULT_MAX_BODY_SIZE) -> bytes:
    """What `data` was before it was compressed with `codec`."""
    if codec is Codec.ZLIB:
        return _inflate_zlib(data, max_size)
    if codec is Codec.LZ4:
        return _inflate_lz4(data, max_size)
    return _inflate_zstd(data, max_size)


def _inflate_zlib(data: bytes, max_size: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(data, max_size + 1)
    except zlib.error as error:
        raise CorruptMessageError(f"its zlib body cannot be inflated: {error}") from None
    if len(body) > max_size:
        raise _too_large("zlib", max_size)
    if not inflater.eof:
        raise _cut_short("zlib")
    return body


def _inflate_lz4(data: bytes, max_size: int) -> bytes:
    inflater = _lz4_frame().LZ4FrameDecompressor()
    parts: list[bytes] = []
    size = 0
    # The decompressor allocates as much as it is allowed, so it is allowed little and then more.
    step = max(_FIRST_STEP, 4 * len(data))
    try:
        while not inflater.eof and size <= max_size:
            part = inflater.decompress(data if not parts else b"", max_length=min(step, max_size + 1 - size))
            if not part and not inflater.eof and inflater.needs_input:
                raise _cut_short("lz4")
            parts.append(part)
            size += len(part)
            step *= 4
    except (RuntimeError, ValueError, EOFError) as error:
        raise CorruptMessageError(f"its lz4 body cannot be inflated: {error}") from None
    if size > max_size:
        raise _too_large("lz4", max_size)
    if inflater.unused_data:
        raise CorruptMessageError("its lz4 body has bytes after the end of its frame")
    return b"".join(parts)


def _inflate_zstd(data: bytes, max_size: int) -> bytes:
    zstandard = _zstandard()
    try:
        known_size = zstandard.frame_content_size(data)
        if known_size > max_size:
            raise _too_large("zstd", max_size)
        inflater = zstandard.ZstdDecompressor()
        # Java writes no size into the frame. The output is allocated whole, so a generous guess comes first.
        guess = min(max_size, max(_FIRST_STEP, 16 * len(data)))
        try:
            body: bytes = inflater.decompress(data, max_output_size=guess, allow_extra_data=False)
        except zstandard.ZstdError:
            if known_size >= 0 or guess == max_size:
                raise
            body = inflater.decompress(data, max_output_size=max_size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptMessageError(
            f"its zstd body cannot be inflated ({error}): it is damaged, or larger than the {max_size} bytes allowed"
        ) from None
    return body


def _too_large(codec: str, max_size: int) -> CorruptMessageError:
    return CorruptMessageError(f"its {codec} body inflates to more than the {max_size} bytes allowed")


def _cut_short(codec: str) -> CorruptMessageError:
    return CorruptMessageError(f"its {codec} body is cut short")


def _lz4_frame() -> Any:
    try:
        import lz4.frame
    except ImportError:
        raise _missing("lz4", "lz4") from None
    return lz4.frame


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise _missing("zstd", "zstandard") from None
    return zstandard


def _missing(codec: str, package: str) -> MissingCodecError:
    return MissingCodecError(
        f"its body is compressed with {codec}, and the package {package} is not installed: pip install"
        f" rocketstream[speed], or pip install {package}"
    )
