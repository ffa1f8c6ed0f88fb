"""The brokers' locks: one request per broker, and no answer is no lock."""

from __future__ import annotations

import asyncio

import pytest

from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import response
from tests.consumer.peers import GROUP, TOPIC, request_of
from tests.producer.peers import CUT
from tests.scripted import eventually


@pytest.fixture
def two_brokers(name_server, a, b) -> None:
    name_server.set_route(TOPIC, {"a": {0: a.address}, "b": {0: b.address}}, queues=2)


@pytest.mark.behaviour("ORD-01")
@pytest.mark.usefixtures("two_brokers")
async def test_all_owned_queues_are_locked_each_20_s_first_after_1_s(started, clock, a, b):
    core = await started(orderly=True)
    for broker in (a, b):
        broker.lock_requests.clear()
    await clock.advance(0.999)
    assert a.lock_requests == b.lock_requests == []
    for seconds in (0.001, 20, 20):
        if seconds > 1:
            await clock.advance(seconds - 0.001)
            assert a.lock_requests == b.lock_requests == []
            seconds = 0.001
        await clock.advance(seconds)
        await eventually(lambda: len(a.lock_requests) == len(b.lock_requests) == 1)
        for broker in (a, b):
            asked = broker.lock_requests.pop()
            assert (asked.consumer_group, asked.client_id) == (GROUP, core.client_id)
            assert asked.mq_set == {broker.queue(0), broker.queue(1)}
            queues = [request_of(core, broker.queue(n)).process_queue for n in (0, 1)]
            await eventually(lambda: all(pq.locked_at == clock.monotonic() for pq in queues))  # noqa: B023
            assert all(pq.locked for pq in queues)


@pytest.mark.behaviour("ORD-01")
@pytest.mark.usefixtures("two_brokers")
async def test_what_is_refused_is_unlocked_with_a_warning_until_it_is_granted_again(started, clock, a, b, caplog):
    core = await started(orderly=True)
    won_at = clock.monotonic()
    a.locks[a.queue(1)] = "another"
    await clock.advance(1)
    refused, others = request_of(core, a.queue(1)).process_queue, [a.queue(0), b.queue(0), b.queue(1)]
    await eventually(lambda: not refused.locked)
    await eventually(lambda: all(request_of(core, q).process_queue.locked_at == won_at + 1 for q in others))
    assert all(request_of(core, queue).process_queue.locked for queue in others)
    assert refused.locked_at == won_at
    (warning,) = [record for record in caplog.records if "was refused" in record.getMessage()]
    assert (warning.levelname, f"the lock of {a.queue(1)} was refused" in warning.getMessage()) == ("WARNING", True)
    del a.locks[a.queue(1)]
    await clock.advance(20)
    await eventually(lambda: refused.locked)
    assert refused.locked_at == clock.monotonic()


@pytest.mark.usefixtures("two_brokers")
@pytest.mark.parametrize(
    "outcome",
    [
        (ResponseCode.SYSTEM_ERROR, "no"),
        CUT,
        lambda command: response(command, ResponseCode.SUCCESS, body=b"not json"),
        lambda command: response(command, ResponseCode.SUCCESS, body=b'{"lockOKMQSet":5}'),
        lambda command: response(command, ResponseCode.SUCCESS, body=b""),
    ],
    ids=["error", "cut", "garbage", "other json", "nothing"],
)
async def test_no_answer_of_a_broker_is_no_lock_and_the_others_are_locked(started, a, b, outcome):
    core = await started(orderly=True)
    a.plan(RequestCode.LOCK_BATCH_MQ, outcome)
    mine = [a.queue(0), a.queue(1), b.queue(0), b.queue(1)]
    assert await core.locks.lock(mine) == {b.queue(0), b.queue(1)}
    assert await core.locks.lock(mine) == set(mine)


async def test_nothing_is_locked_that_was_not_asked_for(started, a):
    core = await started(orderly=True)
    a.plan(
        RequestCode.LOCK_BATCH_MQ,
        lambda command: response(
            command,
            ResponseCode.SUCCESS,
            body=b'{"lockOKMQSet":[{"brokerName":"a","queueId":0,"topic":"t"},'
            b'{"brokerName":"a","queueId":9,"topic":"t"}]}',
        ),
    )
    assert await core.locks.lock([a.queue(0)]) == {a.queue(0)}


async def test_queues_of_an_unknown_broker_are_not_locked(started, a, caplog):
    core = await started(orderly=True)
    nowhere = MessageQueue(TOPIC, "nowhere", 0)
    assert await core.locks.lock([nowhere, a.queue(0)]) == {a.queue(0)}
    assert "broker nowhere could not be locked" in caplog.text
    await core.locks.unlock([nowhere, a.queue(0)])
    assert "broker nowhere were not unlocked" in caplog.text
    assert a.locks == {}


async def test_lost_queues_are_not_locked_again(started, a):
    core = await started(orderly=True)
    a.lock_requests.clear()
    lost = ProcessQueue(a.queue(0))
    lost.drop()
    await core.locks.lock_again([lost])
    assert (a.lock_requests, lost.locked) == ([], False)


class LateAnswer:
    """A handler that answers when it is told to; `asked` is set before."""

    def __init__(self, handler) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self._handler = handler

    async def __call__(self, command):
        self.asked.set()
        await self.go_on.wait()
        return self._handler(command)


@pytest.mark.parametrize("cancelled", [False, True], ids=["renewed", "cancelled"])
@pytest.mark.usefixtures("two_brokers")
async def test_a_lock_is_given_back_when_the_request_for_it_has_been_answered(started, a, cancelled):
    """A broker might do the two in the other order, and hold a lock that nobody wants."""
    core = await started(orderly=True)
    late = LateAnswer(a._lock)
    a.plan(RequestCode.LOCK_BATCH_MQ, late)
    pq = request_of(core, a.queue(0)).process_queue
    renewing = asyncio.ensure_future(core.locks.lock_again([pq]))
    await late.asked.wait()
    if cancelled:  # as by the end of a consumer
        renewing.cancel()
        await asyncio.wait([renewing])
    pq.drop()
    giving_back = asyncio.ensure_future(core.locks.unlock([a.queue(0)]))
    await core.locks.unlock([a.queue(1)])  # others need not wait
    assert [request.mq_set for request in a.unlock_requests] == [{a.queue(1)}]
    late.go_on.set()
    await giving_back
    assert [request.mq_set for request in a.unlock_requests] == [{a.queue(1)}, {a.queue(0)}]
    assert a.locks == {}


async def test_a_lock_is_asked_for_when_it_has_been_given_back(started, a):
    core = await started(orderly=True)
    late = LateAnswer(a._unlock)
    a.plan(RequestCode.UNLOCK_BATCH_MQ, late)
    a.lock_requests.clear()
    lost, regained = (ProcessQueue(a.queue(0)) for _ in range(2))
    giving_back = asyncio.ensure_future(core.locks.unlock([a.queue(0)]))
    await late.asked.wait()
    renewing = [asyncio.ensure_future(core.locks.lock_again([pq])) for pq in (lost, regained)]
    await core.locks.unlock([a.queue(9)])
    assert a.lock_requests == []
    lost.drop()
    late.go_on.set()
    await asyncio.gather(giving_back, *renewing)
    assert len(a.lock_requests) == 1, "that of the lost one was not asked for"
    assert (lost.locked, regained.locked) == (False, True)
    assert a.locks == {a.queue(0): core.client_id}


@pytest.mark.usefixtures("two_brokers")
async def test_locks_are_given_back_in_one_request_per_broker(started, a, b):
    core = await started(orderly=True)
    await core.locks.unlock([a.queue(0), a.queue(1), b.queue(1)])
    assert [request.mq_set for request in a.unlock_requests] == [{a.queue(0), a.queue(1)}]
    assert [request.mq_set for request in b.unlock_requests] == [{b.queue(1)}]
    assert {request.client_id for request in a.unlock_requests} == {core.client_id}
    assert {request.consumer_group for request in a.unlock_requests} == {GROUP}


@pytest.mark.usefixtures("two_brokers")
async def test_a_broker_that_does_not_unlock_keeps_nobody_else_from_it(started, a, b, caplog):
    core = await started(orderly=True)
    a.plan(RequestCode.UNLOCK_BATCH_MQ, (ResponseCode.SYSTEM_ERROR, "no"))
    await core.locks.unlock([a.queue(0), b.queue(0)])
    assert "1 queues of broker a were not unlocked" in caplog.text
    assert b.queue(0) not in b.locks
