"""A cluster whose broker may be killed, for the tests of several files, and who can be asked about it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketstream import AdminClient
from rocketstream.testing import RocketMQCluster
from rocketstream.testing.plugin import VERSIONS, require_real

CONFIG = {
    # Only outages are to fail sends, not a machine that is busy with other things.
    "waitTimeMillsInSendQueue": 60_000,
    "sendThreadPoolQueueCapacity": 100_000,
}
# How long the locks of a member that died are kept, in milliseconds: a minute unless told otherwise. A client trusts
# its own for 30 s after it was last told that it has them, so it must not be less.
LOCKS = {"rocketmq.broker.rebalance.lockMaxLiveTime": "31000"}


@pytest.fixture(scope="package", params=VERSIONS)
def mortal_cluster(request: pytest.FixtureRequest) -> Iterator[RocketMQCluster]:
    """One broker; whoever kills it starts it again."""
    chosen = request.config.getoption("--rocketmq-version")
    if chosen and request.param not in chosen:
        pytest.skip(f"not among the chosen versions {chosen}")
    require_real(request.param)
    with RocketMQCluster(request.param, broker_config=CONFIG, broker_jvm_properties=LOCKS) as cluster:
        yield cluster


@pytest.fixture
def admin(mortal_cluster: RocketMQCluster) -> Iterator[AdminClient]:
    with AdminClient(mortal_cluster.name_server_address) as admin:
        yield admin
