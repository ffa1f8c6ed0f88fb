"""A topic's attributes (5.x): how modifications are written, and which are allowed (RocketMQ's `AttributeUtil`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rocketstream.broker.refusal import Refusal
from rocketstream.wire.codes import ResponseCode

MESSAGE_TYPE = "message.type"


class _Attribute(NamedTuple):
    changeable: bool
    values: frozenset[str]


_KNOWN = {
    "queue.type": _Attribute(False, frozenset({"BatchCQ", "SimpleCQ"})),
    "cleanup.policy": _Attribute(False, frozenset({"DELETE", "COMPACTION"})),
    MESSAGE_TYPE: _Attribute(
        True, frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE"})
    ),
}
#: Kept for tiered storage only, which is not here: RocketMQ without it refuses to set it too.
_RESERVE_TIME = "reserve.time"


def parse_modifications(text: str | None) -> dict[str, str]:
    """What "+name=value,-name" asks for, with its signs."""
    modifications: dict[str, str] = {}
    for part in (text or "").split(",") if text else ():
        name, equals, value = part.partition("=")
        if equals and "+" not in name:
            raise _wrong(f"add/alter attribute format is wrong: {name}")
        if not equals and "-" not in name:
            raise _wrong(f"delete attribute format is wrong: {name}")
        if name in modifications:
            raise _wrong(f"key duplication: {name}")
        modifications[name] = value
    return modifications


def altered(current: Mapping[str, str] | None, modifications: Mapping[str, str]) -> dict[str, str]:
    """The attributes after modifications; `current` is None for a topic that is being made."""
    result = dict(current or {})
    seen: set[str] = set()
    for signed, value in modifications.items():
        sign, name = signed[:1], signed[1:]
        if not name or "+" in name or "-" in name:
            raise _wrong("kv string format wrong.")
        if name in seen:
            raise _wrong(f"alter duplication key. key: {name}")
        seen.add(name)
        if current is None and sign != "+":
            raise _wrong(f"only add attribute is supported while creating topic. key: {name}")
        if sign == "-":
            if name not in result:
                raise _wrong(f"attempt to delete a nonexistent key: {name}")
            _known(name, creating=False)
            del result[name]
        elif sign == "+":
            _verify(name, value, creating=current is None)
            result[name] = value
        else:
            raise _wrong(f"wrong format key: {name}")
    return result


def _verify(name: str, value: str, *, creating: bool) -> None:
    if name == _RESERVE_TIME:
        raise _wrong("Update topic reserveTime not supported")
    attribute = _known(name, creating=creating)
    if value not in attribute.values:
        raise _wrong(f"value is not in set: [{', '.join(sorted(attribute.values))}]")


def _known(name: str, *, creating: bool) -> _Attribute:
    attribute = _KNOWN.get(name)
    if attribute is None:
        raise _wrong(f"unsupported key: {name}")
    if not creating and not attribute.changeable:
        raise _wrong(f"attempt to update an unchangeable attribute. key: {name}")
    return attribute


def _wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
