"""Pops in order: a queue's messages one after the other, and a failure holds up those behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketstream.consumer.results import OrderlyContext, OrderlyResult
from rocketstream.wire.codes import RequestCode
from tests.consumer.peers import HeldUp, request_of
from tests.consumer.pop_peers import ALL_QUEUES, PopBroker, popped
from tests.consumer.stand_in import Answers
from tests.scripted import eventually

SUCCESS, SUSPEND, COMMIT, ROLLBACK = (
    OrderlyResult.SUCCESS,
    OrderlyResult.SUSPEND,
    OrderlyResult.COMMIT,
    OrderlyResult.ROLLBACK,
)


@pytest.fixture
async def a() -> AsyncIterator[PopBroker]:
    """Broker a, whose groups pop."""
    async with PopBroker("a") as server:
        yield server


def unacked(core) -> int:
    return request_of(core, ALL_QUEUES).process_queue.unacked


@pytest.mark.behaviour("POP-04")
async def test_a_queue_goes_one_after_the_other_and_queues_side_by_side(a, started, held_up):
    held_up.result = SUCCESS
    await started(held_up, orderly=True)
    a.give(popped(queues={0: [10, 11, 12], 1: [20, 21]}, revive=999))
    await held_up.until(2)
    assert held_up.offsets == [10, 20], "the first of each queue, and no other"
    assert {type(context) for context in held_up.contexts} == {OrderlyContext}
    assert {context.queue.queue_id for context in held_up.contexts} == {0, 1}
    held_up.let_go(10)
    await held_up.until(3)
    assert held_up.offsets == [10, 11, 20]
    a.give(popped([13], revive=999))
    await a.until_popped(3)
    assert held_up.offsets == [10, 11, 20], "what comes later goes behind"
    held_up.let_go()
    await eventually(lambda: a.acked == [(0, 10), (0, 11), (0, 12), (0, 13), (1, 20), (1, 21)])
    assert [call[0].queue_offset for call in held_up.calls if call[0].queue_id == 0] == [10, 11, 12, 13]
    assert a.lock_requests == [], "the broker keeps the order: a popped queue needs no lock"


@pytest.mark.behaviour("POP-04")
@pytest.mark.parametrize("answer", [SUSPEND, None, ValueError("no")], ids=["suspend", "none", "raised"])
async def test_what_fails_comes_again_with_all_that_is_behind_it(a, started, answer):
    listener = Answers(SUCCESS, answer, SUCCESS)
    core = await started(listener, orderly=True, suspend_current_queue_time=2.0)
    a.give(popped([10, 11, 12, 13], revive=999))
    await eventually(lambda: len(a.hidden) == 3)
    assert a.acked == [(0, 10)]
    assert a.hidden == [(0, 11, 2.0), (0, 12, 2.0), (0, 13, 2.0)]
    assert listener.calls == [[10], [11]], "nothing overtakes it"
    assert unacked(core) == 0
    a.give(popped([11, 12, 13], revive=999, counts="0 qo0%11 1;0 0 0"))
    await eventually(lambda: unacked(core) == 0 and len(a.acked) == 4)
    assert listener.calls == [[10], [11], [11], [12], [13]]


async def test_an_own_pause(a, started):
    def listener(messages, context: OrderlyContext) -> OrderlyResult:
        context.suspend_current_queue_time = 5.0
        return SUSPEND

    await started(listener, orderly=True)
    a.give(popped([10], revive=999))
    await eventually(lambda: a.hidden == [(0, 10, 5.0)])


async def test_a_listener_that_commits_for_itself(a, started):
    answers = iter([SUCCESS, COMMIT, SUCCESS, ROLLBACK])

    def listener(messages, context: OrderlyContext) -> OrderlyResult:
        context.auto_commit = False
        return next(answers)

    core = await started(listener, orderly=True)
    a.give(popped([10, 11, 12, 13, 14], revive=999))
    await eventually(lambda: len(a.hidden) == 3)
    assert a.acked == [(0, 10), (0, 11)]
    assert a.hidden == [(0, 12, 1.0), (0, 13, 1.0), (0, 14, 1.0)]
    assert unacked(core) == 0


async def test_what_failed_too_often_is_sent_away_and_the_queue_goes_on(a, started):
    await started(Answers(SUSPEND), orderly=True, max_reconsume_times=2)
    a.give(popped([10, 11], revive=999, counts="0 qo0%10 2"))
    await eventually(lambda: a.acked == [(0, 10)] and a.hidden == [(0, 11, 1.0)])
    (back,) = a.sent_back
    assert (back.fields["delayLevel"], back.fields["offset"]) == ("-1", "1010")


async def test_a_lease_that_is_over_takes_those_behind_it_along(a, started, clock, held_up):
    held_up.result = SUCCESS
    core = await started(held_up, orderly=True)
    a.give(popped([10, 11], revive=999))
    await held_up.until(1)
    await clock.advance(60)
    a.give(popped([10, 11], revive=999))
    await eventually(lambda: unacked(core) == 4)
    held_up.let_go()
    await eventually(lambda: unacked(core) == 0 and len(a.acked) == 2)
    assert [call[0].queue_offset for call in held_up.calls] == [10, 10, 11]
    assert a.hidden == []


async def test_an_end_gives_back_what_was_not_begun(a, started):
    listener = HeldUp(SUCCESS)
    core = await started(listener, orderly=True)
    a.give(popped([10, 11, 12], revive=999))
    await listener.until(1)
    listener.let_go(10)
    await listener.until(2)
    core.clock.call_later(0, listener.let_go)
    await core.clock.advance(0)
    await core.shutdown(30.0)
    done = {offset for _, offset in a.acked}
    given_back = {offset for _, offset, _ in a.hidden}
    assert done | given_back == {10, 11, 12}
    assert not done & given_back
    assert a.requests(RequestCode.UNLOCK_BATCH_MQ) == []
