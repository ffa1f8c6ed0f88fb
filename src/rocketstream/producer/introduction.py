"""Making sure that a broker knows us before it is sent something that it will want to come back to us with.

A broker asks the producers that it knows how a transaction went, and hands replies to the clients that it knows; it
knows them by the heartbeats that came over the connection that is open now. Regular heartbeats come every 30 s: too
late for a broker whose connection has just been made, or made again after a restart.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from rocketstream.message import MessageQueue
from rocketstream.wire.codes import RequestCode

if TYPE_CHECKING:
    from rocketstream.cluster.client_instance import ClientInstance
    from rocketstream.remoting.connection import Connection

BrokerCheck: TypeAlias = "Callable[[ClientInstance, MessageQueue, str, float], Awaitable[None]]"
"""What has to hold of a broker (its queue, its address; at most so many seconds) before a message goes there."""


async def introduce(instance: ClientInstance, broker_name: str, address: str, timeout: float) -> int:
    """Send one broker a heartbeat and return its version; whatever goes wrong is raised."""
    body = instance.heartbeat_data().encode()
    answer = await instance.ask(address, RequestCode.HEART_BEAT, body=body, timeout=timeout)
    instance.brokers.set_version(broker_name, address, answer.version)
    return answer.version


class Introductions:
    """The connections over which a producer has introduced itself; touched on the I/O thread only."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, weakref.ref[Connection]] = {}

    def __repr__(self) -> str:
        return f"<Introductions at {sorted(self._known)}>"

    async def make_sure(self, instance: ClientInstance, queue: MessageQueue, address: str, timeout: float) -> None:
        """Introduce ourselves unless we have, over this very connection; a `BrokerCheck`."""
        known = self._known.get(address)
        connection = instance.remoting.connections.get(address)
        if known is not None and connection is not None and known() is connection:
            return
        await introduce(instance, queue.broker_name, address, timeout)
        connection = instance.remoting.connections.get(address)
        if connection is not None:
            self._known[address] = weakref.ref(connection)
