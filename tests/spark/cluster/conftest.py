"""A standalone Spark of two workers and a RocketMQ of two masters, for the tests of this directory.

Everything is a process of its own: both Spark workers, their executors, both brokers, and the driver, which is not
pytest (`tests/spark/driving.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstream import AdminClient, Producer
from rocketstream.testing import RocketMQCluster, SparkStandalone
from tests.contract.clusters import require_target
from tests.spark.driving import Drivers
from tests.spark.home import jvm_options, spark_home

VERSION = "5.5.0"


@pytest.fixture(scope="module")
def two_masters(request: pytest.FixtureRequest) -> Iterator[RocketMQCluster]:
    require_target(request, VERSION)
    with RocketMQCluster(VERSION, brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spark_cluster(two_masters: RocketMQCluster) -> Iterator[SparkStandalone]:
    with SparkStandalone(workers=2, environment={"SPARK_HOME": str(spark_home())}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def drivers(spark_cluster: SparkStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """The driver of the moment, which has all cores of the cluster: there is one at a time."""
    settings = {**spark_cluster.settings, "spark.executor.extraJavaOptions": jvm_options()}
    with Drivers(tmp_path_factory.mktemp("drivers"), settings) as drivers:
        yield drivers


@pytest.fixture(scope="module")
def admin(two_masters: RocketMQCluster) -> Iterator[AdminClient]:
    with AdminClient(two_masters.name_server_address) as admin:
        yield admin


@pytest.fixture(scope="module")
def producer(two_masters: RocketMQCluster) -> Iterator[Producer]:
    with Producer("spark-cluster-tests", two_masters.name_server_address, send_timeout=10.0) as producer:
        yield producer


@pytest.fixture
def topic(admin: AdminClient, unique_topic: str) -> str:
    """A topic with four queues on each of the two brokers."""
    admin.create_topic(unique_topic, queues=4)
    return unique_topic


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    place = tmp_path / "gate"
    place.mkdir()
    return place
