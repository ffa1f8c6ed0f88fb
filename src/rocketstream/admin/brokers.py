"""Brokers: which there are, how they are, and their settings."""

from __future__ import annotations

from collections.abc import Mapping

from rocketstream.admin.asking import AdminAsking, Node
from rocketstream.admin.values import BrokerInfo, ClusterReport
from rocketstream.errors import RocketStreamError
from rocketstream.wire.bodies.stats import KVTable
from rocketstream.wire.codes import RequestCode


class BrokerOperations(AdminAsking):
    """What an operator asks of brokers."""

    async def cluster(self) -> ClusterReport:
        """All brokers with their versions and rates; one that does not answer is listed with its `problem`."""
        brokers = await self.for_all(await self.nodes(), self._broker)
        return ClusterReport(self.instance.name_servers.addresses, tuple(brokers))

    async def broker_config(self, address: str) -> dict[str, str]:
        """A broker's settings by name, as it has them now."""
        answer = await self.instance.ask(address, RequestCode.GET_BROKER_CONFIG)
        lines = (line.partition("=") for line in answer.body.decode("utf-8", "replace").splitlines())
        return {name.strip(): value.strip() for name, equals, value in lines if equals}

    async def _broker(self, node: Node) -> BrokerInfo:
        try:
            answer = await self.ask(node, RequestCode.GET_BROKER_RUNTIME_INFO)
            return _info(node, KVTable.decode(answer.body).table)
        except RocketStreamError as error:
            return BrokerInfo(node.cluster, node.name, node.broker_id, node.address, problem=str(error))


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
