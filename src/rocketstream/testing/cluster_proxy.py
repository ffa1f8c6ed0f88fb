"""A fault proxy in front of every node of a cluster.

A client is given only name servers; it learns the brokers' addresses from the routes that these answer. So the proxies
of the name servers rewrite the brokers' addresses in their answers, each to a `FaultProxy` of that broker's own.
"""

from __future__ import annotations

import asyncio
import re

from rocketstream.clock import Clock
from rocketstream.errors import ConfigurationError
from rocketstream.testing._on_loop import OnLoop
from rocketstream.testing.fault_proxy import FaultProxy, FrameHook
from rocketstream.testing.recording import Direction
from rocketstream.wire.command import Command

# "brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}, in routes and in the list of the cluster. The body is not
# JSON (its keys are bare numbers), and nothing but the addresses is to change in it.
_ADDRESSES = re.compile(rb'"brokerAddrs"\s*:\s*\{[^{}]*\}')
_ADDRESS = re.compile(rb'(:\s*")([^"]+:\d+)(")')


class ClusterProxy(OnLoop):
    """Fault proxies in front of the name servers ("a:9876;b:9876") and of every broker they name.

    `with ClusterProxy(cluster.name_server_address) as proxy:` give clients `proxy.name_server_address`; a broker's
    proxy exists once a route that names it has passed, or `broker(address)` was asked for. `on_frame` sees the frames
    of brokers; `record`, `seed` and `clock` are those of `FaultProxy`.
    """

    def __init__(
        self,
        name_servers: str,
        *,
        on_frame: FrameHook | None = None,
        record: bool = False,
        seed: int = 0,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        addresses = [address.strip() for address in name_servers.split(";") if address.strip()]
        if not addresses:
            raise ConfigurationError(f"name_servers={name_servers!r} names no address")
        self._on_frame = on_frame
        self._record = record
        self._seed = seed
        self._clock = clock
        self.name_servers = [
            FaultProxy(address, on_frame=self._rewrite, record=record, seed=seed + index, clock=clock)
            for index, address in enumerate(addresses)
        ]
        self.brokers: dict[str, FaultProxy] = {}
        """The proxy of each broker, by the broker's own address."""
        self._starting: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<ClusterProxy of {len(self.name_servers)} name servers and {len(self.brokers)} brokers>"

    @property
    def name_server_address(self) -> str:
        """What a client's `name_servers` takes: "host:port;host:port"."""
        return ";".join(proxy.address for proxy in self.name_servers)

    @property
    def proxies(self) -> list[FaultProxy]:
        """Every proxy, of name servers and brokers."""
        return [*self.name_servers, *self.brokers.values()]

    def broker(self, address: str) -> FaultProxy:
        """The proxy of the broker with that address, made if there is none."""
        return self.on_loop(lambda: self._broker(address))

    def _broker(self, address: str) -> FaultProxy:
        proxy = self.brokers.get(address)
        if proxy is None:
            seed = self._seed + len(self.name_servers) + len(self.brokers)
            proxy = FaultProxy(address, on_frame=self._on_frame, record=self._record, seed=seed, clock=self._clock)
            proxy.begin()  # its address is in the answer that is passing, and a client may come at once
            self.brokers[address] = proxy
            self._starting.append(asyncio.ensure_future(proxy.start()))
        return proxy

    def _rewrite(self, direction: Direction, command: Command) -> Command:
        if direction == "down" and b'"brokerAddrs"' in command.body:
            command.body = _ADDRESSES.sub(self._rewrite_addresses, command.body)
        return command

    def _rewrite_addresses(self, addresses: re.Match[bytes]) -> bytes:
        return _ADDRESS.sub(
            lambda found: b"".join((found[1], self._broker(found[2].decode()).address.encode(), found[3])),
            addresses[0],
        )

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen in front of the name servers."""
        for proxy in self.name_servers:
            await proxy.start()

    async def close(self) -> None:
        """Cut every connection and listen no more."""
        for proxy in self.name_servers:
            await proxy.close()
        for starting in self._starting:
            await starting
        for proxy in self.brokers.values():
            await proxy.close()

    def raise_hook_error(self) -> None:
        """Raise what `on_frame` has raised, if it has."""
        for proxy in self.proxies:
            proxy.raise_hook_error()
