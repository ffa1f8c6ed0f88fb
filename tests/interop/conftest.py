"""A cluster on which delays are short and transactions are checked soon, for the tests of several files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketstream.testing.plugin import require_real
from tests.contract.clusters import TARGETS, AnyCluster, new_cluster, require_target
from tests.interop.java_peer import JavaPeer

CONFIG = {
    "messageDelayLevel": "1s 2s 3s",
    "transactionTimeOut": 2_000,  # how old a half message is before it is asked about
    "transactionCheckInterval": 500,
    "recallMessageEnable": True,
}


@pytest.fixture(scope="package", params=TARGETS)
def cluster(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    """Two brokers with short times."""
    require_target(request, request.param)
    with new_cluster(request.param, brokers=2, broker_config=CONFIG) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def peer(cluster: AnyCluster) -> Iterator[JavaPeer]:
    """Java's client of that cluster's version (of 5.5.0 for embedded brokers)."""
    require_real(cluster.version)
    with JavaPeer(cluster.version, cluster.name_server_address) as peer:
        yield peer
