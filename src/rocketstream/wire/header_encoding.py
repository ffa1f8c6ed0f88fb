"""A command's header as bytes, in both of RocketMQ's encodings.

JSON is what every client and broker reads; the binary encoding ("ROCKETMQ") is what some send to save space. A 4.9
broker answers in the encoding it was asked in, a 5.x broker in its own; each frame says which it is. Reading is
tolerant where Java is (missing fields, numbers for strings) and fails with `ProtocolError` where the meaning would be
a guess.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from rocketstream.errors import ProtocolError
from rocketstream.wire.codes import LanguageCode, SerializeType
from rocketstream.wire.command import Command

_LANGUAGE_NAMES = {code.value: code.name for code in LanguageCode}
_LANGUAGES = {code.name: code.value for code in LanguageCode}
# Plain ints: every command passes here, and an attribute of an enum is a look-up in a class.
_JSON = int(SerializeType.JSON)
_BINARY = int(SerializeType.ROCKETMQ)
_OTHER = int(LanguageCode.OTHER)

_LIMIT = 0x80000000
_STR = frozenset({str})

_FIXED = struct.Struct(">hBhii")  # code, language, version, opaque, flag
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")

_plain_dumps = json.JSONEncoder(separators=(",", ":")).encode

try:  # several times faster on a header, and every request and response has one
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]


def encode_header(command: Command) -> bytes:
    """The header in the command's own encoding."""
    if command.serialize_type == _JSON:
        return _encode_json(command)
    if command.serialize_type == _BINARY:
        return _encode_binary(command)
    raise ProtocolError(f"unknown header encoding {command.serialize_type}")


def decode_header(data: bytes, encoding: int) -> Command:
    """A command without its body."""
    return _decode_json(data) if encoding == _JSON else _decode_binary(data)


# --- JSON -------------------------------------------------------------------------------------------------------


def _encode_json(command: Command) -> bytes:
    header: dict[str, Any] = {
        "code": int(command.code),  # an enum's member is an int that JSON encoders look at twice
        "extFields": command.fields,
        "flag": command.flag,
        "language": _LANGUAGE_NAMES.get(command.language, "OTHER"),
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if command.remark is not None:
        header["remark"] = command.remark
    return _dumps(header)


def _dumps(header: dict[str, Any]) -> bytes:
    if orjson is not None:
        try:
            return orjson.dumps(header)
        except TypeError:
            pass  # a lone surrogate, which only escapes can carry
    return _plain_dumps(header).encode()


def _loads(data: bytes) -> Any:
    if orjson is not None:
        try:
            return orjson.loads(data)
        except ValueError:
            pass  # what it is strict about, the other may still take
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the header is not JSON: {error}") from None


def _decode_json(data: bytes) -> Command:
    header = _loads(data)
    try:
        # What every peer sends, taken as it is: every response passes here.
        code, opaque, flag, version = header["code"], header["opaque"], header["flag"], header["version"]
        fields, remark = header.get("extFields"), header.get("remark")
        if (
            type(code) is type(opaque) is type(flag) is type(version) is int
            and -_LIMIT <= code < _LIMIT
            and -_LIMIT <= opaque < _LIMIT
            and -_LIMIT <= flag < _LIMIT
            and -_LIMIT <= version < _LIMIT
            and (remark is None or type(remark) is str)
            and type(fields) is dict
            and _STR.issuperset(map(type, fields.values()))
        ):
            language = _LANGUAGES.get(header["language"], _OTHER)
            return Command(code, opaque, flag, fields, remark, b"", language, version, _JSON)
    except (KeyError, TypeError, AttributeError):
        pass
    return _decode_odd_json(header)


def _decode_odd_json(header: Any) -> Command:
    """A header that lacks something, or has something else than usual, field by field."""
    if not isinstance(header, dict):
        raise ProtocolError(f"the header is a JSON {type(header).__name__}, not an object")
    remark = header.get("remark")
    if remark is not None and not isinstance(remark, str):
        raise ProtocolError(f"the header's remark is {remark!r}, not a text")
    return Command(
        code=_int(header, "code", None),
        opaque=_int(header, "opaque", 0),
        flag=_int(header, "flag", 0),
        fields=_string_map(header.get("extFields")),
        remark=remark,
        language=_language(header.get("language")),
        version=_int(header, "version", 0),
        serialize_type=_JSON,
    )


def _int(header: dict[str, Any], name: str, default: int | None) -> int:
    value = header.get(name, default)
    if type(value) is not int or not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ProtocolError(f"the header's {name} is {_short(value)}, not a 32-bit number")
    return value


def _language(value: Any) -> int:
    # A language that this version has not heard of is no reason to drop a command.
    return _LANGUAGES.get(value, _OTHER) if isinstance(value, str) else _OTHER


def _string_map(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError(f"the header's extFields are {_short(value)}, not an object")
    for item in value.values():
        if type(item) is not str:
            return {name: _text(name, item) for name, item in value.items() if item is not None}
    return value


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        try:
            return str(value)
        except ValueError:  # an integer of more digits than Python converts
            raise ProtocolError(f"the header's extFields have a number without end as {name!r}") from None
    raise ProtocolError(f"the header's extFields have {_short(value)} as {name!r}, not a text")


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


# --- binary -----------------------------------------------------------------------------------------------------


def _encode_binary(command: Command) -> bytes:
    try:
        remark = command.remark.encode() if command.remark else b""
        parts: list[bytes] = []
        for name, value in command.fields.items():
            key = name.encode()
            text = value.encode()
            parts += (_U16.pack(len(key)), key, _I32.pack(len(text)), text)
        fields = b"".join(parts)
        fixed = _FIXED.pack(command.code, command.language, command.version, command.opaque, command.flag)
    except (struct.error, UnicodeEncodeError) as error:
        raise ProtocolError(f"the header of {command!r} does not fit the binary encoding: {error}") from None
    return b"".join((fixed, _I32.pack(len(remark)), remark, _I32.pack(len(fields)), fields))


def _decode_binary(data: bytes) -> Command:
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(data)
        position = _FIXED.size
        remark, position = _read_text(data, position, _I32)
        (length,) = _I32.unpack_from(data, position)
        position += 4
        end = position + length
        if length < 0 or end > len(data):
            raise ProtocolError(f"the header's fields claim {length} bytes of the {len(data) - position} that are left")
        fields: dict[str, str] = {}
        while position < end:
            name, position = _read_text(data, position, _U16)
            value, position = _read_text(data, position, _I32)
            fields[name] = value
        if position != end:
            raise ProtocolError("the header's last field runs past the end of the fields")
    except struct.error as error:
        raise ProtocolError(f"the binary header of {len(data)} bytes ends too soon: {error}") from None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the binary header holds a text that is not UTF-8: {error}") from None
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        fields=fields,
        remark=remark or None,
        language=language,
        version=version,
        serialize_type=_BINARY,
    )


def _read_text(data: bytes, position: int, size: struct.Struct) -> tuple[str, int]:
    (length,) = size.unpack_from(data, position)
    position += size.size
    end = position + length
    if length < 0 or end > len(data):
        raise ProtocolError(f"the header has a text of {length} bytes where {len(data) - position} are left")
    return data[position:end].decode(), end
