"""Client ids: how brokers tell the members of a group apart."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket

DEFAULT_INSTANCE_NAME = "DEFAULT"


def local_ip() -> str:
    """An address of this machine that others may know it by; loopback only if there is no other."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    addresses = [str(entry[4][0]) for entry in found]
    return next((a for a in addresses if not ipaddress.ip_address(a).is_loopback), "127.0.0.1")


def unique_instance_name() -> str:
    """Process id + a part that no other client of this machine has, now or after a restart (START-04)."""
    return f"{os.getpid()}#{secrets.token_hex(8)}"


def client_id(instance_name: str, unit_name: str | None = None, ip: str | None = None) -> str:
    """ip@instance[@unit], as RocketMQ's own clients build it."""
    return "@".join(filter(None, (ip or local_ip(), instance_name, unit_name)))
