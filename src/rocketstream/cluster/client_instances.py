"""Which client instances there are: shared by client id, counted, one set per I/O thread (START-05)."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from rocketstream.clock import Clock
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.settings import ClientSettings
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.io_thread import IoThread


class ClientInstances:
    """The client instances of one event loop; touched only there."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._instances: dict[str, ClientInstance] = {}
        self._users: dict[str, int] = {}

    def acquire(self, client_id: str, settings: ClientSettings) -> ClientInstance:
        """The instance of a client id, made if there is none; pair with one `release`."""
        instance = self._instances.get(client_id)
        if instance is None:
            instance = ClientInstance(client_id, settings, clock=self._clock)
            self._instances[client_id] = instance
            self._users[client_id] = 0
        elif instance.settings != settings:
            raise ConfigurationError(
                f"client id {client_id} is in use with other settings (name servers, credentials, TLS, intervals):"
                " clients that share an id share its connections. Give this one another instance_name"
            )
        self._users[client_id] += 1
        return instance

    async def release(self, instance: ClientInstance) -> None:
        """Give an instance back; the last one to do so stops it."""
        client_id = instance.client_id
        self._users[client_id] -= 1
        if self._users[client_id] == 0:
            del self._users[client_id]
            del self._instances[client_id]
            await instance.stop()


_by_thread: WeakKeyDictionary[IoThread, ClientInstances] = WeakKeyDictionary()


def instances_of(io: IoThread) -> ClientInstances:
    """The client instances of an I/O thread. A forked child has another thread, and so starts with none."""
    instances = _by_thread.get(io)
    if instances is None:
        instances = _by_thread.setdefault(io, ClientInstances())
    return instances
