"""A real RocketMQ cluster for as long as a `with` block: name servers, masters, slaves.

    with RocketMQCluster(version="5.5.0", brokers=2) as cluster:
        Producer("group", name_servers=cluster.name_server_address)
        cluster.brokers[0].kill()

It is ready when it says so itself: when each name server lists each broker. It never outlives the process that made it,
not even one that was killed (`_guard.py`).
"""

from __future__ import annotations

import logging
import shutil
import ssl
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from rocketstream.errors import ConfigurationError, ProtocolError
from rocketstream.testing import ports
from rocketstream.testing._ask import accepts_connections, registered_brokers
from rocketstream.testing._resolvers import Progress
from rocketstream.testing.jars import resolve_jars
from rocketstream.testing.java import find_java
from rocketstream.testing.layout import ClusterSettings, Ground, Setting, lay_out
from rocketstream.testing.node import ClusterError, Launcher, Node, Profile
from rocketstream.testing.process import DirectoryGuard, GuardedProcess, Process

__all__ = ["ClusterError", "Node", "RocketMQCluster"]

log = logging.getLogger(__name__)

_ATTEMPTS = 3  # a port can be taken between our look and the broker's


class RocketMQCluster:
    """Name servers and brokers of a real RocketMQ on free loopback ports.

    Masters are named `broker-a`, `broker-b`, ...; each has `slaves` slaves, to which it replicates synchronously. (A
    slave connects to its master some 5 s after both are up; until then sends are answered SLAVE_NOT_AVAILABLE.)
    `broker_config` goes into every broker's configuration file (`brokerRole` into masters' only), `slave_config` into
    those of slaves on top. `jvm_properties` (-D) and `environment` go to every node, `broker_jvm_properties` to
    brokers; where none of them is a `tls.*`, the servers speak no TLS. `jvm_options` are further options of all JVMs.
    `conf_files` (name -> text) are put into the `$ROCKETMQ_HOME/conf` of every node before its first start, for
    instance `plain_acl.yml`. `profile="benchmark"` runs them with the JIT compiler and the collector of a real
    installation and with RocketMQ's own file sizes; the default starts sooner and is smaller.
    `tls` is the context with which to ask name servers that speak nothing else. With `directory` the store is there,
    and stays when the cluster is closed.
    """

    def __init__(
        self,
        version: str = "5.5.0",
        brokers: int = 1,
        slaves: int = 0,
        name_servers: int = 1,
        broker_config: Mapping[str, Setting] | None = None,
        *,
        slave_config: Mapping[str, Setting] | None = None,
        name_server_config: Mapping[str, Setting] | None = None,
        jvm_properties: Mapping[str, str] | None = None,
        broker_jvm_properties: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        conf_files: Mapping[str, str] | None = None,
        profile: Profile = "test",
        broker_heap: str = "512m",
        name_server_heap: str = "192m",
        tls: ssl.SSLContext | None = None,
        directory: Path | None = None,
        name_server_port: int | None = None,
        start_timeout: float = 60.0,
        launcher: Launcher | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.version = version
        self.name_servers: list[Node] = []
        self.brokers: list[Node] = []
        self.slaves: list[Node] = []
        self._settings = ClusterSettings(
            brokers=brokers,
            slaves=slaves,
            name_servers=name_servers,
            broker_config=dict(broker_config or {}),
            slave_config=dict(slave_config or {}),
            name_server_config=dict(name_server_config or {}),
            jvm_properties=dict(jvm_properties or {}),
            broker_jvm_properties=dict(broker_jvm_properties or {}),
            jvm_options=tuple(jvm_options),
            environment=dict(environment or {}),
            conf_files=dict(conf_files or {}),
            profile=profile,
            broker_heap=broker_heap,
            name_server_heap=name_server_heap,
            name_server_port=name_server_port,
            start_timeout=start_timeout,
        )
        self._tls = tls
        self._kept_directory = directory
        self._launcher = launcher or _launch_guarded
        self._progress = progress
        self._directory: Path | None = None
        self._directory_guard: DirectoryGuard | None = None

    def __repr__(self) -> str:
        nodes = ", ".join(f"{node.name}@{node.address} {'up' if node.alive else 'down'}" for node in self.nodes)
        return f"<RocketMQCluster {self.version}: {nodes or 'not started'}>"

    @property
    def nodes(self) -> list[Node]:
        """Every node: name servers, masters, slaves."""
        return [*self.name_servers, *self.brokers, *self.slaves]

    @property
    def name_server_address(self) -> str:
        """What a client's `name_servers` takes: "host:port;host:port"."""
        return ";".join(node.address for node in self.name_servers)

    @property
    def directory(self) -> Path:
        """Where the nodes keep their stores and logs."""
        if self._directory is None:
            raise ClusterError("the cluster is not started")
        return self._directory

    def broker(self, name: str, broker_id: int = 0) -> Node:
        """The broker with that name: its master, or the slave with that id."""
        for node in (*self.brokers, *self.slaves):
            if (node.broker_name, node.broker_id) == (name, broker_id):
                return node
        raise ConfigurationError(f"there is no broker {name!r} with id {broker_id} in {self!r}")

    # --- life -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start every node and return once all name servers list all brokers."""
        if self._directory is not None:
            raise ClusterError("the cluster is already started; nodes are restarted one by one")
        java = find_java()
        jars = resolve_jars(self.version, progress=self._progress)
        if self._kept_directory is not None:
            self._directory = self._kept_directory
            self._directory.mkdir(parents=True, exist_ok=True)
        else:
            self._directory = Path(tempfile.mkdtemp(prefix="rocketstream-"))
            self._directory_guard = DirectoryGuard(self._directory)
        _warn_of_a_full_disk(self._directory)
        ground = Ground(
            directory=self._directory,
            java=java,
            jars=jars,
            launcher=self._launcher,
            name_server_is_ready=self._name_server_is_ready,
            broker_is_ready=self._broker_is_ready,
        )
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                if self._try_to_start(ground, last=attempt == _ATTEMPTS):
                    return
                log.warning("a port was taken before RocketMQ %s could listen on it: once more", self.version)
        except BaseException:
            self._abandon()
            raise

    def _try_to_start(self, ground: Ground, last: bool) -> bool:
        """False when a port was taken meanwhile and others may help."""
        layout = lay_out(self._settings, ground)
        self.name_servers, self.brokers, self.slaves = layout.name_servers, layout.brokers, layout.slaves
        try:
            self._start_nodes()
        except ClusterError:
            if last or not any(node.failed_on_a_port() for node in self.nodes):
                raise
            self._kill_nodes()
            return False
        return True

    def _start_nodes(self) -> None:
        # In this order, because who comes too early asks again only after 10 s: a broker that finds no name server to
        # register at, a slave that is told of no master.
        for group in (self.name_servers, self.brokers, self.slaves):
            for node in group:
                node.launch()
            for node in group:
                node.wait_until_ready()

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Return once every node that runs answers and is listed, for instance after a name server came back."""
        deadline = time.monotonic() + timeout
        for node in self.nodes:
            if node.alive:
                node.wait_until_ready(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End every node. A store that is to stay is closed in order; a temporary one is not worth the wait."""
        try:
            if self._kept_directory is not None:
                self._stop_nodes()
        finally:
            self._abandon()

    def _stop_nodes(self) -> None:
        brokers = [*self.slaves, *self.brokers]
        for node in brokers:
            if node.process is not None:
                node.process.terminate()  # all at once: each may take half a minute
        for node in (*brokers, *self.name_servers):
            node.stop()

    def _abandon(self) -> None:
        self._kill_nodes()
        if self._directory_guard is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
            self._directory_guard.dismiss()
            self._directory_guard = None
        self._directory = None

    def _kill_nodes(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                node.process.kill()
        for node in self.nodes:
            node.kill()
            ports.release(node.port, node.port_offsets)

    def log_tail(self, lines: int = 30) -> str:
        """The end of every node's logs."""
        return "\n".join(node.log_tail(lines) for node in self.nodes)

    # --- asking -----------------------------------------------------------------------------------------------------

    def _name_server_is_ready(self, node: Node) -> bool:
        return self._brokers_known_to(node) is not None

    def _broker_is_ready(self, node: Node) -> bool:
        me = f"{node.broker_name}/{node.broker_id}@{node.address}"
        return accepts_connections(node.address) and all(
            me in (self._brokers_known_to(name_server) or ()) for name_server in self.name_servers if name_server.alive
        )

    def _brokers_known_to(self, name_server: Node) -> set[str] | None:
        try:
            return registered_brokers(name_server.address, tls=self._tls)
        except (OSError, ProtocolError):
            return None


def _launch_guarded(command: Sequence[str], environment: Mapping[str, str], output: IO[bytes]) -> Process:
    return GuardedProcess(command, environment=environment, output=output)


def _warn_of_a_full_disk(directory: Path) -> None:
    disk = shutil.disk_usage(directory)
    if disk.used / disk.total > 0.89:
        log.warning(
            "the disk of %s is %.0f %% full: RocketMQ 5 refuses messages from 90 %% on; free some room, or set TMPDIR"
            " to a directory on another disk",
            directory,
            100 * disk.used / disk.total,
        )
