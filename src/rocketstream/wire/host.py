"""A host in a stored message or a message id: its IP address and a four-byte port.

The rule of this file: IP addresses only. A name would need a resolver, and `wire/` asks nobody.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from rocketstream.errors import ConfigurationError

_IPV4 = struct.Struct(">4BI")
_PORT = struct.Struct(">I")

IPV4_SIZE = 8
IPV6_SIZE = 20


# A consumer sees the same few producers and brokers in millions of messages.
@lru_cache(maxsize=1024)
def decode_host(raw: bytes) -> str:
    """`a.b.c.d:port` or `[v6]:port`, from the 8 or 20 bytes of a host."""
    if len(raw) == IPV4_SIZE:
        return "{}.{}.{}.{}:{}".format(*_IPV4.unpack(raw))
    (port,) = _PORT.unpack(raw[16:])
    return f"[{IPv6Address(raw[:16])}]:{port}"


@lru_cache(maxsize=1024)
def encode_host(host: str) -> bytes:
    """The 8 or 20 bytes of `ip:port`."""
    name, colon, port = host.rpartition(":")
    address = parse_ip(name.removeprefix("[").removesuffix("]"), given=host)
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigurationError(f"host {host!r} needs a port from 0 to 65535 after its last colon")
    return address.packed + _PORT.pack(int(port))


def parse_ip(text: str, *, given: str | None = None) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text)
    except ValueError:
        raise ConfigurationError(f"{given or text!r} does not start with an IPv4 or IPv6 address") from None
