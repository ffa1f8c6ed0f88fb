"""When queues are shared out: the rhythm of the rebalance service, with consumers that only count."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from rocketstream.clock import ManualClock
from rocketstream.consumer.rebalance_service import RebalanceService

pytestmark = pytest.mark.behaviour("REB-01")


class Consumer:
    """Notes when it was asked, and answers as it is told; balanced if it is told nothing."""

    def __init__(self, clock: ManualClock, group: str = "g") -> None:
        self.group = group
        self.clock = clock
        self.asked_at: list[float] = []
        self.answers: deque[bool | Exception | asyncio.Future[bool]] = deque()

    async def rebalance(self) -> bool:
        self.asked_at.append(self.clock.monotonic())
        answer = self.answers.popleft() if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return await answer if isinstance(answer, asyncio.Future) else answer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=0.0)


@pytest.fixture
def consumer(clock):
    return Consumer(clock)


@pytest.fixture
async def service(clock, consumer):
    service = RebalanceService(clock, 20.0, lambda: [consumer])
    await service.start()
    yield service
    await service.stop()
    assert clock.pending == []


async def test_each_20_seconds_though_nobody_says_anything(service, consumer, clock):
    await clock.advance(19.9)
    assert consumer.asked_at == []
    await clock.advance(40.1)
    assert consumer.asked_at == [20.0, 40.0, 60.0]


async def test_at_once_when_it_is_woken_and_20_seconds_from_then(service, consumer, clock):
    await clock.advance(5.0)
    service.wake()
    await clock.advance(0.0)
    assert consumer.asked_at == [5.0]
    await clock.advance(20.0)
    assert consumer.asked_at == [5.0, 25.0]


async def test_never_twice_within_a_second_and_many_calls_are_one(service, consumer, clock):
    for _ in range(3):
        service.wake()
    await clock.advance(0.25)
    assert consumer.asked_at == [0.0]
    for _ in range(3):
        service.wake()
    await clock.advance(0.5)
    service.wake()
    assert consumer.asked_at == [0.0]
    await clock.advance(0.25)
    assert consumer.asked_at == [0.0, 1.0]
    await clock.advance(19.0)
    assert consumer.asked_at == [0.0, 1.0]


async def test_again_after_a_second_until_the_result_is_balanced(service, consumer, clock):
    consumer.answers.extend([False, False, True])
    await clock.advance(45.0)
    assert consumer.asked_at == [20.0, 21.0, 22.0, 42.0]


async def test_a_pass_that_raises_is_logged_and_comes_again_after_a_second(service, consumer, clock, caplog):
    consumer.answers.append(RuntimeError("no idea"))
    await clock.advance(21.0)
    assert consumer.asked_at == [20.0, 21.0]
    assert "the queues of group g could not be shared out" in caplog.text
    assert "no idea" in caplog.text


async def test_a_call_during_a_pass_brings_another_for_the_pass_may_have_read_old_things(service, consumer, clock):
    under_way = asyncio.get_running_loop().create_future()
    consumer.answers.append(under_way)
    service.wake()
    await clock.advance(3.0)
    service.wake()
    service.wake()
    await clock.advance(30.0)
    assert consumer.asked_at == [0.0], "one pass at a time"
    assert repr(service) == "<RebalanceService rebalancing, 1 passes>"
    under_way.set_result(True)
    await clock.advance(0.999)
    assert consumer.asked_at == [0.0]
    await clock.advance(0.001)
    assert consumer.asked_at == [0.0, 34.0], "a second after the end of the one before"
    await clock.advance(19.0)
    assert consumer.asked_at == [0.0, 34.0]


async def test_nothing_after_the_end_and_the_pass_under_way_is_ended(service, consumer, clock):
    under_way = asyncio.get_running_loop().create_future()
    consumer.answers.append(under_way)
    service.wake()
    await clock.advance(0.0)
    await service.stop()
    assert under_way.cancelled()
    service.wake()
    await clock.advance(100.0)
    assert consumer.asked_at == [0.0]
    assert repr(service) == "<RebalanceService stopped, 1 passes>"
    assert clock.pending == []


@pytest.mark.behaviour("REB-02")
async def test_one_pass_covers_every_consumer_whatever_one_of_them_does(clock, caplog):
    consumers = [Consumer(clock, "one"), Consumer(clock, "two"), Consumer(clock, "three")]
    consumers[0].answers.append(RuntimeError("broken"))
    consumers[1].answers.append(False)
    service = RebalanceService(clock, 20.0, lambda: consumers)
    await service.start()
    assert repr(service) == "<RebalanceService next in 20 s, 0 passes>"
    await clock.advance(20.0)
    assert [one.asked_at for one in consumers] == [[20.0], [20.0], [20.0]]
    assert "the queues of group one could not be shared out" in caplog.text
    await clock.advance(1.0)
    assert [one.asked_at for one in consumers] == [[20.0, 21.0]] * 3, "one that is not balanced is enough"
    await clock.advance(19.9)
    assert service.passes == 2
    await service.stop()
