"""The pull service: requests get to their consumers, at once or later, and none is lost to an exception."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rocketstream.clock import ManualClock
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.pull_service import PullService
from rocketstream.message import MessageQueue


class Consumer:
    """Notes when it is to pull what; raises what a test has put into `faults`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.pulled: list[tuple[float, int]] = []
        self.faults: list[Exception] = []

    def pull(self, request: PullRequest) -> None:
        self.pulled.append((round(self._clock.monotonic() - 1000.0, 6), request.queue.queue_id))
        if self.faults:
            raise self.faults.pop(0)


@pytest.fixture
def consumer(clock: ManualClock) -> Consumer:
    return Consumer(clock)


@pytest.fixture
async def service(clock: ManualClock, consumer: Consumer) -> PullService:
    made = PullService(clock, {"g": consumer}.get)
    await made.start()
    return made


def request(queue_id: int = 0, group: str = "g") -> PullRequest:
    queue = MessageQueue("t", "a", queue_id)
    return PullRequest(group, queue, ProcessQueue(queue), 0)


def warnings(caplog: Any) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.behaviour("PULL-01")
async def test_requests_are_carried_out_at_once_or_after_their_delay(service, consumer, clock):
    service.later(request(1), 3.0)
    service.later(request(2), 0.05)
    service.now(request(3))
    assert consumer.pulled == [(0.0, 3)]
    assert repr(service) == "<PullService running, 2 requests waiting>"
    await clock.advance(0.049)
    assert len(consumer.pulled) == 1
    await clock.advance(10.0)
    assert consumer.pulled == [(0.0, 3), (0.05, 2), (3.0, 1)]
    assert repr(service) == "<PullService running, 0 requests waiting>"


@pytest.mark.behaviour("PULL-01")
async def test_an_exception_ends_neither_the_service_nor_the_request(service, consumer, clock, caplog):
    consumer.faults = [ValueError("odd"), KeyError("odder")]
    service.now(request(1))
    service.now(request(2))
    service.now(request(3))
    assert [queue for _, queue in consumer.pulled] == [1, 2, 3]
    assert [text for text in warnings(caplog) if "failed; again in 3 s" in text] == warnings(caplog)
    assert len(warnings(caplog)) == 2
    await clock.advance(2.999)
    assert len(consumer.pulled) == 3
    await clock.advance(0.001)
    assert consumer.pulled[3:] == [(3.0, 1), (3.0, 2)]


@pytest.mark.behaviour("PULL-01")
async def test_an_exception_in_a_delayed_request_does_not_end_it_either(service, consumer, clock):
    consumer.faults = [ValueError("odd")] * 3
    service.later(request(), 1.0)
    await clock.advance(10.0)
    assert consumer.pulled == [(1.0, 0), (4.0, 0), (7.0, 0), (10.0, 0)]


@pytest.mark.behaviour("PULL-01")
async def test_after_the_end_requests_are_dropped_with_a_warning(service, consumer, clock, caplog):
    await service.stop()
    service.later(request(1), 1.0)
    service.now(request(2))
    await clock.advance(10.0)
    assert consumer.pulled == []
    assert len(warnings(caplog)) == 2
    for text, queue_id in zip(warnings(caplog), (1, 2), strict=True):
        assert "the pull service is stopped" in text
        assert f"t@a:{queue_id} next 0" in text
        assert text.endswith("is dropped")
    assert repr(service) == "<PullService stopped, 0 requests waiting>"


@pytest.mark.behaviour("PULL-01")
async def test_what_waits_at_the_end_is_dropped(service, consumer, clock):
    service.later(request(), 1.0)
    await service.stop()
    assert clock.pending == []
    await clock.advance(10.0)
    assert consumer.pulled == []


@pytest.mark.behaviour("PULL-01")
async def test_a_request_of_a_group_without_a_consumer_is_dropped_with_a_warning(service, consumer, clock, caplog):
    service.now(request(1, "gone"))
    service.later(request(2, "gone"), 1.0)
    await clock.advance(10.0)
    assert consumer.pulled == []
    assert clock.pending == []
    assert len(warnings(caplog)) == 2
    for text in warnings(caplog):
        assert "no consumer of group gone" in text
        assert text.endswith("is dropped")


async def test_a_request_that_waits_can_be_hurried_and_comes_once(service, consumer, clock):
    one = request(1)
    service.later(one, 3.0)
    await clock.advance(1.0)
    service.hurry(one)
    assert consumer.pulled == [(1.0, 1)]
    await clock.advance(10.0)
    assert len(consumer.pulled) == 1


async def test_a_request_that_does_not_wait_cannot_be_hurried(service, consumer, clock):
    one = request(1)
    service.hurry(one)
    assert consumer.pulled == []
    service.later(one, 1.0)
    await clock.advance(1.0)
    service.hurry(one)
    assert len(consumer.pulled) == 1
