"""The targets of the contract suite, and clusters of a test's own on any of them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from rocketstream.testing import EmbeddedCluster, RocketMQCluster
from rocketstream.testing.embedded_cluster import EmbeddedBrokerNode
from rocketstream.testing.node import Node
from rocketstream.testing.plugin import EMBEDDED, VERSIONS, chosen_targets, require_real

TARGETS = (EMBEDDED, *VERSIONS)

AnyCluster = RocketMQCluster | EmbeddedCluster


def new_cluster(target: str, **options: Any) -> AnyCluster:
    """A cluster of a test's own on a target; the options that both kinds have."""
    return EmbeddedCluster(**options) if target == EMBEDDED else RocketMQCluster(target, **options)


def require_target(request: pytest.FixtureRequest, target: str) -> None:
    """Skip the test with a reason unless this run is for that target and the machine can run it."""
    chosen = chosen_targets(request.config)
    if target not in chosen:
        pytest.skip(f"not among the chosen versions {chosen}")
    if target != EMBEDDED:
        require_real(target)


@contextlib.contextmanager
def silenced(node: Node | EmbeddedBrokerNode) -> Iterator[None]:
    """A broker that takes requests and says nothing for a while."""
    if isinstance(node, EmbeddedBrokerNode):
        with node.broker.faults.hold("*"):
            yield
        return
    assert node.pid is not None
    os.kill(node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.pid, signal.SIGCONT)
