"""Broker addresses: by name and id, with the versions that brokers told in their heartbeats' answers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

log = logging.getLogger("rocketstream.cluster")

MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker process as a request finds it."""

    broker_name: str
    broker_id: int
    address: str
    version: int | None
    """The ordinal in RocketMQ's list of versions; None before the first heartbeat was answered."""

    @property
    def is_slave(self) -> bool:
        """Whether it only copies a master."""
        return self.broker_id != MASTER_ID


class BrokerTable:
    """name → id → address, as the routes say."""

    def __init__(self) -> None:
        self._addresses: dict[str, dict[int, str]] = {}
        self._versions: dict[tuple[str, str], int] = {}

    def __repr__(self) -> str:
        return f"<BrokerTable {self._addresses}>"

    def __iter__(self) -> Iterator[BrokerAddress]:
        for name, by_id in list(self._addresses.items()):
            for broker_id in sorted(by_id):
                yield self._entry(name, broker_id, by_id[broker_id])

    def __len__(self) -> int:
        return sum(map(len, self._addresses.values()))

    def update(self, brokers: Mapping[str, Mapping[int, str]]) -> None:
        """What a fresh route says of the brokers it names replaces what was known of them."""
        for name, by_id in brokers.items():
            self._addresses[name] = dict(by_id)

    def keep_only(self, addresses: Iterable[str]) -> list[str]:
        """Forget the addresses that no route names any more; return them."""
        alive = set(addresses)
        gone: list[str] = []
        for name, by_id in list(self._addresses.items()):
            for broker_id, address in list(by_id.items()):
                if address not in alive:
                    del by_id[broker_id]
                    self._versions.pop((name, address), None)
                    gone.append(address)
                    log.info("broker %s (%s, id %d) is in no route any more", address, name, broker_id)
            if not by_id:
                del self._addresses[name]
        return gone

    def set_version(self, broker_name: str, address: str, version: int) -> None:
        """Remember what a broker said it is."""
        self._versions[broker_name, address] = version

    def master(self, broker_name: str) -> BrokerAddress | None:
        """The master of a broker name: who takes sends, locks and offsets."""
        return self.find(broker_name, MASTER_ID, only_this=True)

    def find(self, broker_name: str, broker_id: int, *, only_this: bool = False) -> BrokerAddress | None:
        """The broker with that id, or any other of that name unless only this one will do (PULL-16)."""
        by_id = self._addresses.get(broker_name)
        if not by_id:
            return None
        address = by_id.get(broker_id)  # one look: a caller's thread may ask while the I/O thread forgets
        if address is not None:
            return self._entry(broker_name, broker_id, address)
        if broker_id != MASTER_ID and broker_id + 1 in by_id:
            return self._entry(broker_name, broker_id + 1, by_id[broker_id + 1])
        if only_this:
            return None
        other = min(by_id)
        return self._entry(broker_name, other, by_id[other])

    def _entry(self, name: str, broker_id: int, address: str) -> BrokerAddress:
        return BrokerAddress(name, broker_id, address, self._versions.get((name, address)))
