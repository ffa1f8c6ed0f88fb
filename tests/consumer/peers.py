"""Brokers that a test's consumer may take for real ones, and consumers on the test's own loop and clock.

A `ConsumerBroker` behaves without being told: it knows the members by their heartbeats, keeps offsets and locks, gives
the messages that `store` put into its queues, and holds a pull that finds none back until there is something. A test
changes that in three ways: `plan(code, ...)` says what happens to the next requests of a code; `answer(...)` gives a
pull (the one that is held, or else the next) any answer of `pull_answers`; `on(code, handler)` replaces a handler.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rocketstream.clock import Clock
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.broker_offsets import BrokerOffsets
from rocketstream.consumer.core import ConsumerCore
from rocketstream.consumer.listener import make_listener
from rocketstream.consumer.pull_request import COMMIT_OFFSET
from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.testing.scripted_server import Handler
from rocketstream.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketstream.wire.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rocketstream.wire.bodies.members import ConsumerConnection, ConsumerListByGroup
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.offsets import OffsetResponseHeader
from tests.consumer.pull_answers import TOPIC, PullAnswer, found, record
from tests.producer.peers import CUT, SILENCE, StoringBroker
from tests.scripted import eventually

GROUP = "g"
RETRY = f"%RETRY%{GROUP}"
QueueKey: TypeAlias = tuple[str, int]
"""(topic, queue id)."""


@dataclass(slots=True)
class _Queue:
    """One queue of a broker: what is stored, what a test wants said next, and the pull that is held."""

    first: int = 0
    records: list[bytes] = field(default_factory=list)
    answers: deque[PullAnswer] = field(default_factory=deque)
    held: asyncio.Future[PullAnswer | None] | None = None

    @property
    def end(self) -> int:
        return self.first + len(self.records)


class ConsumerBroker(StoringBroker):
    """A broker for consumers; the module's text says how a test steers it. `name` is its broker name in routes."""

    def __init__(self, name: str = "a") -> None:
        super().__init__()
        self.name = name
        self.heartbeats: list[HeartbeatData] = []
        self.other_members: list[str] = []
        """Client ids of members of every group that this test has not started (they come and go as it says)."""
        self.offsets: dict[tuple[str, str, int], int] = {}
        """The stored offsets by (group, topic, queue id): what is not there is QUERY_NOT_FOUND."""
        self.updates: list[tuple[str, int, int]] = []
        """Every UPDATE_CONSUMER_OFFSET as (topic, queue id, offset), in order."""
        self.max_offsets: dict[QueueKey, int] = {}
        """What GET_MAX_OFFSET says where it is not the end of what is stored; likewise GET_MIN_OFFSET and by time."""
        self.min_offsets: dict[QueueKey, int] = {}
        self.offsets_by_time: dict[QueueKey, int] = {}
        self.locks: dict[MessageQueue, str] = {}
        """Who has which queue, by client id; a test writes others' into it."""
        self.lock_requests: list[LockBatchRequestBody] = []
        self.unlock_requests: list[UnlockBatchRequestBody] = []
        self.pulls: list[Command] = []
        self.commits = True
        """Whether it handles what pulls carry at once; False: not before the test does, with `commit_late`."""
        self.sent_back: list[Command] = []
        self._queues: defaultdict[QueueKey, _Queue] = defaultdict(_Queue)
        self._plans: defaultdict[int, deque[Any]] = defaultdict(deque)
        self._answer_all()

    # --- what a test says and asks ----------------------------------------------------------------------------------

    def queue(self, queue_id: int = 0, topic: str = TOPIC) -> MessageQueue:
        return MessageQueue(topic, self.name, queue_id)

    def plan(self, code: int, *outcomes: Any) -> None:
        """What becomes of the next requests of a code, one each; after them it is as before.

        A response code, (code, remark), `SILENCE`, `CUT`, or a handler (`Command -> Command | None`, or `async`).
        """
        self._plans[int(code)].extend(outcomes)

    def store(self, *records: bytes | str, queue_id: int = 0, topic: str = TOPIC, **others: Any) -> None:
        """Put messages into a queue; a text becomes a message with that body. A pull that is held gets them."""
        queue = self._queues[topic, queue_id]
        for one in records:
            made = (
                record(queue.end, topic=topic, body=one.encode(), queue_id=queue_id, **others)
                if isinstance(one, str)
                else one
            )
            queue.records.append(made)
        self._wake(queue, None)

    def begin_at(self, first: int, queue_id: int = 0, topic: str = TOPIC) -> None:
        """What `store` puts into an empty queue begins at this offset."""
        self._queues[topic, queue_id].first = first

    def answer(self, *answers: PullAnswer, queue_id: int = 0, topic: str = TOPIC) -> None:
        """Answer the pull of a queue that is held, and those that come next, with these, whatever is stored."""
        queue = self._queues[topic, queue_id]
        queue.answers.extend(answers)
        if queue.answers and queue.held is not None:
            self._wake(queue, queue.answers.popleft())

    def is_held(self, queue_id: int = 0, topic: str = TOPIC) -> bool:
        """Whether a pull of that queue waits here for messages."""
        return self._queues[topic, queue_id].held is not None

    def pulls_of(self, queue_id: int = 0, topic: str = TOPIC) -> list[Command]:
        """The pulls of one queue so far."""
        return [p for p in self.pulls if (p.fields["topic"], int(p.fields["queueId"])) == (topic, queue_id)]

    def pulled_offsets(self, queue_id: int = 0, topic: str = TOPIC) -> list[int]:
        """The offsets that were pulled from, in order."""
        return [int(pull.fields["queueOffset"]) for pull in self.pulls_of(queue_id, topic)]

    async def until_held(self, queue_id: int = 0, topic: str = TOPIC) -> Command:
        """Wait until a pull of that queue is held; returns it."""
        await eventually(lambda: self.is_held(queue_id, topic))
        return self.pulls_of(queue_id, topic)[-1]

    async def until_pulled(self, count: int, queue_id: int = 0, topic: str = TOPIC) -> Command:
        """Wait until a queue was pulled that often in all; returns the last pull."""
        await eventually(lambda: len(self.pulls_of(queue_id, topic)) >= count)
        return self.pulls_of(queue_id, topic)[-1]

    def requests(self, code: int) -> list[Command]:
        """What has arrived of a code."""
        return [command for command in self.received if command.code == code]

    def members(self, group: str) -> list[str]:
        """Who has sent a heartbeat for a group and not left, and the test's own."""
        here = {
            beat.client_id for beat in self.heartbeats if any(c.group_name == group for c in beat.consumer_data_set)
        }
        left = {
            c.fields["clientID"] for c in self.requests(RequestCode.UNREGISTER_CLIENT) if "consumerGroup" in c.fields
        }
        return sorted((here - left) | set(self.other_members))

    def commit_late(self, queue_id: int = 0, topic: str = TOPIC) -> None:
        """Commit what the last pull of a queue carries only now, as a broker does that is busy with other pulls."""
        self.commits = True
        self._commit(self.pulls_of(queue_id, topic)[-1])

    def tell(self, command: Command) -> None:
        """Send a request of the broker's own to every client."""
        for peer in self.peers:
            peer.send(command)

    # --- what it does -----------------------------------------------------------------------------------------------

    def _answer_all(self) -> None:
        code = RequestCode
        self.on(code.HEART_BEAT, self._heartbeat)
        self.on(code.CHECK_CLIENT_CONFIG, self._ok)
        self.on(code.GET_CONSUMER_LIST_BY_GROUP, self._members)
        self.on(code.GET_CONSUMER_CONNECTION_LIST, self._connections)
        self.on(code.QUERY_CONSUMER_OFFSET, self._query_offset)
        self.on(code.UPDATE_CONSUMER_OFFSET, self._update_offset)
        self.on(code.GET_MAX_OFFSET, lambda c: self._offset(c, self.max_offsets, lambda queue: queue.end))
        self.on(code.GET_MIN_OFFSET, lambda c: self._offset(c, self.min_offsets, lambda queue: queue.first))
        self.on(code.SEARCH_OFFSET_BY_TIMESTAMP, lambda c: self._offset(c, self.offsets_by_time, lambda q: q.first))
        self.on(code.LOCK_BATCH_MQ, self._lock)
        self.on(code.UNLOCK_BATCH_MQ, self._unlock)
        self.on(code.PULL_MESSAGE, self._pull)
        self.on(code.LITE_PULL_MESSAGE, self._pull)
        self.on(code.CONSUMER_SEND_MSG_BACK, self._send_back)

    def on(self, code: int, handler: Handler) -> None:
        """Answer requests of a code with this handler, unless there is a plan for them."""

        def planned(command: Command) -> Any:
            plan = self._plans[command.code] if hasattr(self, "_plans") else None
            if not plan:
                return handler(command)
            outcome = plan.popleft()
            if callable(outcome):
                return outcome(command)
            if outcome == SILENCE:
                return None
            if outcome == CUT:
                for peer in list(self.peers):
                    peer.cut()
                return None
            number, remark = outcome if isinstance(outcome, tuple) else (outcome, None)
            return response(command, number, remark)

        super().on(code, planned)

    def _heartbeat(self, command: Command) -> Command:
        self.heartbeats.append(HeartbeatData.decode(command.body))
        return self._ok(command)

    def _members(self, command: Command) -> Command:
        ids = tuple(self.members(command.fields["consumerGroup"]))
        return response(command, ResponseCode.SUCCESS, body=ConsumerListByGroup(consumer_id_list=ids).encode())

    def _connections(self, command: Command) -> Command:
        told = [data for beat in self.heartbeats for data in beat.consumer_data_set]
        data = [one for one in told if one.group_name == command.fields["consumerGroup"]] or [
            ConsumerData(group_name="")
        ]
        table = {sub.topic: sub for sub in data[-1].subscription_data_set}
        return response(command, ResponseCode.SUCCESS, body=ConsumerConnection(subscription_table=table).encode())

    def _query_offset(self, command: Command) -> Command:
        fields = command.fields
        offset = self.offsets.get((fields["consumerGroup"], fields["topic"], int(fields["queueId"])))
        if offset is None:
            return response(command, ResponseCode.QUERY_NOT_FOUND, "Not found")
        return response(command, ResponseCode.SUCCESS, header=OffsetResponseHeader(offset=offset))

    def _update_offset(self, command: Command) -> Command:
        fields = command.fields
        topic, queue_id, offset = fields["topic"], int(fields["queueId"]), int(fields["commitOffset"])
        self.offsets[fields["consumerGroup"], topic, queue_id] = offset
        self.updates.append((topic, queue_id, offset))
        return response(command, ResponseCode.SUCCESS)

    def _offset(self, command: Command, said: dict[QueueKey, int], of: Callable[[_Queue], int]) -> Command:
        key = command.fields["topic"], int(command.fields["queueId"])
        offset = said.get(key, of(self._queues[key]))
        return response(command, ResponseCode.SUCCESS, header=OffsetResponseHeader(offset=offset))

    def _lock(self, command: Command) -> Command:
        wanted = LockBatchRequestBody.decode(command.body)
        self.lock_requests.append(wanted)
        granted = [
            queue for queue in wanted.mq_set if self.locks.setdefault(queue, wanted.client_id) == wanted.client_id
        ]
        return response(
            command, ResponseCode.SUCCESS, body=LockBatchResponseBody(lock_ok_mq_set=frozenset(granted)).encode()
        )

    def _unlock(self, command: Command) -> Command:
        given = UnlockBatchRequestBody.decode(command.body)
        self.unlock_requests.append(given)
        for queue in given.mq_set:
            if self.locks.get(queue) == given.client_id:
                del self.locks[queue]
        return response(command, ResponseCode.SUCCESS)

    def _send_back(self, command: Command) -> Command:
        self.sent_back.append(command)
        return response(command, ResponseCode.SUCCESS)

    async def _pull(self, command: Command) -> Command:
        self.pulls.append(command)
        self._commit(command)
        queue = self._queues[command.fields["topic"], int(command.fields["queueId"])]
        if queue.answers:
            return queue.answers.popleft().to(command)
        while not (stored := self._stored(queue, command)):
            held = queue.held = asyncio.get_running_loop().create_future()
            answer = await held
            if answer is not None:
                return answer.to(command)
        return stored.to(command)

    def _commit(self, pull: Command) -> None:
        """Like a real broker: what a pull carries is stored before it waits for messages (PULL-13)."""
        fields = pull.fields
        if self.commits and int(fields["sysFlag"]) & COMMIT_OFFSET:
            key = fields["consumerGroup"], fields["topic"], int(fields["queueId"])
            self.offsets[key] = int(fields["commitOffset"])

    def _stored(self, queue: _Queue, command: Command) -> PullAnswer | None:
        offset = int(command.fields["queueOffset"])
        records = queue.records[max(offset - queue.first, 0) :][: int(command.fields["maxMsgNums"])]
        if not records:
            return None
        return found(offset, len(records), records=records, min_offset=queue.first, max_offset=queue.end)

    @staticmethod
    def _wake(queue: _Queue, answer: PullAnswer | None) -> None:
        held, queue.held = queue.held, None
        if held is not None and not held.done():
            held.set_result(answer)


# --- consumers --------------------------------------------------------------------------------------------------------


class Heard:
    """A listener that notes what it is called with; `result` is its answer, or an exception that it raises."""

    def __init__(self, result: object = ConsumeResult.SUCCESS) -> None:
        self.result = result
        self.calls: list[list[ReceivedMessage]] = []
        self.contexts: list[Any] = []

    def __call__(self, messages: Sequence[ReceivedMessage], context: Any) -> object:
        self.contexts.append(context)
        self.calls.append(list(messages))
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    @property
    def messages(self) -> list[ReceivedMessage]:
        return [message for call in self.calls for message in call]

    @property
    def offsets(self) -> list[int]:
        """Sorted: a pool's threads do not keep an order."""
        return sorted(message.queue_offset for message in self.messages)

    @property
    def bodies(self) -> list[bytes]:
        return sorted(message.body for message in self.messages)

    async def until(self, count: int) -> None:
        """Wait until so many messages were heard."""
        await eventually(lambda: len(self.messages) >= count)


class HeldUp(Heard):
    """A listener that does not return before its messages, or all, are let go."""

    def __init__(self, result: object = ConsumeResult.SUCCESS) -> None:
        super().__init__(result)
        self._free: set[int] = set()
        self._all = False
        self._changed = threading.Condition()

    def __call__(self, messages: Sequence[ReceivedMessage], context: Any) -> object:
        self.contexts.append(context)
        self.calls.append(list(messages))
        with self._changed:
            self._changed.wait_for(lambda: self._all or self._free.issuperset(m.queue_offset for m in messages))
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def let_go(self, *offsets: int) -> None:
        """Let the calls with these offsets return; all of them, and those to come, if none is given."""
        with self._changed:
            self._free.update(offsets)
            self._all = self._all or not offsets
            self._changed.notify_all()


def make_core(
    name_server: str,
    clock: Clock | None = None,
    listener: Any = None,
    *,
    topics: dict[str, Any] | None = None,
    group: str = GROUP,
    instances: ClientInstances | None = None,
    instance_name: str | None = None,
    client: dict[str, Any] | None = None,
    **settings: Any,
) -> ConsumerCore:
    """A consumer's core for the running loop, subscribed to `topics` ({topic: expression}); not started.

    The listener is a `Heard` unless given. Consumers that share `instances` and `instance_name` share a client.
    """
    consumer = ConsumerSettings(group=group, **settings)
    core = ConsumerCore(
        ClientSettings(name_servers=(name_server,), **(client or {})),
        consumer,
        instance_name=instance_name,
        instances=instances or ClientInstances(clock),
    )
    for topic, expression in ({TOPIC: "*"} if topics is None else topics).items():
        core.subscribing.before_start(topic, expression)
    if listener is None:
        listener = Heard(OrderlyResult.SUCCESS if consumer.orderly else ConsumeResult.SUCCESS)
    core.listener = make_listener(listener, {}, orderly=consumer.orderly)
    return core


def has_offsets(core: ConsumerCore, broker: ConsumerBroker) -> None:
    """Let a consumer know that the broker has offsets of its group: then pulls carry them, from the first one on."""
    assert isinstance(core.offsets, BrokerOffsets)
    core.offsets._tables.found(core.group, TOPIC, broker.address)


def request_of(core: ConsumerCore, queue: MessageQueue) -> Any:
    """The pull request that a consumer has for a queue; its process queue is `.process_queue`."""
    return core.rebalancer.requests[queue]
