"""Client ids: how brokers tell the members of a group apart, and the address of this machine in them.

Java lists the network interfaces and takes the first address that is not loopback, IPv4 before IPv6. The standard
library cannot list addresses, but the system can be asked which one it would send from.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket

DEFAULT_INSTANCE_NAME = "DEFAULT"

_LOOPBACK = "127.0.0.1"
# Addresses that nobody has (RFC 5737, RFC 3849): the way to them is the way to anywhere.
_ANYWHERE = {socket.AF_INET: "203.0.113.1", socket.AF_INET6: "2001:db8::1"}
_DISCARD_PORT = 9


def local_ip() -> str:
    """An address of this machine that others may know it by; loopback only if there is no other. Never raises."""
    return (
        _outgoing_address(socket.AF_INET)
        or _address_of_host_name()  # a network without a way out of it
        or _outgoing_address(socket.AF_INET6)
        or _LOOPBACK
    )


def unique_instance_name() -> str:
    """Process id + a part that no other client of this machine has, now or after a restart (START-04)."""
    return f"{os.getpid()}#{secrets.token_hex(8)}"


def client_id(instance_name: str, unit_name: str | None = None, ip: str | None = None) -> str:
    """ip@instance[@unit], as RocketMQ's own clients build it; an IPv6 address stands in brackets."""
    address = ip or local_ip()
    return "@".join(filter(None, (f"[{address}]" if ":" in address else address, instance_name, unit_name)))


def _outgoing_address(family: socket.AddressFamily) -> str | None:
    """The address that a packet to anywhere would be sent from. To connect a UDP socket sends none."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_ANYWHERE[family], _DISCARD_PORT))
            return _known_to_others(str(probe.getsockname()[0]))
    except OSError:
        return None


def _address_of_host_name() -> str | None:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter for a name that no name server would take
        return None
    return next((address for entry in found if (address := _known_to_others(str(entry[4][0])))), None)


def _known_to_others(address: str) -> str | None:
    parsed = ipaddress.ip_address(address)
    # A link-local IPv6 address means something together with an interface only.
    unusable = parsed.is_loopback or parsed.is_unspecified or (parsed.version == 6 and parsed.is_link_local)
    return None if unusable else address
