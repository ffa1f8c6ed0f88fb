"""A cluster on which delays are short and transactions are checked soon, for the tests of several files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketstream.testing import RocketMQCluster
from rocketstream.testing.plugin import VERSIONS, require_real
from tests.interop.java_peer import JavaPeer

CONFIG = {
    "messageDelayLevel": "1s 2s 3s",
    "transactionTimeOut": 2_000,  # how old a half message is before it is asked about
    "transactionCheckInterval": 500,
    # RocketMQ 5 gathers commits and rollbacks for 3 s before it believes them, and checks back meanwhile.
    "transactionOpBatchInterval": 100,
    "recallMessageEnable": True,
}


@pytest.fixture(scope="package", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[RocketMQCluster]:
    """Two brokers with short times."""
    chosen = request.config.getoption("--rocketmq-version")
    if chosen and request.param not in chosen:
        pytest.skip(f"not among the chosen versions {chosen}")
    require_real(request.param)
    with RocketMQCluster(request.param, brokers=2, broker_config=CONFIG) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def peer(cluster: RocketMQCluster) -> Iterator[JavaPeer]:
    """Java's client of that cluster."""
    with JavaPeer(cluster.version, cluster.name_server_address) as peer:
        yield peer
