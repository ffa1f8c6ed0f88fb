"""What a client instance measures: routes, heartbeats, and what its connections do."""

from __future__ import annotations

from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.settings import ClientSettings
from rocketstream.metrics.registry import registry
from rocketstream.wire.codes import RequestCode
from tests.scripted import eventually


class Producer:
    group = "metrics-of-an-instance"

    def topics(self):
        return ("t", "nowhere")


async def test_routes_and_heartbeats_are_counted(name_server, broker, clock):
    name_server.set_route("t", {"a": {0: broker.address}})
    instance = ClientInstance("metrics@1", ClientSettings(name_servers=(name_server.address,)), clock=clock)

    def told(name: str, *labels: str) -> float | None:
        values = {(s.metric.name.removeprefix("rocketstream_"), s.labels): s.value for s in instance.collect_metrics()}
        return values.get((name, labels))

    instance.register_producer(Producer())
    await instance.start()
    await clock.advance(0.5)
    await eventually(lambda: told("client_route_fetches_total", "unknown") == 1)
    assert told("client_route_fetches_total", "ok") == 1
    assert await instance.heartbeat() == 1
    broker.on(RequestCode.HEART_BEAT, lambda command: None)
    broker.peers[0].cut()
    beating = instance.heartbeat()
    await broker.stop()
    assert await beating == 0
    assert (told("client_heartbeats_total", "ok"), told("client_heartbeats_total", "failed")) == (1, 1)
    assert told("remoting_requests_total", "HEART_BEAT", "answered") == 1
    before = {(s.metric, s.labels): s.value for s in registry.collect()}
    await instance.stop()
    after = {(s.metric, s.labels): s.value for s in registry.collect()}
    assert id(instance) not in registry._sources
    for key, value in before.items():
        if key[0].name == "rocketstream_client_heartbeats_total":
            assert after[key] == value, "what was counted stays"
