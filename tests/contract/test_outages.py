"""What needs a cluster of its own: outages, several name servers, TLS, access control, GO_AWAY."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from rocketstream import AdminClient
from rocketstream.errors import BrokerError, ConnectError, ConnectionLostError, RemotingError, SendRequestError
from rocketstream.remoting.acl import Credentials
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.testing import RocketMQCluster
from rocketstream.testing.plugin import EMBEDDED, VERSIONS
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


@pytest.mark.behaviour("REM-02", "REM-07")
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
def test_routes_come_from_the_name_server_that_is_left(version, connect_to, unique_topic):
    with new_cluster(version, name_servers=2) as cluster:
        client = connect_to(cluster)
        client.create_topic(cluster.brokers[0].address, unique_topic)
        servers = client.instance.name_servers
        by_address = {node.address: node for node in cluster.name_servers}
        by_address[servers.chosen].kill()
        gone = servers.chosen
        route = client.run(client.instance.routes.refresh(unique_topic))
        assert len(route.read_queues) == 1
        assert servers.chosen != gone
        assert servers.unreachable == {gone}
        by_address[gone].launch()
        eventually(lambda: not servers.unreachable)  # by its own scan, each 3 s


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


@dataclass
class Certificates:
    directory: Path
    authority: trustme.CA

    def options(self, version: str) -> dict[str, Any]:
        """Those of a cluster that speaks nothing but TLS."""
        if version != EMBEDDED:
            return {"jvm_properties": self.server_properties(), "tls": self.client_context()}
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
        return {"tls": context}

    def server_properties(self) -> dict[str, str]:
        """The JVM properties of a server that speaks nothing but TLS."""
        certificate = self.authority.issue_cert("127.0.0.1", "localhost", key_type=trustme.KeyType.RSA)
        key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
        key_file, chain_file = self.directory / "server.key", self.directory / "server.pem"
        # Netty reads keys in PKCS #8 only.
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        chain_file.write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
        return {
            "tls.server.mode": "enforcing",
            "tls.test.mode.enable": "false",
            "tls.server.keyPath": str(key_file),
            "tls.server.certPath": str(chain_file),
            "tls.enable": "true",  # for the broker's own requests to the name server
        }

    def client_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context


@pytest.mark.behaviour("REM-12")
def test_tls_with_a_broker_that_enforces_it(version, connect_to, unique_topic, tmp_path):
    certificates = Certificates(tmp_path, trustme.CA())
    context = certificates.client_context()
    with new_cluster(version, **certificates.options(version)) as cluster:
        broker = cluster.brokers[0].address
        client = connect_to(cluster, {"tls": context})
        client.create_topic(broker, unique_topic)
        client.send(unique_topic, b"secret " * 20_000)
        (message,) = client.pull_all("g", unique_topic)
        assert message.body == b"secret " * 20_000
        connection = client.instance.remoting.connections[broker]
        assert connection._transport.get_extra_info("cipher") is not None

        plain = connect_to(cluster)
        with pytest.raises(SendRequestError, match=broker):
            plain.ask(broker, RequestCode.GET_BROKER_CONFIG)
        stranger = connect_to(cluster, {"tls": True})
        with pytest.raises(ConnectError, match=r"TLS handshake failed.*certificate verify failed"):
            stranger.ask(broker, RequestCode.GET_BROKER_CONFIG)


ACL_4_9 = """
accounts:
- accessKey: RocketMQ
  secretKey: "12345678"
  admin: true
"""

ACL_5 = {
    "authenticationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "initAuthenticationUser": '{"username":"RocketMQ","password":"12345678"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"RocketMQ","secretKey":"12345678"}',
}


@pytest.mark.behaviour("REM-08")
def test_a_signed_request_is_let_in_and_a_wrong_one_is_not(version, connect_to, unique_topic, tmp_path):
    options: dict[str, Any] = {"broker_config": ACL_5}
    if version == "4.9.7":
        options = {"broker_config": {"aclEnable": "true"}}
        (tmp_path / "broker-a" / "conf").mkdir(parents=True)
        (tmp_path / "broker-a" / "conf" / "plain_acl.yml").write_text(ACL_4_9)
    elif version == EMBEDDED:
        options = {"credentials": [Credentials("RocketMQ", "12345678")]}
    with new_cluster(version, directory=tmp_path, **options) as cluster:
        broker = cluster.brokers[0].address
        client = connect_to(cluster, credentials=Credentials("RocketMQ", "12345678"))
        client.create_topic(broker, unique_topic)
        client.send(unique_topic, b"signed", {"KEYS": "größe 中文"})
        (message,) = client.pull_all("g", unique_topic)
        assert (message.body, message.keys) == (b"signed", "größe 中文")
        for intruder in (connect_to(cluster), connect_to(cluster, credentials=Credentials("RocketMQ", "87654321"))):
            with pytest.raises(BrokerError) as caught:
                intruder.send(unique_topic, b"forged")
            assert caught.value.address == broker
            assert caught.value.remark
        operators_are_checked(cluster, unique_topic)


def operators_are_checked(cluster: AnyCluster, topic: str) -> None:
    """With the right key an operator sees everything; without it the broker's own words say why not."""
    broker = cluster.brokers[0].address
    with AdminClient(cluster.name_server_address, credentials=Credentials("RocketMQ", "12345678")) as operator:
        assert topic in {one.name for one in operator.topics()}
        assert operator.create_topic(f"{topic}-2", queues=1).topic == f"{topic}-2"
        assert [message.body for message in operator.peek(topic)] == [b"signed"]
    for credentials in (None, Credentials("RocketMQ", "87654321"), Credentials("Nobody", "12345678")):
        with AdminClient(cluster.name_server_address, credentials=credentials) as intruder:
            for ask, *arguments in (
                (intruder.topics,),
                (intruder.create_topic, f"{topic}-3"),
                (intruder.delete_topic, topic),
                (intruder.peek, topic),
                (intruder.messages_by_key, topic, "größe"),
                (intruder.broker_config, broker),
            ):
                with pytest.raises(BrokerError) as caught:
                    ask(*arguments)
                assert caught.value.address == broker
                assert caught.value.remark
                assert caught.value.remark in str(caught.value)


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
