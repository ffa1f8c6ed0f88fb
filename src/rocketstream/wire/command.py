"""Commands: the one thing that both sides of a connection exchange.

A `Command` is a request, a one-way request or a response, told apart by two bits of `flag`. Its `fields` (extFields)
are strings by nature of the protocol; `wire.headers` gives them types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rocketstream.wire.codes import LanguageCode, RpcFlag, SerializeType, code_name, request_name

# The ordinal of V5_5_0 in RocketMQ's list of versions. Brokers decide by it what a client understands; among others
# they send GO_AWAY only to clients newer than 5.3.1.
PROTOCOL_VERSION = 513

# Plain ints: `&` on an IntFlag makes an object each time, and every command passes here.
_RESPONSE = int(RpcFlag.RESPONSE)
_ONE_WAY = int(RpcFlag.ONE_WAY)


class Header(Protocol):
    """Anything that can be written as extFields."""

    def to_fields(self) -> dict[str, str]:
        """The header as RocketMQ's string map."""


@dataclass(slots=True, eq=True)
class Command:
    """One remoting command."""

    code: int
    opaque: int = 0
    flag: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    remark: str | None = None
    body: bytes = b""
    language: int = LanguageCode.PYTHON
    version: int = PROTOCOL_VERSION
    serialize_type: int = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request (a one-way response does not exist)."""
        return bool(self.flag & _RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether the sender expects no answer."""
        return bool(self.flag & _ONE_WAY)

    @property
    def name(self) -> str:
        """The code's name, for people."""
        return code_name(self.code) if self.is_response else request_name(self.code)

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "one-way" if self.is_one_way else "request"
        # Field values stay out: a signature or a secret could be among them.
        return f"<{kind} {self.name} opaque={self.opaque} fields={sorted(self.fields)} body={len(self.body)}B>"


def request(code: int, header: Header | Mapping[str, str] | None = None, body: bytes = b"") -> Command:
    """A request; its opaque is given when it is sent."""
    return Command(code=code, fields=_fields(header), body=body)


def response(
    to: Command,
    code: int,
    remark: str | None = None,
    header: Header | Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Command:
    """The answer to a request: same opaque, same header encoding."""
    return Command(
        code=code,
        opaque=to.opaque,
        flag=_RESPONSE,
        fields=_fields(header),
        remark=remark,
        body=body,
        serialize_type=to.serialize_type,
    )


def _fields(header: Header | Mapping[str, str] | None) -> dict[str, str]:
    if header is None:
        return {}
    if isinstance(header, Mapping):
        return dict(header)
    return header.to_fields()
