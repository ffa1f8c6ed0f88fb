"""A broker that may be killed, and drivers that are: local ones with two slots, whose tasks may fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketstream import AdminClient, Producer
from rocketstream.testing import RocketMQCluster
from tests.contract.clusters import require_target
from tests.spark.driving import Drivers

VERSION = "5.5.0"


@pytest.fixture(scope="module")
def mortal_broker(request: pytest.FixtureRequest) -> Iterator[RocketMQCluster]:
    """One broker; whoever kills it starts it again."""
    require_target(request, VERSION)
    with RocketMQCluster(VERSION) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def drivers(mortal_broker: RocketMQCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """The driver of the moment; a task may fail four times, as on a cluster."""
    with Drivers(tmp_path_factory.mktemp("drivers"), {"spark.master": "local[2,4]"}) as drivers:
        yield drivers


@pytest.fixture
def admin(mortal_broker: RocketMQCluster) -> Iterator[AdminClient]:
    with AdminClient(mortal_broker.name_server_address) as admin:
        yield admin


@pytest.fixture
def producer(mortal_broker: RocketMQCluster, unique_group: str) -> Iterator[Producer]:
    with Producer(f"{unique_group}-p", mortal_broker.name_server_address, send_timeout=10.0) as producer:
        yield producer


@pytest.fixture
def topic(admin: AdminClient, unique_topic: str) -> str:
    admin.create_topic(unique_topic, queues=8)
    return unique_topic


@pytest.fixture
def sink_topic(admin: AdminClient, unique_topic: str) -> str:
    admin.create_topic(f"{unique_topic}-sink", queues=4)
    return f"{unique_topic}-sink"
