"""Scripted peers that a test's client may take for a name server and brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rocketstream.testing.scripted_server import ScriptedServer
from rocketstream.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response


async def eventually(condition: Callable[[], bool]) -> None:
    """For what real sockets and threads bring about in their own time."""
    for _ in range(12_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to pass")


class ScriptedNameServer(ScriptedServer):
    """A name server whose routes a test sets."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.routes: dict[str, TopicRouteData] = {}
        self.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)

    def set_route(self, topic: str, brokers: dict[str, dict[int, str]], queues: int = 4, perm: int = 6) -> None:
        self.routes[topic] = TopicRouteData(
            queue_datas=tuple(
                QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
                for name in brokers
            ),
            broker_datas=tuple(
                BrokerData(broker_name=name, cluster="c", broker_addrs=by_id) for name, by_id in brokers.items()
            ),
        )

    def asked_for(self, topic: str) -> int:
        return sum(1 for command in self.received if command.fields.get("topic") == topic)

    def _route(self, command: Command) -> Command:
        route = self.routes.get(command.fields["topic"])
        if route is None:
            return response(command, ResponseCode.TOPIC_NOT_EXIST, "No topic route info in name server")
        return response(command, ResponseCode.SUCCESS, body=route.encode())


class ScriptedBroker(ScriptedServer):
    """A broker that takes heartbeats and unregistrations."""

    VERSION = 433

    def __init__(self) -> None:
        super().__init__()
        self.on(RequestCode.HEART_BEAT, self._ok)
        self.on(RequestCode.UNREGISTER_CLIENT, self._ok)

    def count(self, code: int) -> int:
        return sum(1 for command in self.received if command.code == code)

    def _ok(self, command: Command) -> Command:
        answer = response(command, ResponseCode.SUCCESS)
        answer.version = self.VERSION
        return answer
