"""The pytest plugin of rocketstream: embedded brokers, real RocketMQ clusters, and lines that break, as fixtures.

    def test_orders(embedded_broker):                       # a broker in this process, there in milliseconds
        Producer("group", name_servers=embedded_broker.address).send(...)

    def test_tomorrow(manual_embedded_broker):              # one whose time passes when the test says so
        manual_embedded_broker.advance(24 * 3600)

    def test_for_real(rocketmq_cluster, unique_topic):      # runs on RocketMQ 5.5.0 and on 4.9.7
        Producer("group", name_servers=rocketmq_cluster.name_server_address).send(...)

    pytest --rocketmq-version 5.5.0                         # only that one; "embedded" is a version, too
    rocketmq_targets = ["embedded", "5.5.0"]                # in pytest's settings: what is used without that option
    @pytest.mark.rocketmq_versions("5.5.0")                 # a test for what only some versions have
    @pytest.mark.rocketmq_real                              # a test that makes no sense on an embedded broker
    @pytest.mark.rocketmq_exclusive                         # a test that changes the broker for everybody

With pytest-xdist (`pytest -n 4`) all workers share one real cluster of each version. It is started while they run tests
that need none, and a test that is marked `rocketmq_exclusive` has it for itself. Each worker has its own embedded one.

Where Java is missing, or Maven Central can't be reached, such tests are skipped with the reason; with
ROCKETSTREAM_REQUIRE_REAL=1 in the environment they fail instead, so that a build machine can't pass by skipping.

Everybody's pytest loads this file once rocketstream is installed: it imports nothing but pytest until it is used.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rocketstream.broker.embedded import EmbeddedBroker
    from rocketstream.testing.cluster import RocketMQCluster
    from rocketstream.testing.embedded_cluster import EmbeddedCluster
    from rocketstream.testing.fault_proxy import FaultProxy
    from rocketstream.testing.shared_cluster import SharedCluster, SharedClusters

VERSIONS = ("5.5.0", "4.9.7")
EMBEDDED = "embedded"
#: The version that embedded brokers follow: what is for that is for them, too.
FOLLOWED = "5.5.0"

_SHARED = "rocketstream_shared_clusters"
_shared_clusters: pytest.StashKey[SharedClusters] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rocketmq-version`, and the setting of what is used without it."""
    parser.getgroup("rocketstream").addoption(
        "--rocketmq-version",
        action="append",
        metavar="VERSION",
        help="run tests that need a RocketMQ on this version only, or on embedded brokers ('embedded'); may be"
        f" repeated (default: the setting rocketmq_targets, or {VERSIONS})",
    )
    parser.addini(
        "rocketmq_targets", "versions of RocketMQ, or 'embedded', on which tests run", type="args", default=VERSIONS
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known to `--strict-markers`."""
    config.addinivalue_line(
        "markers", "rocketmq_versions(*versions): the RocketMQ versions on which a test of a cluster makes sense"
    )
    config.addinivalue_line("markers", "rocketmq_real: a test of a cluster that makes no sense on an embedded broker")
    config.addinivalue_line(
        "markers", "rocketmq_exclusive: a test that changes the shared cluster; no other test uses it meanwhile"
    )


def chosen_targets(config: pytest.Config, definition: pytest.Item | None = None) -> list[str]:
    """The versions (or "embedded") on which this run tests, those of them that a test's markers allow."""
    targets: list[str] = config.getoption("--rocketmq-version") or list(config.getini("rocketmq_targets"))
    if definition is None:
        return targets
    if definition.get_closest_marker("rocketmq_real") is not None:
        targets = [target for target in targets if target != EMBEDDED]
    marker = definition.get_closest_marker("rocketmq_versions")
    if marker is None:
        return targets
    return [target for target in targets if (FOLLOWED if target == EMBEDDED else target) in marker.args]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what uses `rocketmq_cluster` once per version; a session's tests are grouped by it."""
    if "rocketmq_cluster" not in metafunc.fixturenames:
        return
    versions = chosen_targets(metafunc.config, metafunc.definition)
    metafunc.parametrize("rocketmq_cluster", versions, ids=versions, indirect=True, scope="session")


# --- one cluster for all workers of pytest-xdist --------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where it finds the clusters that all workers share (in the controller)."""
    from rocketstream.testing.shared_cluster import SharedClusters

    config: pytest.Config = node.config
    if _shared_clusters not in config.stash:
        config.stash[_shared_clusters] = SharedClusters()
    node.workerinput[_SHARED] = str(config.stash[_shared_clusters].directory)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the clusters that the workers have shared (in the controller)."""
    if _shared_clusters in config.stash:
        config.stash[_shared_clusters].close()


def shared_directory(config: pytest.Config) -> Path | None:
    """Where a worker of pytest-xdist finds the shared clusters; None in a run without workers."""
    told: str | None = getattr(config, "workerinput", {}).get(_SHARED)
    return None if told is None else Path(told)


def _real_version(item: pytest.Item) -> str | None:
    """The version of the real cluster that a test uses through `rocketmq_cluster`."""
    callspec = getattr(item, "callspec", None)
    version: str | None = None if callspec is None else callspec.params.get("rocketmq_cluster")
    return None if version == EMBEDDED else version


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Have the clusters started that the tests will need, before they need them (in a worker)."""
    directory = shared_directory(session.config)
    if directory is None:
        return
    from rocketstream.testing.shared_cluster import want

    for version in sorted({version for item in session.items if (version := _real_version(item)) is not None}):
        want(directory, version)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Use a shared cluster beside other workers, or alone where the test changes it."""
    directory, version = shared_directory(item.config), _real_version(item)
    if directory is None or version is None:
        return (yield)
    from rocketstream.testing.shared_cluster import in_use

    with in_use(directory, version, alone=item.get_closest_marker("rocketmq_exclusive") is not None):
        return (yield)


@pytest.fixture(scope="session")
def rocketmq_cluster(request: pytest.FixtureRequest) -> Iterator[RocketMQCluster | SharedCluster | EmbeddedCluster]:
    """A cluster of one name server and one broker, shared by all tests of a version.

    Use `unique_topic` and `unique_group` in it. A test that kills servers makes its own `RocketMQCluster`, because this
    one has to be alive for the next test; one that changes the broker's settings is marked `rocketmq_exclusive`.
    """
    version: str = request.param
    if version == EMBEDDED:
        from rocketstream.testing.embedded_cluster import EmbeddedCluster

        with EmbeddedCluster(together=True) as embedded:
            yield embedded
        return
    directory = shared_directory(request.config)
    if directory is not None:
        yield _shared_cluster(directory, version)
        return
    from rocketstream.testing.cluster import RocketMQCluster

    require_real(version)
    with RocketMQCluster(version) as cluster:
        yield cluster


def _shared_cluster(directory: Path, version: str) -> SharedCluster:
    from rocketstream.testing.shared_cluster import NoRealClusterError, wait_for

    try:
        return wait_for(directory, version)
    except NoRealClusterError as problem:
        _give_up(version, problem)
        raise


@pytest.fixture
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """A broker with its name server in this process, empty and in memory, for one test.

    `embedded_broker.address` is what clients take as their name servers; `embedded_broker.faults` makes it fail.
    """
    from rocketstream.broker.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def manual_embedded_broker() -> Iterator[EmbeddedBroker]:
    """The same, but its time begins now and passes only by `manual_embedded_broker.advance(seconds)`.

    Delays, retries, locks, invisible times and check-backs fall due as fast as a test can say so. The clients' time is
    the machine's; so clients that send no heartbeat meanwhile are not taken for gone.
    """
    from rocketstream.broker.embedded import EmbeddedBroker
    from rocketstream.testing.manual_time import ManualTime

    with EmbeddedBroker(clock=ManualTime(), client_expiry=float("inf")) as broker:
        yield broker


def require_real(version: str) -> None:
    """Skip the running test with a reason unless this machine can run that RocketMQ (or fail it, see above)."""
    from rocketstream.testing.jars import JarResolutionError, resolve_jars
    from rocketstream.testing.java import JavaNotFoundError, find_java

    try:
        find_java()
        resolve_jars(version)
    except (JavaNotFoundError, JarResolutionError) as problem:
        _give_up(version, problem)
        raise


def _give_up(version: str, problem: Exception) -> None:
    if os.environ.get("ROCKETSTREAM_REQUIRE_REAL", "") in ("", "0"):
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
