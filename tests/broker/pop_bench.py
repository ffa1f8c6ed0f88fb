"""A broker's popping part with a client at hand: pops, acknowledgements, and what comes of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketstream.broker.intake import Intake
from rocketstream.broker.pop import Pop
from rocketstream.broker.store import open_store
from rocketstream.clock import ManualClock
from rocketstream.message import ReceivedMessage
from rocketstream.property_names import PropertyName
from rocketstream.wire.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketstream.wire.check_point import CheckPoint, set_check_points
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command
from rocketstream.wire.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketstream.wire.record_decoder import decode_records
from tests.broker.parts import Parts, ask, request

TOPIC, GROUP = "orders", "shop"
BROKER = "broker-a"


class Popped:
    """An answer to a pop."""

    def __init__(self, answer: Command, *, order: bool) -> None:
        self.answer = answer
        self.code = answer.code
        self.messages: list[ReceivedMessage] = []
        if "popTime" in answer.fields:
            self.header = PopMessageResponseHeader.from_fields(answer.fields)
            self.messages = list(decode_records(answer.body).messages)
            set_check_points(self.messages, self.header, BROKER, order=order)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class PopBench(Parts):
    """Parts with a `Pop`; retry topics are looked at last unless `dice` says otherwise."""

    def __init__(
        self, data: Path | None = None, clock: ManualClock | None = None, *, dice: int = 50, **settings: Any
    ) -> None:
        super().__init__(data, clock, **settings)
        if data is not None:
            self.store = open_store(self.settings, self.clock, "127.0.0.1:10911")
        self.intake = Intake(settings=self.settings, clock=self.clock, store=self.store)
        self.dice = dice
        self.pop_service = Pop(
            settings=self.settings,
            clock=self.clock,
            state=self.state,
            store=self.store,
            dispatcher=self.dispatcher,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            intake=self.intake,
            chance=Dice(self),
        )
        self.offsets.start()
        self.pop_service.start()
        self.client = self.connect()

    def stop(self) -> None:
        self.pop_service.stop()
        self.offsets.stop()
        self.store.close()

    # --- requests ---------------------------------------------------------------------------------------------------

    async def ask(self, code: RequestCode, fields: Any = None, body: bytes = b"") -> Command:
        return await ask(self.pop_service, self.client, request(code, fields, body))

    async def pop(self, **others: Any) -> Popped:
        fields = self.wanted(**others)
        return Popped(await self.ask(RequestCode.POP_MESSAGE, fields), order=bool(fields.order))

    def popping(self, **others: Any) -> asyncio.Task[Popped]:
        """A pop that may wait."""
        return asyncio.ensure_future(self.pop(**{"poll_time": 20_000, **others}))

    @staticmethod
    def wanted(**others: Any) -> PopMessageRequestHeader:
        fields: dict[str, Any] = {
            "consumer_group": GROUP,
            "topic": TOPIC,
            "queue_id": -1,
            "max_msg_nums": 32,
            "invisible_time": 60_000,
            "poll_time": 0,
            "born_time": 0,
            "init_mode": 0,
        }
        return PopMessageRequestHeader(**{**fields, **others})

    async def ack(self, message: ReceivedMessage, **others: Any) -> Command:
        point = CheckPoint.decode(message.properties[PropertyName.POP_CHECK_POINT])
        fields: dict[str, Any] = {
            "consumer_group": GROUP,
            "topic": point.real_topic(TOPIC, GROUP),
            "queue_id": point.queue_id,
            "extra_info": point.encode(),
            "offset": point.offset,
        }
        return await self.ask(RequestCode.ACK_MESSAGE, AckMessageRequestHeader(**{**fields, **others}))

    async def ack_batch(self, messages: list[ReceivedMessage]) -> Command:
        points = [CheckPoint.decode(message.properties[PropertyName.POP_CHECK_POINT]) for message in messages]
        first = points[0]
        batch = BatchAck(
            consumer_group=GROUP,
            topic=TOPIC,
            retry=first.retry,
            start_offset=first.start_offset,
            queue_id=first.queue_id,
            revive_queue_id=first.revive_queue_id,
            pop_time=first.pop_time,
            invisible_time=first.invisible_time,
            bits=frozenset(point.offset - first.start_offset for point in points),
        )
        body = BatchAckMessageRequestBody(broker_name=BROKER, acks=(batch,))
        return await self.ask(RequestCode.BATCH_ACK_MESSAGE, body=body.encode())

    async def change(self, message: ReceivedMessage, invisible_time: int, **others: Any) -> CheckPoint:
        """Prolong a lease; its new check point."""
        point = CheckPoint.decode(message.properties[PropertyName.POP_CHECK_POINT])
        fields: dict[str, Any] = {
            "consumer_group": GROUP,
            "topic": point.real_topic(TOPIC, GROUP),
            "queue_id": point.queue_id,
            "extra_info": point.encode(),
            "offset": point.offset,
            "invisible_time": invisible_time,
        }
        header = ChangeInvisibleTimeRequestHeader(**{**fields, **others})
        answer = await self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        changed = ChangeInvisibleTimeResponseHeader.from_fields(answer.fields)
        new = point._replace(
            start_offset=point.offset, pop_time=changed.pop_time, invisible_time=changed.invisible_time
        )
        message.properties[PropertyName.POP_CHECK_POINT] = new.encode()
        return new

    async def notification(self, **others: Any) -> Mapping[str, str]:
        fields: dict[str, Any] = {"consumer_group": GROUP, "topic": TOPIC, "queue_id": -1, "poll_time": 0}
        header = NotificationRequestHeader(**{**fields, "born_time": 0, **others})
        return (await self.ask(RequestCode.NOTIFICATION, header)).fields

    async def polling(self, queue_id: int = -1) -> int:
        header = PollingInfoRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id)
        return int((await self.ask(RequestCode.POLLING_INFO, header)).fields["pollingNum"])

    async def peek(self, max_msg_nums: int = 32) -> Command:
        header = PeekMessageRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=max_msg_nums)
        return await self.ask(RequestCode.PEEK_MESSAGE, header)

    def offset(self, topic: str = TOPIC, queue_id: int = 0) -> int:
        return self.offsets.get(GROUP, topic, queue_id)


class Dice(random.Random):
    """Chance that a test decides."""

    def __init__(self, bench: PopBench) -> None:
        super().__init__()
        self._bench = bench

    def randrange(self, *args: Any, **others: Any) -> int:
        return self._bench.dice
