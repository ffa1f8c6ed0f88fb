"""One question to a name server, in the fewest bytes: is it there, and which brokers does it know?

Self-contained on purpose: the test bed says whether a server is ready without the client that it is there to test.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import struct

GET_BROKER_CLUSTER_INFO = 106
_BARE_KEY = re.compile(rb"([{,])\s*(\d+)\s*:")  # RocketMQ writes maps with numeric keys, unquoted


def registered_brokers(address: str, *, timeout: float = 3.0, tls: ssl.SSLContext | None = None) -> set[str]:
    """Return "name/id@address" of each broker that a name server knows; OSError or ValueError if it does not answer."""
    code, body = exchange(address, GET_BROKER_CLUSTER_INFO, timeout=timeout, tls=tls)
    if code != 0:
        raise ValueError(f"{address} answered code {code}")
    table = json.loads(_BARE_KEY.sub(rb'\1"\2":', body)).get("brokerAddrTable", {})
    return {
        f"{name}/{broker_id}@{broker_address}"
        for name, broker in table.items()
        for broker_id, broker_address in broker.get("brokerAddrs", {}).items()
    }


def exchange(address: str, code: int, *, timeout: float, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """Send one request without fields or body and return the response's code and body."""
    host, port = address.rsplit(":", 1)
    header = json.dumps({"code": code, "language": "PYTHON", "version": 0, "opaque": 1, "flag": 0}).encode()
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, int(port)), timeout))
        if tls is not None:
            connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
        connection.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header)
        (length,) = struct.unpack(">i", _receive(connection, 4))
        frame = _receive(connection, length)
    (header_length,) = struct.unpack(">i", frame[:4])
    header_length &= 0xFFFFFF
    return json.loads(frame[4 : 4 + header_length])["code"], frame[4 + header_length :]


def accepts_connections(address: str, timeout: float = 1.0) -> bool:
    """Whether something listens there."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout).close()
    except OSError:
        return False
    return True


def _receive(connection: socket.socket, count: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < count:
        chunk = connection.recv(count - len(chunks))
        if not chunk:
            raise ConnectionError("the peer closed the connection instead of answering")
        chunks += chunk
    return bytes(chunks)
