"""The targets of the contract suite, and clusters of a test's own on any of them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rocketstream.testing import EmbeddedCluster, RocketMQCluster
from rocketstream.testing.embedded_cluster import EmbeddedBrokerNode
from rocketstream.testing.manual_time import ManualTime
from rocketstream.testing.node import Node
from rocketstream.testing.plugin import EMBEDDED, VERSIONS, chosen_targets, require_real
from tests.bare_client import eventually

TARGETS = (EMBEDDED, *VERSIONS)

AnyCluster = RocketMQCluster | EmbeddedCluster


def new_cluster(target: str, **options: Any) -> AnyCluster:
    """A cluster of a test's own on a target; the options that both kinds have."""
    return EmbeddedCluster(**options) if target == EMBEDDED else RocketMQCluster(target, **options)


class WaitingCluster(EmbeddedCluster):
    """One embedded broker, whose time begins now and passes only while a test is `hurried`: and then fast.

    What a test does in between takes no time at all, however busy the machine is. Its clients live in the machine's
    time and send their heartbeats too seldom for it, so none is taken for gone.
    """

    def __init__(self, **options: Any) -> None:
        self.clock = ManualTime()
        super().__init__(together=True, clock=self.clock, client_expiry=float("inf"), **options)


def new_waiting_cluster(target: str, **options: Any) -> AnyCluster:
    """A cluster of one broker for tests that wait for its time to pass: see `hurried`, `in_its_time` and `clock_of`."""
    return WaitingCluster(**options) if target == EMBEDDED else new_cluster(target, **options)


@contextlib.contextmanager
def hurried(cluster: AnyCluster) -> Iterator[None]:
    """Let time pass: ten times as fast as the machine's on a `WaitingCluster`, by itself on all others.

    Not faster: what a client does meanwhile takes ten times as long in the broker's time. The broker is not to be
    stopped meanwhile.
    """
    if not isinstance(cluster, WaitingCluster):
        yield
        return
    over = threading.Event()
    problems: list[BaseException] = []

    def pass_time() -> None:
        try:
            while not over.wait(0.01):
                cluster.brokers[0].broker.advance(0.1)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=pass_time, name="hurried", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if problems:
            raise problems[0]


def in_its_time(cluster: AnyCluster, condition: Callable[[], object], tries: int = 3000) -> None:
    """Wait for what a cluster does when its time has come."""
    with hurried(cluster):
        eventually(condition, tries)


def clock_of(cluster: AnyCluster) -> Callable[[], int]:
    """What a cluster's time is, in milliseconds: to compare with the times that it writes down."""
    return cluster.clock.wall_ms if isinstance(cluster, WaitingCluster) else lambda: time.time_ns() // 1_000_000


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
