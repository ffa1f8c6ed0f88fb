"""Fixtures of our own tests, beside those that the plugin `rocketstream.testing.plugin` gives to everybody."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.testing import EmbeddedCluster, RocketMQCluster
from rocketstream.testing.plugin import require_real
from tests.bare_client import BareClient
from tests.interop.java_peer import JavaPeer
from tests.spark.home import jvm_options, spark_home

# Examples are to find mistakes, not to measure a busy machine.
hypothesis.settings.register_profile(
    "tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("tests")

# Whoever runs us in the background may have SIGINT ignored, which children inherit; tests send it to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What starts Spark takes these from the environment.
os.environ.setdefault("SPARK_HOME", str(spark_home()))
os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_options())

pytest_plugins = [
    "pytester",
    "tests.whole_run",
    "tests.workers",
    "tests.behaviours.checklist",
    "tests.features.plugin",
]


@pytest.fixture(scope="session")
def java_peer(rocketmq_cluster: RocketMQCluster | EmbeddedCluster) -> Iterator[JavaPeer]:
    """RocketMQ's Java client of the cluster's version (of 5.5.0 for embedded brokers), connected to it."""
    require_real(rocketmq_cluster.version)
    with JavaPeer(rocketmq_cluster.version, rocketmq_cluster.name_server_address) as peer:
        yield peer


@pytest.fixture
def connect(rocketmq_cluster: RocketMQCluster) -> Iterator[Callable[..., BareClient]]:
    """Make clients of the cluster; they are closed at the end."""
    clients: list[BareClient] = []

    def connect(remoting: dict[str, Any] | None = None, **settings: Any) -> BareClient:
        client = BareClient(
            rocketmq_cluster.name_server_address,
            IoThread.shared(),
            remoting=RemotingSettings(**(remoting or {})),
            **settings,
        )
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Callable[..., BareClient]) -> BareClient:
    return connect()


@pytest.fixture
def broker(rocketmq_cluster: RocketMQCluster) -> str:
    """The address of the cluster's only broker."""
    return rocketmq_cluster.brokers[0].address


@pytest.fixture
def topic(client: BareClient, broker: str, unique_topic: str) -> str:
    """A topic with one queue."""
    client.create_topic(broker, unique_topic)
    return unique_topic
