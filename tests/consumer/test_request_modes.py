"""Pulled or popped, and who shares out the queues: the client, or the broker where it is to (PULL-22, REB-11)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rocketstream.consumer.allocation import AllocateByConsistentHash
from rocketstream.consumer.pop_request import PopRequest
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.assignment import QueryAssignmentRequestBody
from rocketstream.wire.codes import MessageModel, MessageRequestMode, RequestCode, ResponseCode
from tests.consumer.peers import GROUP, Heard
from tests.consumer.pop_peers import ALL_QUEUES, PopBroker, popped
from tests.consumer.pull_answers import TOPIC
from tests.scripted import eventually

PULL, POP = MessageRequestMode.PULL, MessageRequestMode.POP
RETRY_OF_POPS = f"%RETRY%{GROUP}_{TOPIC}"


@pytest.fixture
async def a() -> AsyncIterator[PopBroker]:
    """Broker a, whose groups pop."""
    async with PopBroker("a") as server:
        yield server


@pytest.fixture
def four_queues(a: PopBroker, name_server) -> list[MessageQueue]:
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=4)
    return [MessageQueue(TOPIC, "a", queue_id) for queue_id in range(4)]


def queries(a: PopBroker) -> list[QueryAssignmentRequestBody]:
    asked = [QueryAssignmentRequestBody.decode(c.body) for c in a.requests(RequestCode.QUERY_ASSIGNMENT)]
    return [one for one in asked if one.topic == TOPIC]


def requests_of(core: Any) -> dict[MessageQueue, type]:
    return {queue: type(request) for queue, request in core.rebalancer.requests.items()}


async def rebalanced(core: Any) -> None:
    await core.rebalance()


# --- PULL-22 ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PULL-22")
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_the_mode_of_a_queue_chooses_its_path(a, started, orderly):
    pulled = a.queue(0)
    a.assigned = [(pulled, PULL), (ALL_QUEUES, POP)]
    core = await started(orderly=orderly, client_rebalance=False)
    assert requests_of(core) == {pulled: PullRequest, ALL_QUEUES: PopRequest}
    assert {q: r.mode for q, r in core.rebalancer.requests.items()} == {pulled: PULL, ALL_QUEUES: POP}
    await a.until_popped(1)
    await a.until_held()
    assert {pop.fields["queueId"] for pop in a.pops} == {"-1"}
    assert {pull.fields["queueId"] for pull in a.pulls} == {"0"}
    assert {queue for body in a.lock_requests for queue in body.mq_set} == ({pulled} if orderly else set())
    assert [one.popped for one in core.overview.queues()] == [True, False]


# --- REB-11: the client asks for it -----------------------------------------------------------------------------------


@pytest.mark.behaviour("REB-11")
async def test_the_broker_shares_out_the_queues_if_the_client_asks_for_it(a, four_queues, started):
    a.assigned = [(four_queues[2], PULL)]
    core = await started(client_rebalance=False)
    assert core.rebalancer.assigned == (four_queues[2],), "not the four that the client would have reckoned"
    assert queries(a)[0] == QueryAssignmentRequestBody(
        topic=TOPIC,
        consumer_group=GROUP,
        client_id=core.client_id,
        strategy_name="AVG",
        message_model=MessageModel.CLUSTERING,
    )
    a.assigned = [(four_queues[0], PULL), (four_queues[1], PULL)]
    await rebalanced(core)
    assert core.rebalancer.assigned == tuple(four_queues[:2])
    a.assigned = []
    await rebalanced(core)
    assert core.rebalancer.assigned == ()


@pytest.mark.behaviour("REB-11")
async def test_the_client_shares_them_out_itself_otherwise(a, four_queues, started):
    a.assigned = [(four_queues[2], PULL)]
    core = await started()
    assert core.rebalancer.assigned == tuple(four_queues)


@pytest.mark.parametrize(
    "setting", [{"allocate_strategy": AllocateByConsistentHash()}, {"model": MessageModel.BROADCASTING}], ids=str
)
async def test_what_brokers_cannot_share_out(a, four_queues, started, setting, tmp_path):
    a.assigned = [(four_queues[2], PULL)]
    core = await started(client_rebalance=False, local_offset_dir=tmp_path, **setting)
    assert core.rebalancer.assigned == tuple(four_queues)


async def _fails(a: PopBroker) -> None:
    a.plan(RequestCode.QUERY_ASSIGNMENT, *[ResponseCode.SYSTEM_ERROR] * 9)


async def _does_not_know(a: PopBroker) -> None:
    a.assigned = None


@pytest.mark.parametrize("trouble", [_fails, _does_not_know])
async def test_a_broker_that_cannot_say_leaves_it_to_the_client(a, four_queues, started, trouble):
    await trouble(a)
    core = await started(client_rebalance=False)
    assert core.rebalancer.assigned == tuple(four_queues)


@pytest.mark.parametrize("client_rebalance", [True, False])
async def test_an_old_broker_is_not_asked(a, four_queues, started, client_rebalance):
    a.VERSION = 397  # 4.9.2
    core = await started(client_rebalance=client_rebalance)
    assert core.rebalancer.assigned == tuple(four_queues)
    assert queries(a) == []


# --- REB-11: the broker sets the group to POP -------------------------------------------------------------------------


@pytest.mark.behaviour("REB-11", "PULL-22")
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_group_that_the_broker_sets_to_pop_is_popped_and_back(a, four_queues, started, orderly):
    pulled = [(queue, PULL) for queue in four_queues]
    a.assigned = pulled
    core = await started(orderly=orderly)
    assert requests_of(core) == dict.fromkeys(four_queues, PullRequest)
    old = [request.process_queue for request in core.rebalancer.requests.values()]

    a.assigned = [(ALL_QUEUES, POP)]
    await rebalanced(core)
    assert requests_of(core) == {ALL_QUEUES: PopRequest}
    assert all(pq.dropped for pq in old)
    await a.until_popped(1)
    popping = core.rebalancer.requests[ALL_QUEUES].process_queue

    a.assigned = pulled
    await rebalanced(core)
    assert {queue for queue in requests_of(core) if queue.topic == TOPIC} == set(four_queues)
    assert popping.dropped
    assert a.requests(RequestCode.POP_MESSAGE) == a.pops[:1], "not popped any more"


@pytest.mark.behaviour("REB-11")
@pytest.mark.parametrize("trouble", [_fails, _does_not_know])
@pytest.mark.parametrize("client_rebalance", [True, False])
async def test_what_is_popped_stays_popped_while_no_broker_can_say(a, started, trouble, client_rebalance):
    core = await started(client_rebalance=client_rebalance)
    assert requests_of(core) == {ALL_QUEUES: PopRequest}
    await trouble(a)
    assert not await core.rebalance()
    assert requests_of(core) == {ALL_QUEUES: PopRequest}
    assert TOPIC in core.rebalancer.problems


async def test_a_popped_queue_is_lost_without_offsets_and_locks(a, started, held_up):
    """What is leased is done all the same: it is ours, whoever pops from now on."""
    core = await started(held_up)
    a.give(popped([5]))
    await held_up.until(1)
    a.assigned = [(a.queue(0), PULL)]
    await rebalanced(core)
    held_up.let_go()
    await eventually(lambda: a.acked == [(0, 5)])
    assert [update for update in a.updates if update[1] < 0] == []
    assert a.unlock_requests == []


# --- what was popped and not acknowledged -----------------------------------------------------------------------------


@pytest.fixture
def retried(a: PopBroker, name_server) -> Callable[[], None]:
    def retried() -> None:
        name_server.set_route(RETRY_OF_POPS, {"a": {0: a.address}}, queues=1)
        a.offsets[GROUP, RETRY_OF_POPS, 0] = 0

    return retried


async def test_what_was_popped_and_failed_is_pulled_when_the_group_pulls_again(a, started, retried):
    heard = Heard()
    core = await started(heard)
    assert RETRY_OF_POPS not in core.subscriptions
    retried()
    a.assigned = [(a.queue(0), PULL)]
    await rebalanced(core)
    assert RETRY_OF_POPS in core.subscriptions
    await rebalanced(core)
    a.store("again", topic=RETRY_OF_POPS)
    await heard.until(1)
    assert [(message.topic, message.body) for message in heard.messages] == [(TOPIC, b"again")]

    a.assigned = [(ALL_QUEUES, POP)]
    await rebalanced(core)
    assert RETRY_OF_POPS not in core.subscriptions
    assert requests_of(core) == {ALL_QUEUES: PopRequest}, "pops read it by themselves"


@pytest.mark.parametrize("exists", [True, False])
async def test_a_group_that_pulls_from_the_start_looks_for_what_it_once_popped(a, started, retried, exists):
    a.assigned = [(a.queue(0), PULL)]
    if exists:
        retried()
    core = await started()
    assert (RETRY_OF_POPS in core.subscriptions) == exists


async def test_what_lies_under_the_newer_name_is_pulled_once_the_broker_has_made_it(a, started, name_server):
    """A broker with enableRetryTopicV2 makes that topic when the first message is to come again."""
    newer = f"%RETRY%{GROUP}+{TOPIC}"
    heard = Heard()
    core = await started(heard)
    a.assigned = [(a.queue(0), PULL)]
    await rebalanced(core)
    assert newer not in core.subscriptions, "there is none yet"
    name_server.set_route(newer, {"a": {0: a.address}}, queues=1)
    a.offsets[GROUP, newer, 0] = 0
    await rebalanced(core)
    assert newer in core.subscriptions
    await rebalanced(core)
    a.store("again", topic=newer)
    await heard.until(1)
    assert [(message.topic, message.body) for message in heard.messages] == [(TOPIC, b"again")]
    a.assigned = [(ALL_QUEUES, POP)]
    await rebalanced(core)
    assert newer not in core.subscriptions
    await core.subscribing.unsubscribe(TOPIC)
    await rebalanced(core)
    assert core.rebalancer.requests == {}


async def test_it_goes_with_the_subscription(a, started, retried):
    a.assigned = [(a.queue(0), PULL)]
    retried()
    core = await started()
    await rebalanced(core)
    assert {queue.topic for queue in core.rebalancer.requests} == {TOPIC, RETRY_OF_POPS}
    await core.subscribing.unsubscribe(TOPIC)
    await rebalanced(core)
    assert RETRY_OF_POPS not in core.subscriptions
    assert {queue.topic for queue in core.rebalancer.requests} == set()
