"""What needs a cluster of its own: outages, several name servers, GO_AWAY. (TLS, access control: test_security.py.)"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rocketstream.errors import ConnectError, ConnectionLostError, RemotingError
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.testing import RocketMQCluster
from rocketstream.testing.plugin import VERSIONS
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, request
from tests.bare_client import BareClient, BareConsumer, eventually
from tests.contract.clusters import TARGETS, AnyCluster, new_cluster, require_target


@pytest.fixture(params=TARGETS)
def version(request: pytest.FixtureRequest) -> str:
    require_target(request, request.param)
    return str(request.param)


@pytest.fixture(params=VERSIONS)
def real_version(request: pytest.FixtureRequest) -> str:
    require_target(request, request.param)
    return str(request.param)


@pytest.fixture
def connect_to() -> Iterator[Callable[..., BareClient]]:
    clients: list[BareClient] = []

    def connect_to(cluster: AnyCluster, remoting: dict[str, Any] | None = None, **settings: Any) -> BareClient:
        client = BareClient(
            cluster.name_server_address, IoThread.shared(), remoting=RemotingSettings(**(remoting or {})), **settings
        )
        clients.append(client)
        return client

    yield connect_to
    for client in clients:
        client.close()


@pytest.mark.feature("produce/outages")
@pytest.mark.behaviour("REM-02", "REM-07")
@pytest.mark.long(30, "kills a broker and starts it again", real=True)
def test_a_broker_that_dies_fails_its_callers_at_once_and_is_found_again(version, connect_to, unique_topic):
    with new_cluster(version) as cluster:
        broker = cluster.brokers[0]
        client = connect_to(cluster)
        client.create_topic(broker.address, unique_topic)
        client.send(unique_topic, b"before")
        # Held by the broker for 60 s unless something arrives; our own time-out is far away, too.
        header = client.pull_header("g", unique_topic, 1, sys_flag=6, suspend_timeout_millis=60_000)
        outcome: list[object] = []
        ended = threading.Event()

        def on_end(result: object) -> None:
            outcome.append(result)
            ended.set()

        async def pull() -> None:
            command = request(RequestCode.PULL_MESSAGE, header)
            client.instance.remoting.invoke_with_callback(broker.address, command, 300.0, on_end)

        client.run(pull())
        eventually(lambda: client.instance.remoting.pending == 1)
        broker.kill()
        assert ended.wait(60)
        assert isinstance(outcome[0], ConnectionLostError)
        assert broker.address in str(outcome[0])
        assert client.instance.remoting.pending == 0
        with pytest.raises(ConnectError, match=broker.address):
            client.ask(broker.address, RequestCode.GET_BROKER_CONFIG)
        broker.start()
        assert client.send(unique_topic, b"after").queue_offset == 1
        assert [message.body for message in client.pull_all("g", unique_topic)] == [b"before", b"after"]
        assert len(outcome) == 1


@pytest.mark.behaviour("REM-13")
@pytest.mark.long(25, "starts two name servers and kills one", real=True)
def test_routes_come_from_the_name_server_that_is_left(version, connect_to, unique_topic):
    with new_cluster(version, name_servers=2) as cluster:
        client = connect_to(cluster)
        client.create_topic(cluster.brokers[0].address, unique_topic)
        servers = client.instance.name_servers
        by_address = {node.address: node for node in cluster.name_servers}
        by_address[servers.chosen].kill()
        gone = servers.chosen
        route = client.wait_for_route(unique_topic)
        assert len(route.read_queues) == 1
        assert servers.chosen != gone
        assert servers.unreachable == {gone}
        by_address[gone].launch()
        eventually(lambda: not servers.unreachable)  # by its own scan, each 3 s


@pytest.mark.long(45, "waits for a slave to find its master")
def test_masters_and_slaves_are_known_and_told(real_version, connect_to, unique_topic, unique_group):
    with RocketMQCluster(real_version, brokers=1, slaves=1) as cluster:
        client = connect_to(cluster)
        master, slave = cluster.brokers[0], cluster.slaves[0]
        client.create_topic(master.address, unique_topic)

        def route():
            client.run(client.instance.routes.refresh(unique_topic))
            return {broker.broker_id: broker.address for broker in client.instance.brokers}

        eventually(lambda: route() == {0: master.address, slave.broker_id: slave.address})
        client.instance.register_consumer(BareConsumer(unique_group, unique_topic))
        assert client.run(client.instance.heartbeat()) == 2


@pytest.mark.long(50, "stops a broker in order, twice")
def test_go_away_of_a_broker_that_stops_is_understood(request, connect_to, unique_topic):
    """5.x only: 4.9 has no such answer. A stopping broker sends it on every connection, old and new."""
    version = "5.5.0"
    require_target(request, version)
    seen: list[int] = []

    class Watch(RpcHook):
        def after_response(self, address: str, request: Command, response: Command) -> None:
            seen.append(response.code)

    graceful = {"enableShutdownGracefully": "true", "shutdownWaitTimeSeconds": "5"}
    with RocketMQCluster(version, broker_config=graceful) as cluster:
        broker = cluster.brokers[0]
        client = connect_to(cluster, rpc_hooks=(Watch(),))
        client.ask(broker.address, RequestCode.GET_BROKER_CONFIG)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        refused: list[RemotingError] = []

        def asked() -> bool:
            try:
                client.ask(broker.address, RequestCode.GET_BROKER_CONFIG)
            except RemotingError as error:
                refused.append(error)
            return bool(refused)

        eventually(asked)
        stopping.join()
        assert "going away" in str(refused[0])
        assert ResponseCode.GO_AWAY not in seen, "no caller is ever shown it as an answer"
        assert client.instance.remoting.pending == 0
