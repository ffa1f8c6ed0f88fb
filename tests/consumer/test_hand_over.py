"""Queues that go from one member to another: the last owner lets go before the next one begins.

All members hear of a change at the same moment. Who loses queues drops and stores all of them at once; who wins some
waits a moment first, unless a lock tells it when they are free. Else everything between the offset that was last stored
and the last owner's end would be consumed twice.
"""

from __future__ import annotations

import asyncio

import pytest

from rocketstream.consumer.rebalancer import HAND_OVER
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import request, response
from rocketstream.wire.headers.group import NotifyConsumerIdsChangedRequestHeader
from tests.consumer.peers import GROUP, Heard
from tests.scripted import eventually

FIRST, LAST = "!", "~"  # sort before and after every client id


@pytest.fixture
def four(name_server, a):
    name_server.set_route("t", {"a": {0: a.address}}, queues=4)


def members_changed():
    return request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader(consumer_group=GROUP))


def assigned(core):
    return [queue.queue_id for queue in core.rebalancer.assigned if queue.topic == "t"]


async def notified(core, a):
    before = core.rebalancer._hand_over_until
    a.tell(members_changed())
    await eventually(lambda: core.rebalancer._hand_over_until > before)


async def at_once(clock, condition):
    """It comes to pass without time passing."""
    for _ in range(1000):
        await clock.advance(0.0)
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to pass")


async def test_who_wins_queues_waits_until_they_were_let_go(started, four, a, clock):
    a.other_members = [FIRST, LAST]
    core = await started()
    assert assigned(core) == [2]
    await clock.advance(10.0)
    a.other_members = [FIRST]
    await notified(core, a)
    await at_once(clock, lambda: pytest.approx(HAND_OVER) in clock.pending)
    a.offsets[GROUP, "t", 3] = 7  # stored by its last owner, just now
    asked = len(a.requests(RequestCode.QUERY_CONSUMER_OFFSET))
    await clock.advance(HAND_OVER * 0.9)
    assert assigned(core) == [2]
    assert len(a.requests(RequestCode.QUERY_CONSUMER_OFFSET)) == asked, "nor has it looked where to begin"
    await clock.advance(HAND_OVER * 0.2)
    await eventually(lambda: assigned(core) == [2, 3])
    assert (await a.until_held(3)).fields["queueOffset"] == "7"


async def test_an_end_does_not_wait_for_a_hand_over(started, four, a, clock):
    a.other_members = [FIRST, LAST]
    core = await started()
    await clock.advance(10.0)
    a.other_members = [FIRST]
    await notified(core, a)
    await at_once(clock, lambda: pytest.approx(HAND_OVER) in clock.pending)
    await core.shutdown(0.0)
    assert not core.rebalancer.requests


async def test_who_is_alone_waits_for_nobody(started, four, a, clock):
    a.other_members = [LAST]
    core = await started()
    assert assigned(core) == [0, 1]
    await clock.advance(10.0)
    a.other_members = []
    await notified(core, a)
    await at_once(clock, lambda: assigned(core) == [0, 1, 2, 3])


@pytest.mark.behaviour("REB-05")
async def test_all_that_is_lost_is_dropped_before_anything_is_waited_for(started, four, a):
    heard = Heard()
    core = await started(heard)
    for queue_id in range(4):
        a.store("x", queue_id=queue_id)
    await heard.until(4)
    await eventually(lambda: [core.offsets.read_memory(a.queue(n)) for n in range(4)] == [1] * 4)
    queues = [request.process_queue for queue, request in core.rebalancer.requests.items() if queue.topic == "t"]
    stored = asyncio.Event()

    async def slowly(command):
        await stored.wait()
        return response(command, ResponseCode.SUCCESS)

    a.plan(RequestCode.UPDATE_CONSUMER_OFFSET, slowly, slowly)
    a.other_members = [FIRST]
    losing = asyncio.ensure_future(core.rebalance())
    await eventually(lambda: a.requests(RequestCode.UPDATE_CONSUMER_OFFSET))
    assert [pq.dropped for pq in sorted(queues, key=lambda pq: pq.queue)] == [True, True, False, False]
    stored.set()
    assert await losing
    assert assigned(core) == [2, 3]
