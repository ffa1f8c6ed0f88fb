"""How a typed header becomes extFields and back.

The rule here: a header class is only a list of its fields, with Java's presence and types; `@header` writes
the two conversions for it. A field without a default must be present (Java's `CFNotNull`); a field that may be
`None` is left out when it is; any other default is written always and assumed when absent. Fields nobody
declared are ignored on reading, because brokers of another version send more.

The conversions are compiled once per class, when they are first used, as `dataclasses` compiles `__init__`: a pull or a
send passes here for every request, and a loop over field descriptions would cost several times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Self, TypeVar, dataclass_transform, get_args, get_type_hints

from rocketstream.errors import ProtocolError
from rocketstream.wire.java import camel_case
from rocketstream.wire.late import add_late

_HeaderT = TypeVar("_HeaderT", bound="Header")


class Header:
    """A request's or response's typed fields. `@header` makes subclasses and writes these two methods."""

    __slots__ = ()

    def to_fields(self) -> dict[str, str]:
        """The header as RocketMQ's string map."""
        raise NotImplementedError(f"{type(self).__name__} is not decorated with @header")

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> Self:
        """The header in a command's fields, or a `ProtocolError` that names the field that is wrong."""
        raise NotImplementedError(f"{cls.__name__} is not decorated with @header")


def named(wire_name: str, default: Any = MISSING) -> Any:
    """A field whose name on the wire is not the camelCase of its own."""
    return field(default=default, metadata={"wire": wire_name})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, named))
def header(cls: type[_HeaderT]) -> type[_HeaderT]:
    """Make a header class out of its field list.

    Type checkers take headers as frozen. At run time they are not: a frozen dataclass pays one function call
    per field when it is made, and a pull request has a dozen.
    """
    made: Any = dataclass(slots=True, kw_only=True)(cls)
    add_late(made, "_plan", lambda: _plan(made))
    add_late(made, "to_fields", lambda: _compile(f"{cls.__name__}.to_fields", _write_to_fields(made._plan)))
    add_late(
        made,
        "from_fields",
        lambda: classmethod(_compile(f"{cls.__name__}.from_fields", _write_from_fields(made._plan))),
    )
    result: type[_HeaderT] = made
    return result


# --- reading one value -------------------------------------------------------------------------------------


def _int32(text: str) -> int:
    value = int(text)
    if -0x80000000 <= value <= 0x7FFFFFFF and "_" not in text:
        return value
    raise ValueError(text)


def _int64(text: str) -> int:
    value = int(text)
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF and "_" not in text:
        return value
    raise ValueError(text)


def _bool(text: str) -> bool:
    # Java reads everything but "true" as false; a value that is neither is a broken peer, not a no.
    lowered = text.lower()
    if lowered == "true":
        return True
    if lowered == "false":
        return False
    raise ValueError(text)


# --- what is known of a field, and the code written from it ------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """One field of a header: what it is called here and on the wire, and how it is read and written."""

    name: str
    wire: str
    kind: str
    nullable: bool
    required: bool
    default: Any


_READERS: dict[str, Callable[[str], object]] = {"int32": _int32, "int64": _int64, "bool": _bool}
_EXPECTED = {"int32": "a 32-bit number", "int64": "a 64-bit number", "bool": "true or false", "str": "a text"}
_WRITERS = {"int32": "str({0})", "int64": "str({0})", "bool": '"true" if {0} else "false"', "str": "{0}"}


def _kind(annotation: Any) -> str:
    metadata: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    if metadata:
        return f"int{metadata[0]}"
    if annotation in (bool, str):
        return str(annotation.__name__)
    raise TypeError(f"a header field is a str, bool, Int32 or Int64, not {annotation!r}")


def _plan(cls: Any) -> tuple[FieldPlan, ...]:
    hints = get_type_hints(cls, include_extras=True)
    plans = []
    for known in fields(cls):
        annotation = hints[known.name]
        nullable = type(None) in get_args(annotation)
        if nullable:
            (annotation,) = (option for option in get_args(annotation) if option is not type(None))
        wire = known.metadata.get("wire") or camel_case(known.name)
        required = known.default is MISSING
        plans.append(FieldPlan(known.name, wire, _kind(annotation), nullable, required, known.default))
    return tuple(plans)


def _write_to_fields(plan: tuple[FieldPlan, ...]) -> str:
    always = ", ".join(
        f"{one.wire!r}: {_WRITERS[one.kind].format(f'self.{one.name}')}" for one in plan if not one.nullable
    )
    lines = ["def function(self):", f"    fields = {{{always}}}"]
    for one in plan:
        if one.nullable:
            lines.append(f"    value = self.{one.name}")
            lines.append("    if value is not None:")
            lines.append(f"        fields[{one.wire!r}] = {_WRITERS[one.kind].format('value')}")
    return "\n".join([*lines, "    return fields"])


def _write_from_fields(plan: tuple[FieldPlan, ...]) -> str:
    arguments = []
    for one in plan:
        if one.kind == "str":
            value = f"fields[{one.wire!r}]" if one.required else f"get({one.wire!r}, {one.default!r})"
        elif one.required:
            value = f"{one.kind}(fields[{one.wire!r}])"
        else:
            value = f"{one.kind}(text) if (text := get({one.wire!r})) is not None else {one.default!r}"
        arguments.append(f"            {one.name}={value},")
    return "\n".join(
        [
            "def function(cls, fields):",
            "    get = fields.get",
            "    try:",
            "        return cls(",
            *arguments,
            "        )",
            "    except (KeyError, ValueError, TypeError, AttributeError):",
            "        raise complaint(cls, fields) from None",
        ]
    )


def _compile(qualified_name: str, source: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {**_READERS, "complaint": _complaint}
    exec(compile(source, f"<{qualified_name}>", "exec"), namespace)
    function: Callable[..., Any] = namespace["function"]
    function.__qualname__ = qualified_name
    function.__name__ = qualified_name.rpartition(".")[2]
    return function


def _complaint(cls: Any, fields: Mapping[str, str]) -> ProtocolError:
    """Why `fields` are not this header: looked for only when reading has failed."""
    for one in cls._plan:
        text = fields.get(one.wire)
        if text is None:
            if one.required:
                return ProtocolError(f"{cls.__name__}: field {one.wire!r} is missing")
            continue
        try:
            if one.kind != "str":
                _READERS[one.kind](text)
        except (ValueError, TypeError, AttributeError):
            return ProtocolError(
                f"{cls.__name__}: field {one.wire!r} should be {_EXPECTED[one.kind]}, not {str(text)[:100]!r}"
            )
    return ProtocolError(f"{cls.__name__}: fields {sorted(fields)} could not be read")


# --- what every request of 5.x may carry -------------------------------------------------------------------


@header
class RpcRequestHeader(Header):
    """The fields that 5.x added to every request (4.9 ignores them); the names are the wire's own."""

    ns: str | None = None
    """Namespace."""
    nsd: bool | None = None
    """Whether topic and group are namespaced already."""
    bname: str | None = None
    """The broker the request is meant for: proxies and static topics need it."""
    oway: bool | None = None
    """Whether the sender expects no answer."""


@header
class TopicRequestHeader(RpcRequestHeader):
    """A request about a topic."""

    lo: bool | None = None
    """Whether a static topic's queue id is a logical one."""
