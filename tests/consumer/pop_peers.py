"""A broker that gives messages by pop, as a test says; what it is told of them is written down."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.assignment import MessageQueueAssignment, QueryAssignmentResponseBody
from rocketstream.wire.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketstream.wire.codes import MessageRequestMode, RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.pop import ChangeInvisibleTimeResponseHeader, PopMessageResponseHeader
from tests.consumer.peers import ConsumerBroker
from tests.consumer.pull_answers import TOPIC, record
from tests.scripted import eventually

POP_TIME = 1_700_000_000_000
ALL_QUEUES = MessageQueue(TOPIC, "a", -1)


class PopAnswer(NamedTuple):
    """What a broker says to one pop."""

    code: int = ResponseCode.SUCCESS
    body: bytes = b""
    header: PopMessageResponseHeader | None = None


def popped(
    offsets: Iterable[int] = (),
    *,
    queues: dict[int, Iterable[int]] | None = None,
    invisible: int = 60_000,
    revive: int = 3,
    counts: str | None = None,
    rest: int = 0,
    **others: Any,
) -> PopAnswer:
    """Messages of queue 0 with these offsets, or of several queues."""
    given = {queue_id: list(some) for queue_id, some in (queues or {0: offsets}).items()}
    records = [record(offset, queue_id=queue_id, **others) for queue_id, some in given.items() for offset in some]
    header = PopMessageResponseHeader(
        pop_time=POP_TIME,
        invisible_time=invisible,
        revive_qid=revive,
        rest_num=rest,
        start_offset_info=";".join(f"0 {queue_id} {some[0]}" for queue_id, some in given.items()),
        msg_offset_info=";".join(f"0 {queue_id} {','.join(map(str, some))}" for queue_id, some in given.items()),
        order_count_info=counts,
    )
    return PopAnswer(body=b"".join(records), header=header)


class PopBroker(ConsumerBroker):
    """A broker whose groups pop, unless the test says otherwise; a pop that finds nothing is held."""

    def __init__(self, name: str = "a") -> None:
        super().__init__(name)
        self.assigned: list[tuple[MessageQueue, MessageRequestMode]] | None = [
            (MessageQueue(TOPIC, name, -1), MessageRequestMode.POP)
        ]
        """What QUERY_ASSIGNMENT says of topic t; None: that it does not know. Other topics are pulled."""
        self.pops: list[Command] = []
        self.batch_acks: list[BatchAck] = []
        self._gifts: deque[PopAnswer] = deque()
        self._held: asyncio.Future[PopAnswer] | None = None
        self.on(RequestCode.QUERY_ASSIGNMENT, self._assignment)
        self.on(RequestCode.POP_MESSAGE, self._pop)
        self.on(RequestCode.ACK_MESSAGE, self._ok)
        self.on(RequestCode.BATCH_ACK_MESSAGE, self._batch_ack)
        self.on(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, self._hide)

    def give(self, *answers: PopAnswer) -> None:
        """Answer the pop that is held, and those that come next."""
        self._gifts.extend(answers)
        if self._held is not None and not self._held.done():
            self._held.set_result(self._gifts.popleft())

    async def until_popped(self, count: int) -> Command:
        """Wait until there were so many pops; returns the last."""
        await eventually(lambda: len(self.pops) >= count)
        return self.pops[-1]

    @property
    def acked(self) -> list[tuple[int, int]]:
        """(queue id, offset) of all that were acknowledged, one by one or together."""
        single = [(int(c.fields["queueId"]), int(c.fields["offset"])) for c in self.requests(RequestCode.ACK_MESSAGE)]
        return sorted(single + [(b.queue_id, b.start_offset + bit) for b in self.batch_acks for bit in b.bits])

    @property
    def hidden(self) -> list[tuple[int, int, float]]:
        """(queue id, offset, seconds) of all whose lease was changed."""
        return sorted(
            (int(c.fields["queueId"]), int(c.fields["offset"]), int(c.fields["invisibleTime"]) / 1000)
            for c in self.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        )

    def _assignment(self, command: Command) -> Command:
        given = None
        if f'"{TOPIC}"'.encode() in command.body and self.assigned is not None:
            given = tuple(MessageQueueAssignment(message_queue=queue, mode=mode) for queue, mode in self.assigned)
        body = QueryAssignmentResponseBody(message_queue_assignments=given)
        return response(command, ResponseCode.SUCCESS, body=body.encode())

    async def _pop(self, command: Command) -> Command:
        self.pops.append(command)
        if self._gifts:
            answer = self._gifts.popleft()
        else:
            self._held = asyncio.get_running_loop().create_future()
            answer = await self._held
        return response(command, answer.code, None, answer.header, answer.body)

    def _batch_ack(self, command: Command) -> Command:
        body = BatchAckMessageRequestBody.decode(command.body)
        assert body.broker_name == self.name
        self.batch_acks += body.acks
        return self._ok(command)

    def _hide(self, command: Command) -> Command:
        header = ChangeInvisibleTimeResponseHeader(pop_time=POP_TIME, invisible_time=1, revive_qid=3)
        return response(command, ResponseCode.SUCCESS, header=header)
