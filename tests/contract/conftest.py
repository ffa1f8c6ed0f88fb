"""What the tests of push consumers on real brokers share: consumers that end with the test, and who listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from rocketstream import AdminClient, Producer, PushConsumer
from rocketstream.testing import EmbeddedCluster, RocketMQCluster
from rocketstream.testing.plugin import EMBEDDED
from tests.contract.clusters import AnyCluster
from tests.contract.consuming import Heard, broker_settings, new_consumer


@pytest.fixture
def sender(rocketmq_cluster: RocketMQCluster, unique_group: str) -> Iterator[Producer]:
    """A producer of the cluster."""
    with Producer(f"{unique_group}-p", rocketmq_cluster.name_server_address, send_timeout=10.0) as producer:
        yield producer


@pytest.fixture
def admin(rocketmq_cluster: RocketMQCluster) -> Iterator[AdminClient]:
    """An operator of the cluster."""
    # RocketMQ 5 counts a million slots of its timers when it is asked how it is: on a busy machine that takes seconds.
    with AdminClient(rocketmq_cluster.name_server_address, timeout=30.0) as admin:
        yield admin


@pytest.fixture
def consume(rocketmq_cluster: RocketMQCluster, unique_group: str) -> Iterator[Callable[..., PushConsumer]]:
    """Start consumers of the test's group: `consume(listener, topic or {topic: expression}, **settings)`."""
    with ExitStack() as stack:

        def consume(listener: Any, topics: Any, *, group: str = unique_group, **settings: Any) -> PushConsumer:
            address = settings.pop("name_servers", rocketmq_cluster.name_server_address)
            return stack.enter_context(new_consumer(group, address, listener, topics, **settings))

        yield consume


@pytest.fixture
def rocketmq_target(rocketmq_cluster: AnyCluster) -> str:
    """What the test runs on, for a cluster of its own of the same kind."""
    return EMBEDDED if isinstance(rocketmq_cluster, EmbeddedCluster) else rocketmq_cluster.version


@pytest.fixture
def heard() -> Heard:
    """A listener that says SUCCESS to everything."""
    return Heard()


@pytest.fixture
def configure(rocketmq_cluster: RocketMQCluster, client: Any) -> Iterator[Callable[..., None]]:
    """Change settings of the running broker until the end of the test."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            broker_settings(client, rocketmq_cluster.brokers[0].address, **settings)
        )
