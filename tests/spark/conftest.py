"""One Spark session for all tests of Spark: to start one takes some seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketstream.spark.link import Link, LinkSettings
from rocketstream.testing import EmbeddedCluster, RocketMQCluster
from tests.spark.filled import FilledTopic

SOURCES = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two slots, whose Python processes are this one's Python."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    place = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("rocketstream tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.metricsEnabled", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.python.unix.domain.socket.dir", str(place))
        .config("spark.local.dir", str(place / "local"))
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Xss4m -Dderby.system.home={place} -XX:+UseSerialGC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def filled(
    rocketmq_cluster: RocketMQCluster | EmbeddedCluster, unique_topic: str
) -> Iterator[Callable[..., FilledTopic]]:
    """Make topics of the shared cluster that a test fills; they are let go of at the end."""
    with ExitStack() as stack:

        def make(queues: int = 4, topic: str = unique_topic, **settings: Any) -> FilledTopic:
            made = FilledTopic(rocketmq_cluster.name_server_address, topic, queues, **settings)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def linked(rocketmq_cluster: RocketMQCluster | EmbeddedCluster) -> Iterator[Callable[..., Link]]:
    """Links of the test's own to the shared cluster, or to another; they are closed at the end."""
    links: list[Link] = []

    def make(name_servers: str | None = None, outage: float = 60.0, **settings: Any) -> Link:
        address = name_servers or rocketmq_cluster.name_server_address
        links.append(Link(LinkSettings(tuple(address.split(";")), **settings), outage=outage))
        return links[-1]

    yield make
    for link in links:
        link.close()
