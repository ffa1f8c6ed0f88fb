from __future__ import annotations

import pytest

from rocketstream.broker.locks import Locks
from rocketstream.broker.settings import BrokerSettings
from rocketstream.clock import ManualClock
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rocketstream.wire.codes import RequestCode
from tests.broker.parts import Parts, request, succeed

A = MessageQueue("t", "broker-a", 0)
B = MessageQueue("t", "broker-a", 1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def locks(clock: ManualClock) -> Locks:
    return Locks(settings=BrokerSettings(), clock=clock)


def test_only_one_client_of_a_group_holds_a_queue(locks):
    assert locks.lock("g", [A], "one") == {A}
    assert locks.lock("g", [A, B], "two") == {B}
    assert locks.lock("g", [A, B], "one") == {A}


def test_groups_do_not_disturb_one_another(locks):
    assert locks.lock("g", [A], "one") == {A}
    assert locks.lock("h", [A], "two") == {A}


async def test_a_lock_that_is_not_renewed_is_anybodys_after_a_minute(locks, clock):
    locks.lock("g", [A], "one")
    await clock.advance(60.0)
    assert locks.lock("g", [A], "two") == set(), "not before the minute is over"
    await clock.advance(0.001)
    assert locks.all_expired("g")
    assert locks.lock("g", [A], "two") == {A}
    assert locks.lock("g", [A], "one") == set()


async def test_asking_again_renews(locks, clock):
    locks.lock("g", [A], "one")
    await clock.advance(50.0)
    assert locks.lock("g", [A], "one") == {A}
    await clock.advance(50.0)
    assert locks.lock("g", [A], "two") == set()
    assert not locks.all_expired("g")


def test_only_the_holder_gives_a_queue_back(locks):
    locks.lock("g", [A], "one")
    locks.unlock("g", [A, B], "two")
    assert locks.lock("g", [A], "two") == set()
    locks.unlock("g", [A, B], "one")
    assert locks.lock("g", [A], "two") == {A}
    locks.unlock("nobody", [A], "one")


async def test_over_the_wire(locks):
    connection = Parts().connect()
    wanted = LockBatchRequestBody(consumer_group="g", client_id="one", mq_set=frozenset({A, B})).encode()
    answer = await succeed(locks, connection, request(RequestCode.LOCK_BATCH_MQ, body=wanted))
    assert LockBatchResponseBody.decode(answer.body).lock_ok_mq_set == {A, B}
    back = UnlockBatchRequestBody(consumer_group="g", client_id="one", mq_set=frozenset({A})).encode()
    await succeed(locks, connection, request(RequestCode.UNLOCK_BATCH_MQ, body=back))
    assert locks.lock("g", [A, B], "two") == {A}
    assert repr(locks) == "<Locks 2 of 1 groups>"
