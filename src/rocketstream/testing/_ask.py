"""One question to a name server over a plain socket: is it there, and which brokers does it know?

Without the client on purpose: the test bed says whether a server is ready before the client that it is there to test
has a say.
"""

from __future__ import annotations

import contextlib
import socket
import ssl

from rocketstream.errors import BrokerError
from rocketstream.remoting.connection import split_address
from rocketstream.remoting.replies import expect_success
from rocketstream.wire.bodies.route import ClusterInfo
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.command import Command, request
from rocketstream.wire.frame import FrameReader, encode_frame

_RECEIVE = 64 * 1024


def registered_brokers(address: str, *, timeout: float = 3.0, tls: ssl.SSLContext | None = None) -> set[str]:
    """Return "name/id@address" of each broker that a name server knows; OSError or ProtocolError if it says nothing."""
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    try:
        answer = expect_success(address, code, exchange(address, request(code), timeout=timeout, tls=tls))
    except BrokerError as error:
        raise ConnectionError(str(error)) from None
    return {
        f"{name}/{broker_id}@{broker_address}"
        for name, broker in ClusterInfo.decode(answer.body).broker_addr_table.items()
        for broker_id, broker_address in broker.broker_addrs.items()
    }


def exchange(address: str, command: Command, *, timeout: float, tls: ssl.SSLContext | None = None) -> Command:
    """Send one request on a connection of its own and return the answer."""
    host, port = split_address(address)
    reader = FrameReader()
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, port), timeout))
        if tls is not None:
            connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
        connection.sendall(b"".join(encode_frame(command)))
        while True:
            chunk = connection.recv(_RECEIVE)
            if not chunk:
                raise ConnectionError(f"{address} closed the connection instead of answering")
            for answer in reader.feed(chunk):
                return answer


def accepts_connections(address: str, timeout: float = 1.0) -> bool:
    """Whether something listens there."""
    try:
        socket.create_connection(split_address(address), timeout).close()
    except OSError:
        return False
    return True
