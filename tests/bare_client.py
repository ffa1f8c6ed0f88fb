"""A bare client on each broker: requests with typed headers, nothing above the cluster room."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from rocketstream.cluster.client_id import client_id, unique_instance_name
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.route import TopicRoute
from rocketstream.cluster.settings import ClientSettings
from rocketstream.errors import RocketStreamError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.replies import PullResult, read_pull_result
from rocketstream.wire.bodies.heartbeat import ConsumerData
from rocketstream.wire.codes import Permission, RequestCode
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.offsets import GetMaxOffsetRequestHeader, OffsetResponseHeader
from rocketstream.wire.headers.pull import PullMessageRequestHeader
from rocketstream.wire.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rocketstream.wire.headers.topic import CreateTopicRequestHeader
from rocketstream.wire.properties import encode_properties
from rocketstream.wire.record_decoder import decode_records
from rocketstream.wire.subscription import subscription

T = TypeVar("T")


class BareConsumer:
    """A member of a group that only says what it wants."""

    def __init__(self, group: str, *topics: str, expression: str = "*", **others: Any) -> None:
        self.group = group
        self._topics = topics
        self._expression = expression
        self._others = others

    def topics(self) -> Iterable[str]:
        return self._topics

    def heartbeat(self) -> ConsumerData:
        wanted = tuple(subscription(topic, self._expression, version=1) for topic in self._topics)
        return ConsumerData(group_name=self.group, subscription_data_set=wanted, **self._others)

    async def persist_offsets(self) -> None: ...

    async def adjust_threads(self) -> None: ...


class BareProducer:
    """A producer's group and nothing else."""

    def __init__(self, group: str, *topics: str) -> None:
        self.group = group
        self._topics = topics

    def topics(self) -> Iterable[str]:
        return self._topics


class BareClient:
    """A client instance on the I/O thread, with blocking calls for tests."""

    def __init__(self, name_servers: str, io: IoThread, **settings: Any) -> None:
        self._io = io
        self.instance = ClientInstance(
            client_id(unique_instance_name(), ip="127.0.0.1"), ClientSettings.make(name_servers, **settings)
        )
        self.run(self.instance.start())

    def close(self) -> None:
        self.run(self.instance.stop())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._io.run(coroutine)

    def ask(self, address: str, code: int, header: Any = None, body: bytes = b"", timeout: float = 10.0) -> Command:
        """The successful response to a request."""
        return self.run(self.instance.ask(address, code, header, body, timeout))

    def invoke(self, address: str, command: Command, timeout: float = 10.0) -> Command:
        """Any response to a request."""
        return self.run(self.instance.remoting.invoke(address, command, timeout))

    def master(self, topic: str) -> str:
        """The address of the only master that has the topic."""
        route = self.run(self.instance.routes.get(topic))
        (name,) = route.brokers
        found = self.instance.brokers.master(name)
        assert found is not None
        return found.address

    def queue(self, topic: str, queue_id: int = 0) -> MessageQueue:
        (name,) = self.run(self.instance.routes.get(topic)).brokers
        return MessageQueue(topic, name, queue_id)

    def create_topic(self, broker: str, topic: str, queues: int = 1) -> None:
        """Make a topic at a broker and wait until the name server tells its route."""
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=int(Permission.READ | Permission.WRITE),
        )
        self.ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        self.wait_for_route(topic)

    def wait_for_route(self, topic: str) -> TopicRoute:
        """The route of a topic that a broker has just made: name servers know it a little later."""
        found: list[TopicRoute] = []

        async def look() -> None:
            with contextlib.suppress(RocketStreamError):
                found.append(await self.instance.routes.refresh(topic))

        self.run(eventually_async(look, lambda: bool(found)))
        return found[0]

    def send(
        self,
        topic: str,
        body: bytes,
        properties: dict[str, str] | None = None,
        *,
        queue_id: int = 0,
        sys_flag: int = 0,
        flag: int = 0,
        batch: bool = False,
        born_timestamp: int = 1_700_000_000_000,
    ) -> SendMessageResponseHeader:
        """Store a message, exactly as given."""
        header = SendMessageRequestHeaderV2(
            producer_group="contract",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            flag=flag,
            properties=encode_properties(properties or {}),
            reconsume_times=0,
            unit_mode=False,
            batch=batch,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
        receipt = SendMessageResponseHeader.from_fields(self.ask(self.master(topic), code, header, body).fields)
        # A broker answers when it has stored a message; its queues learn of it a moment later.
        eventually(lambda: self.max_offset(topic, queue_id) > receipt.queue_offset)
        return receipt

    def max_offset(self, topic: str, queue_id: int = 0) -> int:
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        answer = self.ask(self.master(topic), RequestCode.GET_MAX_OFFSET, header)
        return OffsetResponseHeader.from_fields(answer.fields).offset

    def pull_header(self, group: str, topic: str, offset: int, **others: Any) -> PullMessageRequestHeader:
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=0,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=1,
            expression_type="TAG",
        )
        return replace(header, **others)

    def pull(self, group: str, topic: str, offset: int, timeout: float = 10.0, **others: Any) -> PullResult:
        """One pull, subscription included (system flag 4), without waiting at the broker unless asked to."""
        address = self.master(topic)
        code = RequestCode.PULL_MESSAGE
        command = request(code, self.pull_header(group, topic, offset, **others))
        return read_pull_result(address, code, self.invoke(address, command, timeout))

    def pull_all(self, group: str, topic: str, queues: int = 1) -> list[ReceivedMessage]:
        """Everything that is in a topic, queue by queue."""
        messages: list[ReceivedMessage] = []
        for queue_id in range(queues):
            offset = 0
            while True:
                result = self.pull(group, topic, offset, queue_id=queue_id)
                if result.next_offset == offset and result.status != 0:
                    break
                if result.body:
                    decoded = decode_records(
                        result.body,
                        queue=self.queue(topic, queue_id),
                        min_offset=result.min_offset,
                        max_offset=result.max_offset,
                    )
                    assert decoded.corrupt == []
                    messages += decoded.messages
                offset = result.next_offset
        return messages


_PAUSE, _LONGEST_PAUSE = 0.02, 0.1


async def eventually_async(
    step: Callable[[], Coroutine[Any, Any, object]], condition: Callable[[], bool], tries: int = 6000
) -> None:
    """Take a step until a condition holds: for what a broker does in its own time.

    It gives up after pauses of 20 ms times `tries`. They grow: steps that ask a broker keep a small machine busy.
    """
    pause, left = _PAUSE, tries * _PAUSE
    while True:
        await step()
        if condition():
            return
        if left <= 0:
            raise AssertionError("it did not come to pass")
        await asyncio.sleep(pause)
        left -= pause
        pause = min(pause * 1.1, _LONGEST_PAUSE)


def eventually(condition: Callable[[], object], tries: int = 6000) -> None:
    """The same with a plain condition, from a test's own thread."""

    async def nothing() -> None: ...

    asyncio.run(eventually_async(nothing, lambda: bool(condition()), tries))
