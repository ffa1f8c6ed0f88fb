"""Scripted brokers that store messages, or fail to, as a test says; and producers on them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from rocketstream.clock import Clock
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.cluster.settings import ClientSettings
from rocketstream.message import Message
from rocketstream.producer.core import ProducerCore
from rocketstream.producer.outgoing import Outgoing
from rocketstream.producer.producer import Producer
from rocketstream.producer.settings import ProducerSettings
from rocketstream.remoting.io_thread import IoThread
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.send import SendMessageResponseHeader
from rocketstream.wire.properties import decode_properties
from tests.scripted import ScriptedBroker, ScriptedNameServer

SEND_CODES = (int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE))

SILENCE = "silence"
"""Take the message and never answer."""
CUT = "cut"
"""Take the message and end the connection."""


class StoringBroker(ScriptedBroker):
    """Stores what it gets, unless `script` says what to do with the next one: a code, (code, remark), or the above."""

    def __init__(self) -> None:
        super().__init__()
        self.sends: list[Command] = []
        self.script: deque[Any] = deque()
        self.always: Any = ResponseCode.SUCCESS
        for code in SEND_CODES:
            self.on(code, self._store)

    @property
    def bodies(self) -> list[bytes]:
        return [command.body for command in self.sends]

    def properties(self, index: int = -1) -> dict[str, str]:
        return decode_properties(self.sends[index].fields["i"])

    def _store(self, command: Command) -> Command | None:
        self.sends.append(command)
        outcome = self.script.popleft() if self.script else self.always
        if outcome == SILENCE:
            return None
        if outcome == CUT:
            for peer in list(self.peers):
                peer.cut()
            return None
        code, remark = outcome if isinstance(outcome, tuple) else (outcome, None)
        stored = SendMessageResponseHeader(
            msg_id=f"{len(self.sends):032X}",
            queue_id=int(command.fields["e"]),
            queue_offset=len(self.sends) - 1,
            transaction_id="TX",
        )
        answer = response(command, code, remark)
        answer.fields.update(stored.to_fields())
        return answer


def make_core(
    name_server: str,
    clock: Clock | None = None,
    *,
    instances: ClientInstances | None = None,
    instance_name: str | None = None,
    group: str = "g",
    client: dict[str, Any] | None = None,
    **settings: Any,
) -> ProducerCore:
    """A producer's core for the running loop."""
    return ProducerCore(
        ClientSettings(name_servers=(name_server,), **(client or {})),
        ProducerSettings(group=group, **settings),
        instance_name=instance_name,
        instances=instances or ClientInstances(clock),
    )


def ready(core: ProducerCore, topic: str = "t", body: bytes = b"x", **others: Any) -> Outgoing:
    """A message of that producer, ready to be sent."""
    return core.preparation.single(Message(topic, body, **others))


async def in_flight(broker: StoringBroker, count: int) -> None:
    """Wait until a broker has got that many messages."""
    while len(broker.sends) < count:
        await broker.until_received(len(broker.received) + 1)
        await asyncio.sleep(0)


class Running(NamedTuple):
    """Plain producers that run, and the broker that they send to."""

    producer: Producer
    namespaced: Producer
    broker: StoringBroker


@contextlib.contextmanager
def running_producers(**settings: Any) -> Iterator[Running]:
    """Plain producers (one in namespace ns) on a scripted broker with topics t and other, on a thread of its own."""
    thread = IoThread("scripted-peers")

    async def make() -> tuple[ScriptedNameServer, StoringBroker]:
        name_server, broker = ScriptedNameServer(), StoringBroker()
        await name_server.start()
        await broker.start()
        for topic in ("t", "ns%t", "other"):
            name_server.set_route(topic, {"a": {0: broker.address}}, queues=2)
        return name_server, broker

    name_server, broker = thread.run(make())
    try:
        with (
            Producer("g", name_server.address, **settings) as producer,
            Producer("g", name_server.address, namespace="ns", **settings) as namespaced,
        ):
            yield Running(producer, namespaced, broker)
    finally:
        for server in (name_server, broker):
            thread.run(server.stop())
        thread.stop()
