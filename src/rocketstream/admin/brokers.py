"""Brokers: which there are, how they are, and their settings."""

from __future__ import annotations

from collections.abc import Mapping

from rocketstream.admin.asking import AdminAsking, Node
from rocketstream.admin.errors import NotFoundError
from rocketstream.admin.secrets import redacted
from rocketstream.admin.values import BrokerInfo, ClusterReport
from rocketstream.errors import ConfigurationError, RocketStreamError
from rocketstream.wire.bodies.stats import KVTable
from rocketstream.wire.codes import RequestCode


class BrokerOperations(AdminAsking):
    """What an operator asks of brokers."""

    async def cluster(self) -> ClusterReport:
        """All brokers with their versions and rates; one that does not answer is listed with its `problem`."""
        brokers = await self.for_all(await self.nodes(), self._broker)
        return ClusterReport(self.instance.name_servers.addresses, tuple(brokers))

    async def broker_config(self, broker: str) -> dict[str, str]:
        """A broker's settings by name, as it has them now, secrets hidden; `broker` is its name or its address."""
        answer = await self.instance.ask(await self._address_of(broker), RequestCode.GET_BROKER_CONFIG)
        return redacted(read_properties(answer.body))

    async def broker_runtime(self, broker: str) -> dict[str, str]:
        """Everything that a broker says of itself, in its own words; `broker` is its name or its address."""
        answer = await self.instance.ask(await self._address_of(broker), RequestCode.GET_BROKER_RUNTIME_INFO)
        return dict(sorted(KVTable.decode(answer.body).table.items()))

    async def name_server_config(self, address: str | None = None) -> dict[str, str]:
        """A name server's settings by name, secrets hidden; of the first one unless an address is given."""
        if address is None:
            answer = await self.ask_name_server(RequestCode.GET_NAMESRV_CONFIG)
        else:
            answer = await self.instance.ask(address, RequestCode.GET_NAMESRV_CONFIG)
        return redacted(read_properties(answer.body))

    async def node_config(self, node: str) -> dict[str, str]:
        """The settings of a broker (its name or address) or of a name server (its address)."""
        if node in self.instance.name_servers.addresses:
            return await self.name_server_config(node)
        return await self.broker_config(node)

    async def _address_of(self, broker: str) -> str:
        """Where a broker is: the master of a name; an address need not be one that the name servers tell."""
        if not isinstance(broker, str) or not broker.strip():
            raise ConfigurationError(f"broker={broker!r}: expected a broker's name or its address")
        if ":" in broker:
            return broker
        nodes = await self.nodes()
        for node in nodes:  # sorted: a master comes before its slaves
            if node.name == broker:
                return node.address
        known = ", ".join(dict.fromkeys(node.name for node in nodes)) or "none"
        raise NotFoundError(f"no broker is called {broker!r} at {self.instance.name_servers}: there are {known}")

    async def _broker(self, node: Node) -> BrokerInfo:
        try:
            answer = await self.ask(node, RequestCode.GET_BROKER_RUNTIME_INFO)
            return _info(node, KVTable.decode(answer.body).table)
        except RocketStreamError as error:
            return BrokerInfo(node.cluster, node.name, node.broker_id, node.address, problem=str(error))


def read_properties(body: bytes) -> dict[str, str]:
    """A properties file as Java writes one for us: `name=value` lines."""
    lines = (line.partition("=") for line in body.decode("utf-8", "replace").splitlines())
    return {name.strip(): value.strip() for name, equals, value in lines if equals}


def _info(node: Node, told: Mapping[str, str]) -> BrokerInfo:
    def number(name: str) -> int | None:
        text = told.get(name, "")
        return int(text) if text.isdigit() else None

    def since_midnight(what: str) -> int | None:
        now, morning = number(f"{what}TotalTodayNow"), number(f"{what}TotalTodayMorning")
        return None if now is None or morning is None else now - morning

    version = told.get("brokerVersionDesc", "").removeprefix("V").replace("_", ".")
    return BrokerInfo(
        node.cluster,
        node.name,
        node.broker_id,
        node.address,
        version=version or None,
        in_tps=_first_rate(told.get("putTps")),
        # 4.9 spells it with one r.
        out_tps=_first_rate(told.get("getTransferredTps") or told.get("getTransferedTps")),
        in_today=since_midnight("msgPut"),
        out_today=since_midnight("msgGet"),
        boot_timestamp=number("bootTimestamp"),
        disk_used=_first_rate(told.get("commitLogDiskRatio")),
        runtime=dict(sorted(told.items())),
    )


def _first_rate(text: str | None) -> float | None:
    """The first of "10s 60s 600s" averages."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None
