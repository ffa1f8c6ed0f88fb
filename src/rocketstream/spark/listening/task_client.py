"""What the tasks of one consumer share in a Python worker process: the listener, and the connections.

Spark uses a worker process again for later tasks. So a listener that opens something of its own (a database, a model)
opens it once per process, not once per task, and a task finds its brokers connected.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from typing import Final

from rocketstream.cluster.client_id import client_id, unique_instance_name
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.members import Service, ServiceOrder
from rocketstream.consumer.inner_producer import InnerProducer
from rocketstream.remoting.io_thread import IoThread
from rocketstream.spark.listening.values import Work

# A worker process serves one application; its consumers are few.
_KEPT: Final = 8


class TaskClient:
    """A client of the cluster for tasks; it is no member of any group."""

    def __init__(self, work: Work, io: IoThread) -> None:
        self.work = work
        self.io = io
        self.instance = ClientInstance(client_id(unique_instance_name(), work.client.unit_name), work.client)
        self._producer: InnerProducer | None = None

    def __repr__(self) -> str:
        return f"<TaskClient of group {self.work.consumer.group}, {self.instance!r}>"

    async def inner_producer(self) -> InnerProducer:
        """Who sends what no broker took back (CON-10); made when it is first needed, which is rare."""
        if self._producer is None:
            producer = self._producer = InnerProducer(self.instance)

            def in_order() -> list[tuple[ServiceOrder, Service]]:
                return [(ServiceOrder.INNER_PRODUCER, producer)]

            await self.instance.ensure_services("inner producer", in_order)
        return self._producer


_lock = threading.Lock()
_clients: dict[tuple[int, bytes], TaskClient] = {}


def task_client(shipped: bytes) -> TaskClient:
    """The client of this process for a consumer's tasks, whose pickled `Work` is given; connected, or about to be."""
    key = (os.getpid(), hashlib.sha256(shipped).digest())
    with _lock:
        client = _clients.pop(key, None)
        if client is None:
            client = TaskClient(pickle.loads(shipped), IoThread.shared())
        _clients[key] = client  # at the end: the first is the one that was not used for longest
        forgotten = [_clients.pop(old) for old in list(_clients)[:-_KEPT]]
    for old in forgotten:
        if old.io is client.io:
            client.io.run(old.instance.stop(), repr(old))
    client.io.run(client.instance.start(), repr(client))
    return client


def forget_clients() -> None:
    """Close what this process has open (for tests: a worker process just ends)."""
    with _lock:
        clients = [client for (pid, _), client in _clients.items() if pid == os.getpid()]
        _clients.clear()
    for client in clients:
        client.io.run(client.instance.stop(), repr(client))
