"""Embedded brokers that look like a `RocketMQCluster`: the third target of the contract suite.

    with EmbeddedCluster(brokers=2) as cluster:
        Producer("group", name_servers=cluster.name_server_address)
        cluster.brokers[0].kill()

Name servers and brokers are nodes of their own, each in a thread of this process, on ports that they keep. A node that
was killed or stopped comes back with the same store. It says what RocketMQ 5.5.0 says, so that is its `version`.
"""

from __future__ import annotations

import shutil
import ssl
import string
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from rocketstream.broker.embedded import EmbeddedBroker, LoopThread
from rocketstream.broker.faults import Faults
from rocketstream.broker.java_settings import change
from rocketstream.broker.node import NameServerNode
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.users import User
from rocketstream.clock import Clock, SystemClock
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import Credentials
from rocketstream.testing import ports

VERSION = "5.5.0"
"""The RocketMQ that embedded brokers follow."""

#: Where the defaults of an embedded broker are friendlier than RocketMQ's: tests of RocketMQ expect the latter.
_AS_ROCKETMQ: Mapping[str, object] = {"recallMessageEnable": False}


class EmbeddedNameServer:
    """A name server that can be stopped and started again on the same port."""

    role: Literal["name server"] = "name server"

    def __init__(self, name: str, settings: BrokerSettings, clock: Clock) -> None:
        self.name = name
        self.port = settings.port
        self.faults = Faults()
        self._settings = settings
        self._clock = clock
        self._thread: LoopThread | None = None
        self._node: NameServerNode | None = None

    @property
    def address(self) -> str:
        """Its host:port."""
        return f"{self._settings.host}:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._node is not None

    def start(self, timeout: float | None = None) -> None:
        """Start it; it answers when this returns."""
        self._thread = thread = LoopThread()
        self.faults.attach(thread.loop)
        self._node = thread.run(lambda: NameServerNode.started(self._settings, self._clock, self.faults))

    launch = start

    def stop(self, timeout: float | None = None) -> None:
        """End it."""
        node, thread = self._node, self._thread
        if node is not None and thread is not None:
            self._node = self._thread = None
            thread.run(node.stop)
            thread.close()

    kill = stop

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def wait_until_ready(self, timeout: float | None = None) -> None:
        """It is, as soon as it is started."""

    def log_tail(self, lines: int = 30) -> str:
        """It logs to Python's logging."""
        return f"--- {self.name}: see the log of rocketstream.broker"


class InnerNameServer:
    """The name server of an embedded broker that has its own: it comes and goes with the broker."""

    role: Literal["name server"] = "name server"
    name = "namesrv-1"

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self.port = broker.settings.port

    @property
    def address(self) -> str:
        """Its host:port."""
        return f"{self._broker.settings.host}:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether its broker runs."""
        return self._broker.running

    def stop(self, timeout: float | None = None) -> None:
        """Stop it, and the broker."""
        self._broker.stop()

    def log_tail(self, lines: int = 30) -> str:
        """It logs to Python's logging."""
        return f"--- {self.name}: see the log of rocketstream.broker"


class EmbeddedBrokerNode:
    """A broker that can be killed, stopped and started again on the same port and store."""

    role: Literal["broker"] = "broker"
    broker_id = 0

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.name = self.broker_name = broker.settings.broker_name
        self.port = broker.settings.broker_port
        self.directory = broker.settings.data

    @property
    def address(self) -> str:
        """Its host:port."""
        return f"{self.broker.settings.host}:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.broker.running

    def start(self, timeout: float | None = None) -> None:
        """Start it; it answers and is registered when this returns."""
        self.broker.start()

    launch = start

    def stop(self, timeout: float | None = None) -> None:
        """Stop it in order."""
        self.broker.stop()

    def kill(self) -> None:
        """End it as a crash would."""
        self.broker.kill()

    def restart(self, timeout: float | None = None) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def wait_until_ready(self, timeout: float | None = None) -> None:
        """It is, as soon as it is started."""

    def log_tail(self, lines: int = 30) -> str:
        """It logs to Python's logging."""
        return f"--- {self.name}: see the log of rocketstream.broker"


class EmbeddedCluster:
    """Name servers and masters.

    `broker_config` has RocketMQ's names and units, `broker_settings` those of `BrokerSettings`. With `together` the one
    broker has the one name server in itself, as a plain `EmbeddedBroker` does: they live and die as one. `tls` is the
    servers' context, with `credentials` or `users` everybody else is refused. With `directory` the store stays.
    """

    def __init__(
        self,
        version: str = VERSION,
        brokers: int = 1,
        name_servers: int = 1,
        broker_config: Mapping[str, object] | None = None,
        *,
        together: bool = False,
        directory: Path | None = None,
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
        credentials: Sequence[Credentials] = (),
        users: Sequence[User] = (),
        **broker_settings: Any,
    ) -> None:
        if version not in (VERSION, "embedded"):
            raise ConfigurationError(f"version={version!r}: embedded brokers follow RocketMQ {VERSION} only")
        self.version = VERSION
        self.name_servers: list[EmbeddedNameServer | InnerNameServer] = []
        self.brokers: list[EmbeddedBrokerNode] = []
        self.slaves: list[EmbeddedBrokerNode] = []
        if together and (name_servers, brokers) != (1, 1):
            raise ConfigurationError("together=True is for one broker with one name server")
        self._counts = (0 if together else name_servers, brokers)
        self._together = together
        self._config = {**_AS_ROCKETMQ, **(broker_config or {})}
        self._kept = directory
        self._clock = clock if clock is not None else SystemClock()
        self._shared: dict[str, Any] = {"tls": tls, "credentials": tuple(credentials), "users": tuple(users)}
        self._settings = broker_settings
        self._directory: Path | None = None

    def __repr__(self) -> str:
        nodes = ", ".join(f"{node.name}@{node.address} {'up' if node.alive else 'down'}" for node in self.nodes)
        return f"<EmbeddedCluster: {nodes or 'not started'}>"

    @property
    def nodes(self) -> list[EmbeddedNameServer | InnerNameServer | EmbeddedBrokerNode]:
        """Every node."""
        return [*self.name_servers, *self.brokers]

    @property
    def name_server_address(self) -> str:
        """What a client's `name_servers` takes."""
        return ";".join(node.address for node in self.name_servers)

    @property
    def directory(self) -> Path:
        """Where the brokers keep their stores."""
        if self._directory is None:
            raise ConfigurationError("the cluster is not started")
        return self._directory

    def broker(self, name: str, broker_id: int = 0) -> EmbeddedBrokerNode:
        """The broker with that name."""
        for node in self.brokers:
            if (node.broker_name, broker_id) == (name, 0):
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
        """Start every node; all brokers are registered when this returns."""
        self._directory = self._kept or Path(tempfile.mkdtemp(prefix="rocketstream-"))
        try:
            for number in range(1, self._counts[0] + 1):
                settings = BrokerSettings(port=ports.reserve(), **self._shared)
                server = EmbeddedNameServer(f"namesrv-{number}", settings, self._clock)
                self.name_servers.append(server)
                server.start()
            for letter in string.ascii_lowercase[: self._counts[1]]:
                self.brokers.append(self._new_broker(f"broker-{letter}"))
                self.brokers[-1].start()
        except BaseException:
            self.close()
            raise

    def _new_broker(self, name: str) -> EmbeddedBrokerNode:
        broker = EmbeddedBroker(
            self.directory / name,
            ports.reserve() if self._together else 0,
            broker_name=name,
            broker_port=ports.reserve(),
            name_servers=None if self._together else self.name_server_address,
            clock=self._clock,
            **self._shared,
            **self._settings,
        )
        for java_name, value in self._config.items():
            change(broker.settings, java_name, str(value).lower() if isinstance(value, bool) else str(value))
        if self._together:
            self.name_servers.append(InnerNameServer(broker))
        return EmbeddedBrokerNode(broker)

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Everything that runs is ready."""

    def close(self) -> None:
        """End every node; a temporary store goes."""
        for node in reversed(self.nodes):
            node.stop()
            ports.release(node.port)
        if self._directory is not None and self._kept is None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None

    def log_tail(self, lines: int = 30) -> str:
        """Embedded brokers log to Python's logging."""
        return "\n".join(node.log_tail(lines) for node in self.nodes)
