"""What the client instance knows of the producers, consumers and services that live on it.

Their rooms are further down the house; these protocols are all that the cluster room may assume of them. Everything
here is called on the I/O thread and must not block it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Protocol

from rocketstream.wire.bodies.heartbeat import ConsumerData


class GroupMember(Protocol):
    """A producer or a consumer."""

    @property
    def group(self) -> str:
        """Its group's name."""

    def topics(self) -> Iterable[str]:
        """The topics whose routes it needs kept fresh."""


class ConsumerMember(GroupMember, Protocol):
    """A consumer: it also has subscriptions and offsets."""

    def heartbeat(self) -> ConsumerData:
        """What it tells the brokers of itself."""

    async def persist_offsets(self) -> None:
        """Write its offsets to their store."""

    async def adjust_threads(self) -> None:
        """Let its pool grow or shrink."""


class Service(Protocol):
    """Something that runs for the whole life of the client instance."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End; called in the reverse order of the starts."""


class ServiceOrder(IntEnum):
    """The order in which services start, once remoting and timers are there (START-12)."""

    PULL = 1
    REBALANCE = 2
    INNER_PRODUCER = 3
