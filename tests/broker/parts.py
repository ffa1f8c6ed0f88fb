"""Parts of a broker for tests of one of them: all in memory, time moved by hand, connections without sockets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Dispatcher, Service
from rocketstream.broker.groups import Groups
from rocketstream.broker.members import Members
from rocketstream.broker.offsets import Offsets
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.store import open_store
from rocketstream.broker.store.values import NewMessage, Stored
from rocketstream.broker.topics import Topics
from rocketstream.clock import ManualClock
from rocketstream.wire.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from rocketstream.wire.bodies.topic import TopicConfig
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.command import request as new_request
from rocketstream.wire.properties import encode_properties
from rocketstream.wire.subscription import subscription

_ports = itertools.count(50000)


class FakeConnection(ClientConnection):
    """A connection that remembers what is sent; `answers` says what its client answers, by request code."""

    def __init__(self, dispatcher: Dispatcher, clock: ManualClock) -> None:
        super().__init__(dispatcher, clock, 1 << 20)
        self.address = f"127.0.0.1:{next(_ports)}"
        self.sent: list[Command] = []
        self.answers: dict[int, Any] = {}
        self.was_cut = False
        self._dispatcher = dispatcher
        dispatcher.on_connected(self)

    def send(self, command: Command) -> None:
        self.sent.append(command)
        answer = self.answers.get(command.code)
        if not command.is_response and answer is not None:
            asyncio.get_running_loop().call_soon(self._asked[command.opaque].set_result, answer(command))

    def cut(self) -> None:
        self.was_cut = True
        self.close()

    def close(self) -> None:
        """Its client has gone."""
        self.connection_lost(None)

    def notices(self, code: RequestCode = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED) -> list[str]:
        """The groups of which it was told, and forgets them."""
        told = [one.fields["consumerGroup"] for one in self.sent if one.code == code and one.is_one_way]
        self.sent.clear()
        return told


class Parts:
    """What most services need, in memory unless there is a directory."""

    def __init__(self, data: Path | None = None, clock: ManualClock | None = None, **settings: Any) -> None:
        self.settings = BrokerSettings(data=data, **settings)
        self.clock = clock or ManualClock()
        self.state = StateFiles(data)
        self.store = open_store(BrokerSettings(), self.clock, "127.0.0.1:10911")
        self.dispatcher = Dispatcher()
        self.topics = Topics(settings=self.settings, clock=self.clock, state=self.state)
        self.groups = Groups(settings=self.settings, clock=self.clock, state=self.state)
        self.members = Members(
            settings=self.settings,
            clock=self.clock,
            dispatcher=self.dispatcher,
            topics=self.topics,
            groups=self.groups,
        )
        self.offsets = Offsets(
            settings=self.settings,
            clock=self.clock,
            state=self.state,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            members=self.members,
        )

    def connect(self) -> FakeConnection:
        return FakeConnection(self.dispatcher, self.clock)

    def create_topic(self, topic: str, queues: int = 1, **others: Any) -> None:
        self.topics.put(TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, **others))

    def append(self, topic: str, body: bytes = b"x", queue_id: int = 0, **properties: str) -> Stored:
        return self.store.append(
            NewMessage(topic=topic, queue_id=queue_id, body=body, properties=encode_properties(properties))
        )


def request(
    code: RequestCode, fields: Any = None, body: bytes = b"", *, one_way: bool = False, **others: Any
) -> Command:
    command = new_request(code, fields, body)
    command.opaque = 7
    if one_way:
        command.flag |= 2
    for name, value in others.items():
        setattr(command, name, value)
    return command


async def ask(service: Service, connection: ClientConnection, command: Command) -> Command:
    """The answer of a service; a refusal is an answer too."""
    try:
        answer = service.handlers()[command.code](connection, command)
        if answer is not None and not isinstance(answer, Command):
            answer = await answer
    except Refusal as refusal:
        return response(command, refusal.code, refusal.remark)
    assert isinstance(answer, Command)
    return answer


async def succeed(service: Service, connection: ClientConnection, command: Command) -> Command:
    """The answer of a service, which has to be a success."""
    answer = await ask(service, connection, command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def heartbeat(
    client_id: str,
    groups: Mapping[str, tuple[str, ...]] | None = None,
    *,
    producers: tuple[str, ...] = (),
    fingerprint: int = 0,
    without_sub: bool = False,
    sub_version: int = 1,
    version: int = 513,
    **consumer: Any,
) -> Command:
    """A client's heartbeat: its consumer groups with their topics, and its producer groups."""
    data = HeartbeatData(
        client_id=client_id,
        producer_data_set=tuple(ProducerData(group_name=group) for group in producers),
        consumer_data_set=tuple(
            ConsumerData(
                group_name=group,
                subscription_data_set=tuple(subscription(topic, version=sub_version) for topic in topics),
                **consumer,
            )
            for group, topics in (groups or {}).items()
        ),
        heartbeat_fingerprint=fingerprint,
        without_sub=without_sub,
    )
    return request(RequestCode.HEART_BEAT, None, data.encode(), version=version)
