"""Namespaces of the second kind (5.x): a field beside the names of every request, which keeps the names as they are.

Whoever stands between clients and brokers (a proxy, a cloud's gateway) reads it; RocketMQ's own brokers take it and
pass over it. Java's `NamespaceRpcHook`.
"""

from __future__ import annotations

from typing import Final

from rocketstream.remoting.hooks import RpcHook
from rocketstream.wire.command import Command

NAMESPACED_FIELD: Final = "nsd"
NAMESPACE_FIELD: Final = "ns"


class NamespaceHook(RpcHook):
    """Writes the namespace into every request, to brokers and to name servers."""

    inline = True

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"<NamespaceHook {self._namespace}>"

    def before_request(self, address: str, request: Command) -> None:
        """Name the namespace."""
        request.fields[NAMESPACED_FIELD] = "true"
        request.fields[NAMESPACE_FIELD] = self._namespace
