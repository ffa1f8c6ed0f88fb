"""How a typed body becomes JSON and back.

The rule here: a body class is only a list of its fields; `@body` derives the rest from their types. A field
without a default must be present; a field that may be `None` is left out when it is; `null` is the same as
absent, as fastjson writes and reads it. Fields nobody declared are ignored. A value of the wrong shape is a
`ProtocolError` that names the body and the way to the value.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import (
    Annotated,
    Any,
    ClassVar,
    NoReturn,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from rocketstream.errors import ProtocolError
from rocketstream.message import MessageQueue
from rocketstream.wire.java import camel_case
from rocketstream.wire.late import add_late
from rocketstream.wire.lenient_json import JsonValue, Pairs, dumps, loads

_BodyT = TypeVar("_BodyT", bound="Body")


class Mismatch(Exception):
    """A JSON value that is not what its place asks for; `path` grows on the way out to `Body.decode`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[str] = []


def mismatch(expected: str, value: JsonValue) -> NoReturn:
    """Say what was expected instead of a value; containers are named, not printed: they may be deep or huge."""
    seen = type(value).__name__ if isinstance(value, list | dict | Pairs) else repr(value)[:100]
    raise Mismatch(f"should be {expected}, not {seen}")


@dataclass(frozen=True, slots=True)
class Codec:
    """How a value of one type is read from JSON and written to it."""

    read: Callable[[JsonValue], Any]
    write: Callable[[Any], JsonValue]


@dataclass(frozen=True, slots=True)
class _FieldPlan:
    name: str
    wire: str
    codec: Codec
    required: bool


class Body:
    """A command's JSON body, or an object inside one. Subclasses are made by `@body`."""

    __slots__ = ()
    _plan: ClassVar[tuple[_FieldPlan, ...]]

    def encode(self) -> bytes:
        """The body's bytes, as both generations of fastjson read them."""
        return dumps(self.to_json())

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """The body in some bytes, or a `ProtocolError` that says what is wrong with them."""
        try:
            return cls.from_json(loads(data))
        except Mismatch as error:
            place = "".join(f".{step}" for step in error.path)
            raise ProtocolError(f"{cls.__name__}{place} {error}") from None
        except ProtocolError as error:
            raise ProtocolError(f"{cls.__name__}: {error}") from None

    def to_json(self) -> dict[str, JsonValue]:
        """The body as plain JSON values."""
        result: dict[str, JsonValue] = {}
        for one in self._plan:
            value = getattr(self, one.name)
            if value is not None:
                result[one.wire] = one.codec.write(value)
        return result

    @classmethod
    def from_json(cls, value: JsonValue) -> Self:
        """The body in a JSON value; raises `Mismatch`."""
        if not isinstance(value, dict):
            mismatch("an object", value)
        arguments = {}
        for one in cls._plan:
            found = value.get(one.wire)
            if found is not None:
                arguments[one.name] = _at(one.wire, one.codec.read, found)
            elif one.required:
                error = Mismatch("is missing")
                error.path.append(one.wire)
                raise error
        return cls(**arguments)


def named(wire_name: str, default: Any = MISSING) -> Any:
    """A field whose name in JSON is not the camelCase of its own."""
    return field(default=default, metadata={"wire": wire_name})


def mapping() -> Any:
    """A field that is an empty mapping unless given."""
    return field(default_factory=dict)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, named, mapping))
def body(cls: type[_BodyT]) -> type[_BodyT]:
    """Make a body class out of its field list."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    add_late(made, "_plan", lambda: _plan_of(made))
    return made


def _plan_of(made: Any) -> tuple[_FieldPlan, ...]:
    hints = get_type_hints(made, include_extras=True)
    return tuple(
        _FieldPlan(
            name=known.name,
            wire=known.metadata.get("wire") or camel_case(known.name),
            codec=codec_of(_without_none(hints[known.name])),
            required=known.default is MISSING and known.default_factory is MISSING,
        )
        for known in fields(made)
    )


# --- from a type to its codec ------------------------------------------------------------------------------


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    (only,) = (option for option in get_args(annotation) if option is not type(None))
    return only


def codec_of(annotation: Any) -> Codec:
    """How values of a type are read and written."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        how = arguments[1]
        return how if isinstance(how, Codec) else _integer(how)
    if origin is tuple:
        return _sequence(codec_of(arguments[0]), tuple, list)
    if origin is frozenset:
        return _sequence(codec_of(arguments[0]), frozenset, sorted)
    if origin is Mapping:
        return _table(arguments[0], codec_of(arguments[1]))
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Body):
        return Codec(annotation.from_json, annotation.to_json)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return _enum(annotation)
    raise TypeError(f"no JSON form is known for {annotation!r}")


def _at(step: object, read: Callable[[JsonValue], Any], value: JsonValue) -> Any:
    try:
        return read(value)
    except Mismatch as error:
        error.path.insert(0, str(step))
        raise


def _same(value: Any) -> Any:
    return value


def _typed(wanted: type, expected: str) -> Codec:
    def read(value: JsonValue) -> Any:
        return value if isinstance(value, wanted) else mismatch(expected, value)

    return Codec(read, _same)


def _integer(bits: int) -> Codec:
    limit = 1 << (bits - 1)

    def read(value: JsonValue) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit:
            return value
        mismatch(f"a {bits}-bit number", value)

    return Codec(read, _same)


_read_int32 = _integer(32).read


def _read_float(value: JsonValue) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    mismatch("a number", value)


def _enum(enum: type[StrEnum]) -> Codec:
    def read(value: JsonValue) -> StrEnum:
        try:
            return enum(value)
        except ValueError:
            mismatch(f"one of {', '.join(enum)}", value)

    return Codec(read, str)


def _sequence(item: Codec, make: Callable[[Any], Any], arrange: Callable[[Any], list[Any]]) -> Codec:
    def read(value: JsonValue) -> Any:
        if not isinstance(value, list):
            mismatch("an array", value)
        return make([_at(index, item.read, one) for index, one in enumerate(value)])

    return Codec(read, lambda value: [item.write(one) for one in arrange(value)])


def _table(key_type: Any, value_codec: Codec) -> Codec:
    if key_type is MessageQueue:
        return _queue_table(value_codec)
    # Java's maps by number are written with quoted numbers: fastjson takes both, other readers only these.
    key = Codec(_same, _same) if key_type is str else Codec(_number_key(codec_of(key_type)), str)

    def read(value: JsonValue) -> Any:
        if not isinstance(value, dict):
            mismatch("an object", value)
        return {_at(name, key.read, name): _at(name, value_codec.read, one) for name, one in value.items()}

    return Codec(read, lambda value: {key.write(name): value_codec.write(one) for name, one in value.items()})


def _number_key(number: Codec) -> Callable[[str], Hashable]:
    def read(name: str) -> Hashable:
        try:
            value = int(name)
        except ValueError:
            mismatch("a number", name)
        result: int = number.read(value)
        return result

    return read


# --- queues, as values and as keys -------------------------------------------------------------------------


def read_queue(value: JsonValue) -> MessageQueue:
    """The queue in a JSON object."""
    if not isinstance(value, dict):
        mismatch("a queue", value)
    try:
        topic, broker_name, queue_id = value["topic"], value["brokerName"], value["queueId"]
    except KeyError as error:
        raise Mismatch(f"should be a queue, but has no {error.args[0]}") from None
    if not isinstance(topic, str) or not isinstance(broker_name, str):
        mismatch("a queue with a topic and a broker", value)
    return MessageQueue(topic, broker_name, _at("queueId", _read_int32, queue_id))


def write_queue(queue: MessageQueue) -> JsonValue:
    """A queue as JSON, in fastjson's order of the names."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def _queue_table(value_codec: Codec) -> Codec:
    def read(value: JsonValue) -> Any:
        if isinstance(value, Pairs):
            entries = value.items
        elif isinstance(value, dict):
            # Writers that keep to JSON put the queue's JSON into a quoted key.
            entries = [(_at(name, _read_text_key, name), one) for name, one in value.items()]
        else:
            mismatch("an object", value)
        table = {}
        for name, one in entries:
            queue = _at("key", read_queue, name)
            table[queue] = _at(queue, value_codec.read, one)
        return table

    return Codec(
        read, lambda value: Pairs([(write_queue(queue), value_codec.write(one)) for queue, one in value.items()])
    )


def _read_text_key(name: str) -> JsonValue:
    try:
        return loads(name)
    except ProtocolError:
        mismatch("a queue", name)


_SCALARS: dict[Any, Codec] = {
    str: _typed(str, "a text"),
    bool: _typed(bool, "true or false"),
    float: Codec(_read_float, _same),
    MessageQueue: Codec(read_queue, write_queue),
}


def _read_any_text(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return dumps(value).decode("ascii")
    mismatch("a text", value)


AnyText = Annotated[str, Codec(_read_any_text, _same)]
"""A text that Java may have written as a bare number or word, as in `Properties` that hold more than texts."""
