"""The pytest plugin of rocketstream: real RocketMQ clusters, and lines that break, as fixtures.

    def test_orders(rocketmq_cluster, unique_topic):        # runs on 5.5.0 and on 4.9.7
        Producer("group", name_servers=rocketmq_cluster.name_server_address).send(...)

    pytest --rocketmq-version 5.5.0                         # only that one
    @pytest.mark.rocketmq_versions("5.5.0")                 # a test for what only some versions have

Where Java is missing, or Maven Central can't be reached, such tests are skipped with the reason; with
ROCKETSTREAM_REQUIRE_REAL=1 in the environment they fail instead, so that a build machine can't pass by skipping.

Everybody's pytest loads this file once rocketstream is installed: it imports nothing but pytest until it is used.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rocketstream.testing.cluster import RocketMQCluster
    from rocketstream.testing.fault_proxy import FaultProxy

VERSIONS = ("5.5.0", "4.9.7")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rocketmq-version`."""
    parser.getgroup("rocketstream").addoption(
        "--rocketmq-version",
        action="append",
        metavar="VERSION",
        help=f"run tests that need a real RocketMQ on this version only; may be repeated (default: {VERSIONS})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known to `--strict-markers`."""
    config.addinivalue_line(
        "markers", "rocketmq_versions(*versions): the RocketMQ versions on which a test of a real cluster makes sense"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what uses `rocketmq_cluster` once per version; a session's tests are grouped by it."""
    if "rocketmq_cluster" not in metafunc.fixturenames:
        return
    versions: list[str] = metafunc.config.getoption("--rocketmq-version") or list(VERSIONS)
    marker = metafunc.definition.get_closest_marker("rocketmq_versions")
    if marker is not None:
        versions = [version for version in versions if version in marker.args]
    metafunc.parametrize("rocketmq_cluster", versions, ids=versions, indirect=True, scope="session")


@pytest.fixture(scope="session")
def rocketmq_cluster(request: pytest.FixtureRequest) -> Iterator[RocketMQCluster]:
    """A real cluster of one name server and one broker, shared by all tests of a version.

    Use `unique_topic` and `unique_group` in it. A test that kills or reconfigures servers makes its own
    `RocketMQCluster`, because this one has to be alive for the next test.
    """
    from rocketstream.testing.cluster import RocketMQCluster

    version: str = request.param
    require_real(version)
    with RocketMQCluster(version) as cluster:
        yield cluster


def require_real(version: str) -> None:
    """Skip the running test with a reason unless this machine can run that RocketMQ (or fail it, see above)."""
    from rocketstream.testing.jars import JarResolutionError, resolve_jars
    from rocketstream.testing.java import JavaNotFoundError, find_java

    try:
        find_java()
        resolve_jars(version)
    except (JavaNotFoundError, JarResolutionError) as problem:
        if os.environ.get("ROCKETSTREAM_REQUIRE_REAL", "") not in ("", "0"):
            raise
        pytest.skip(f"no real RocketMQ {version}: {problem}")


@pytest.fixture
def fault_proxy() -> Iterator[Callable[..., FaultProxy]]:
    """Make proxies that break the line on command: `proxy = fault_proxy("127.0.0.1:10911")`, then `proxy.cut()`.

    Takes the arguments of `FaultProxy`. Each proxy runs in a thread of its own, so plain and asynchronous tests use it
    alike, and is closed with the test. For a whole cluster there is `rocketstream.testing.ClusterProxy`.
    """
    from rocketstream.testing.fault_proxy import FaultProxy

    with contextlib.ExitStack() as proxies:
        yield lambda target, **options: proxies.enter_context(FaultProxy(target, **options))


@pytest.fixture
def unique_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that nothing else uses and that tells its test in a broker's log; the topic is not created."""
    return _unique_name("t", request)


@pytest.fixture
def unique_group(request: pytest.FixtureRequest) -> str:
    """A group name that nothing else uses and that tells its test in a broker's log."""
    return _unique_name("g", request)


def _unique_name(prefix: str, request: pytest.FixtureRequest) -> str:
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name.removeprefix("test_")).strip("-")
    return f"{prefix}-{test[:32].rstrip('-')}-{uuid.uuid4().hex[:8]}"
