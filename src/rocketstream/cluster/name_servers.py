"""The name servers: which there are, which of them answer, and asking them (REM-13).

A client stays with the name server it has chosen while that one answers. A request that gets no answer there goes on
to the next; one that could not be reached is asked again only when all the others failed too, or once a scan has found
it back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Iterable, Mapping, Sequence

from rocketstream.errors import ConfigurationError, NameServerError, RemotingError
from rocketstream.remoting.client import RemotingClient
from rocketstream.remoting.connection import split_address
from rocketstream.wire.command import Command

log = logging.getLogger("rocketstream.cluster")

ENVIRONMENT_VARIABLE = "NAMESRV_ADDR"


def parse_name_servers(value: str | Sequence[str]) -> tuple[str, ...]:
    """The addresses in "a:9876;b:9876" (a comma does too) or in a list of such; wrong ones are refused by name."""
    given: object = value
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise ConfigurationError(f"name_servers={value!r} must be a text like 127.0.0.1:9876 or a list of such")
    parts: Iterable[str] = [value] if isinstance(value, str) else value
    addresses: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            raise ConfigurationError(f"name_servers={value!r}: {part!r} is not an address like 127.0.0.1:9876")
        for address in part.replace(",", ";").split(";"):
            address = address.strip()
            if not address:
                continue
            try:
                split_address(address)
            except ConfigurationError as error:
                raise ConfigurationError(f"name_servers={value!r}: {error}") from None
            if address not in addresses:
                addresses.append(address)
    if not addresses:
        raise ConfigurationError(f"name_servers={value!r} names no address; expected for example 127.0.0.1:9876")
    return tuple(addresses)


def configured_name_servers(
    value: str | Sequence[str] | None, environment: Mapping[str, str] | None = None
) -> tuple[str, ...] | None:
    """What was given, else what `$NAMESRV_ADDR` says, else None: then the address server is asked."""
    if value is not None:
        return parse_name_servers(value)
    from_environment = (os.environ if environment is None else environment).get(ENVIRONMENT_VARIABLE, "").strip()
    return parse_name_servers(from_environment) if from_environment else None


class NameServers:
    """The name servers of a client."""

    def __init__(self, remoting: RemotingClient, addresses: Sequence[str] = ()) -> None:
        self._remoting = remoting
        self._addresses = tuple(addresses)
        self._unreachable: set[str] = set()
        # Clients that start together do not all choose the same one.
        self._chosen = random.choice(self._addresses) if self._addresses else None

    def __repr__(self) -> str:
        return f"<NameServers {self}, chosen {self._chosen}, unreachable {sorted(self._unreachable)}>"

    def __str__(self) -> str:
        return ";".join(self._addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        """All that are known."""
        return self._addresses

    @property
    def chosen(self) -> str | None:
        """The one that is asked first."""
        return self._chosen

    @property
    def unreachable(self) -> frozenset[str]:
        """Those that could not be reached when they were last tried."""
        return frozenset(self._unreachable)

    def replace(self, addresses: Sequence[str]) -> bool:
        """Use another list from now on; tell whether it differs from the old one."""
        if set(addresses) == set(self._addresses):
            return False
        log.info("the name servers are now %s (were %s)", ";".join(addresses), self or "none")
        for gone in set(self._addresses) - set(addresses):
            self._remoting.disconnect(gone, "it is no name server any more")
        self._addresses = tuple(addresses)
        self._unreachable &= set(addresses)
        if self._chosen not in self._addresses:
            self._chosen = random.choice(self._addresses) if self._addresses else None
        return True

    async def ask(self, request: Command, timeout: float) -> tuple[str, Command]:
        """The first answer that a name server gives, and its address; each is given `timeout` seconds."""
        if not self._addresses:
            raise NameServerError(
                "no name server is known: pass name_servers=, set $NAMESRV_ADDR, or provide an address server"
            )
        failures: list[str] = []
        for address in self._in_order():
            try:
                response = await self._remoting.invoke(address, request, timeout)
            except RemotingError as error:
                failures.append(str(error))
                self._mark_unreachable(address, error)
                continue
            self._unreachable.discard(address)
            if self._chosen != address:
                log.info("name server %s answers; it is asked first from now on (was %s)", address, self._chosen)
                self._chosen = address
            return address, response
        raise NameServerError(f"no name server answered {request.name}: {'; '.join(failures)}")

    async def check(self, timeout: float) -> None:
        """Raise `NameServerError` saying why, unless one of them can be reached."""
        failures: list[str] = []
        for address in self._in_order():
            try:
                await self._remoting.connect(address, timeout)
            except RemotingError as error:
                failures.append(str(error))
                self._mark_unreachable(address, error)
            else:
                return
        raise NameServerError(f"no name server can be reached: {'; '.join(failures) or 'none is known'}")

    async def scan(self) -> None:
        """Try to reach each of them, so that one that is gone is not chosen and one that is back can be."""
        await asyncio.gather(*(self._probe(address) for address in self._addresses))
        if self._chosen in self._unreachable:
            answering = [address for address in self._addresses if address not in self._unreachable]
            if answering:
                self._chosen = random.choice(answering)

    async def _probe(self, address: str) -> None:
        try:
            await self._remoting.connect(address)
        except RemotingError as error:
            self._mark_unreachable(address, error)
        else:
            if address in self._unreachable:
                log.info("name server %s is reachable again", address)
            self._unreachable.discard(address)

    def _mark_unreachable(self, address: str, error: RemotingError) -> None:
        if address not in self._unreachable and address in self._addresses:
            log.warning("name server %s does not answer: %s", address, error.reason)
            self._unreachable.add(address)

    def _in_order(self) -> list[str]:
        """The chosen one, the others that answer, and last those that did not."""

        def rank(address: str) -> tuple[bool, bool]:
            return address in self._unreachable, address != self._chosen

        return sorted(self._addresses, key=rank)
