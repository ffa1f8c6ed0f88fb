"""Queues given by the broker, and the mode in which a group gets a topic's messages."""

from __future__ import annotations

import pytest

from rocketstream.broker.assignments import Assignments
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.assignment import (
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rocketstream.wire.bodies.route import QueueData, TopicRouteData
from rocketstream.wire.codes import MessageModel, MessageRequestMode, RequestCode, ResponseCode
from tests.broker.parts import Parts, ask, heartbeat, request, succeed

TOPIC, GROUP = "orders", "shop"


class Bench(Parts):
    def __init__(self, queues: int = 8) -> None:
        super().__init__()
        self.create_topic(TOPIC, queues)
        self.others, self.perm = 0, 6
        self.service = self.started()
        self.client = self.connect()

    def started(self) -> Assignments:
        service = Assignments(
            state=self.state, topics=self.topics, groups=self.groups, members=self.members, route=self.route
        )
        service.start()
        return service

    async def route(self, topic: str) -> TopicRouteData | None:
        """As a name server says it that knows of two brokers, the second without queues to read."""
        config = self.topics.get(topic)
        if config is None:
            return None
        queues = QueueData(broker_name="broker-a", read_queue_nums=config.read_queue_nums, write_queue_nums=1, perm=6)
        others = QueueData(broker_name="broker-b", read_queue_nums=self.others, write_queue_nums=1, perm=self.perm)
        return TopicRouteData(queue_datas=(others, queues))

    async def join(self, *clients: str) -> None:
        for client in clients:
            await succeed(self.members, self.connect(), heartbeat(client, {GROUP: (TOPIC,)}))

    async def query(self, client: str = "c1", **others: object) -> QueryAssignmentResponseBody:
        fields = {"topic": TOPIC, "consumer_group": GROUP, "client_id": client, "strategy_name": "AVG", **others}
        body = QueryAssignmentRequestBody(**fields)  # type: ignore[arg-type]
        answer = await succeed(self.service, self.client, request(RequestCode.QUERY_ASSIGNMENT, None, body.encode()))
        return QueryAssignmentResponseBody.decode(answer.body)

    async def queues(self, client: str = "c1", **others: object) -> list[int] | None:
        assignments = (await self.query(client, **others)).message_queue_assignments
        return None if assignments is None else [one.message_queue.queue_id for one in assignments]

    async def set_mode(self, share: int = 0, topic: str = TOPIC) -> ResponseCode:
        body = SetMessageRequestModeRequestBody(
            topic=topic, consumer_group=GROUP, mode=MessageRequestMode.POP, pop_share_queue_num=share
        )
        command = request(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body.encode())
        return ResponseCode((await ask(self.service, self.client, command)).code)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_queues_are_given_in_the_order_of_the_clients(bench):
    await bench.join("c3", "c1", "c2")
    assert [await bench.queues(client) for client in ("c1", "c2", "c3")] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    by_circle = [await bench.queues(client, strategy_name="AVG_BY_CIRCLE") for client in ("c1", "c2", "c3")]
    assert by_circle == [[0, 3, 6], [1, 4, 7], [2, 5]]
    (first, *_) = (await bench.query()).message_queue_assignments
    assert first.mode is MessageRequestMode.PULL
    assert first.message_queue == MessageQueue(TOPIC, "broker-a", 0)


async def test_queues_of_all_brokers_are_given(bench):
    bench.others = 2
    await bench.join("c1", "c2")
    given = [one.message_queue for one in (await bench.query("c2")).message_queue_assignments]
    assert [(queue.broker_name, queue.queue_id) for queue in given] == [
        *(("broker-a", number) for number in (5, 6, 7)),
        *(("broker-b", number) for number in (0, 1)),
    ]
    await bench.set_mode()
    assert {one.message_queue for one in (await bench.query()).message_queue_assignments} == {
        MessageQueue(TOPIC, "broker-a", -1),
        MessageQueue(TOPIC, "broker-b", -1),
    }
    bench.perm = 2
    assert await bench.queues("c2") == [-1], "the other broker's queues can't be read"


async def test_more_clients_than_queues(bench):
    bench.create_topic(TOPIC, 2)
    await bench.join("c1", "c2", "c3")
    assert [await bench.queues(client) for client in ("c1", "c2", "c3")] == [[0], [1], []]


async def test_what_cannot_be_said_is_no_answer_and_not_no_queues(bench):
    assert await bench.queues() is None, "nobody is in the group"
    await bench.join("c1")
    assert await bench.queues(topic="nowhere") is None
    assert await bench.queues(strategy_name="MACHINE_ROOM_NEARBY") is None
    assert await bench.queues("stranger") == []


async def test_broadcasting_gives_everything(bench):
    assert await bench.queues(message_model=MessageModel.BROADCASTING) == list(range(8))


async def test_popped_queues_are_shared_by_all(bench):
    await bench.join("c1", "c2", "c3")
    assert await bench.set_mode() is ResponseCode.SUCCESS
    (assignment,) = (await bench.query()).message_queue_assignments
    assert assignment.message_queue == MessageQueue(TOPIC, "broker-a", -1)
    assert assignment.mode is MessageRequestMode.POP


async def test_popped_queues_are_shared_with_those_that_follow(bench):
    await bench.join("c1", "c2", "c3", "c4")
    await bench.set_mode(share=1)
    assert [await bench.queues(client) for client in ("c1", "c4")] == [[0, 1, 2, 3], [6, 7, 0, 1]]
    assert await bench.queues("stranger") == []
    await bench.set_mode(share=3)
    assert await bench.queues() == [-1]


async def test_every_one_of_many_that_share_gets_a_queue(bench):
    bench.create_topic(TOPIC, 2)
    await bench.join("c1", "c2", "c3", "c4")
    await bench.set_mode(share=1)
    assert [await bench.queues(f"c{number}") for number in range(1, 5)] == [[0], [1], [0], [1]]


async def test_modes_are_kept_and_told(bench):
    await bench.set_mode(share=2)
    later = bench.started()
    assert later.mode(TOPIC, GROUP).pop_share_queue_num == 2
    answer = await succeed(later, bench.client, request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
    told = MessageRequestModeSerializeWrapper.decode(answer.body).message_request_mode_map
    assert told[TOPIC][GROUP].mode is MessageRequestMode.POP


async def test_modes_that_are_refused(bench):
    assert await bench.set_mode(topic=f"%RETRY%{GROUP}") is ResponseCode.NO_PERMISSION
    assert await bench.set_mode(topic="nowhere") is ResponseCode.TOPIC_NOT_EXIST
    bench.settings.auto_create_groups = False
    assert await bench.set_mode() is ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
