"""Where a consumer begins: a stored offset, a place that the start position names, or nowhere. Never a guess."""

from __future__ import annotations

import pytest

from rocketstream.consumer.offset_store import OffsetStore, ReadFrom
from rocketstream.consumer.start_from import StartFrom
from rocketstream.consumer.start_offset import Ask, Place, decide_start, start_offset
from rocketstream.errors import BrokerError, ConnectError, OffsetStoreError, OffsetUnknownError
from rocketstream.message import MessageQueue

QUEUE = MessageQueue("orders", "a", 3)
RETRY = MessageQueue("%RETRY%g", "a", 0)
MOMENT = 1_700_000_000_000
STARTS = [StartFrom.LAST, StartFrom.FIRST, StartFrom.at(MOMENT)]


class Store(OffsetStore):
    """Says one thing, or raises it."""

    def __init__(self, says: int | BaseException) -> None:
        self.says = says

    async def read(self, queue: MessageQueue, where: ReadFrom) -> int:
        assert where is ReadFrom.STORE, "another member may have gone on since this one last knew"
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says

    async def load(self) -> None: ...
    def update(self, queue, offset, *, increase_only): ...
    def read_memory(self, queue): ...
    async def persist_all(self, queues): ...
    async def persist(self, queue): ...
    def remove(self, queue): ...
    def snapshot(self, topic=None): ...
    def reset(self, queue, offset): ...


class Broker:
    """Knows its queue, or raises; notes what it was asked."""

    def __init__(self, fault: BaseException | None = None, least: int = 100) -> None:
        self.fault = fault
        self.least = least
        self.asked: list[object] = []

    async def max_offset(self, queue: MessageQueue) -> int:
        return self._answer("max", self.least + 100)

    async def min_offset(self, queue: MessageQueue) -> int:
        return self._answer("min", self.least)

    async def search(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return self._answer(timestamp_ms, self.least + 50)

    def _answer(self, question: object, offset: int) -> int:
        self.asked.append(question)
        if self.fault is not None:
            raise self.fault
        return offset


@pytest.mark.behaviour("REB-06")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("queue", [QUEUE, RETRY])
@pytest.mark.parametrize("stored", [0, 1, 2**62])
async def test_a_stored_offset_wins(start, queue, stored):
    broker = Broker()
    assert await start_offset(queue, Store(stored), start, broker) == stored
    assert broker.asked == []


@pytest.mark.behaviour("REB-06")
@pytest.mark.parametrize(
    ("start", "queue", "offset", "asked"),
    [
        (StartFrom.LAST, QUEUE, 200, ["max"]),
        (StartFrom.LAST, RETRY, 0, []),
        (StartFrom.FIRST, QUEUE, 100, ["min"]),
        (StartFrom.FIRST, RETRY, 0, []),
        (StartFrom.at(MOMENT), QUEUE, 150, [MOMENT]),
        (StartFrom.at(MOMENT), RETRY, 200, ["max"]),
    ],
)
async def test_without_a_stored_offset_the_start_position_decides(start, queue, offset, asked):
    broker = Broker()
    assert await start_offset(queue, Store(-1), start, broker) == offset
    assert broker.asked == asked


@pytest.mark.behaviour("REB-06")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("queue", [QUEUE, RETRY])
@pytest.mark.parametrize("fault", [OffsetStoreError("no answer"), OSError("no answer"), KeyError("no answer"), -2, -3])
async def test_a_store_that_cannot_be_read_is_no_reason_to_guess(start, queue, fault):
    broker = Broker()
    with pytest.raises(OffsetUnknownError, match="where to begin in queue") as caught:
        await start_offset(queue, Store(fault), start, broker)
    assert caught.value.queue == queue
    assert broker.asked == []


@pytest.mark.behaviour("REB-06")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("fault", [ConnectError("10.0.0.1:10911", "refused"), BrokerError("a", 1, "busy"), OSError()])
async def test_a_broker_that_does_not_answer_is_no_reason_to_guess(start, fault):
    with pytest.raises(OffsetUnknownError) as caught:
        await start_offset(QUEUE, Store(-1), start, Broker(fault))
    assert caught.value.__cause__ is fault
    assert "queue 3 of topic 'orders' on broker 'a'" in str(caught.value)
    assert caught.value.why == (str(fault) or "OSError")


@pytest.mark.behaviour("REB-06")
@pytest.mark.parametrize("start", STARTS)
async def test_an_answer_that_is_no_offset_is_no_reason_to_guess(start):
    with pytest.raises(OffsetUnknownError, match="the broker says -"):
        await start_offset(QUEUE, Store(-1), start, Broker(least=-201))


def test_the_decision_itself_asks_nobody():
    assert decide_start(7, StartFrom.LAST, is_retry=False) == 7
    assert decide_start(-1, StartFrom.LAST, is_retry=False) == Ask(Place.MAX)
    assert decide_start(-1, StartFrom.FIRST, is_retry=False) == Ask(Place.MIN)
    assert decide_start(-1, StartFrom.at(MOMENT), is_retry=False) == Ask(Place.TIME, MOMENT)
    with pytest.raises(ValueError, match="-2"):
        decide_start(-2, StartFrom.LAST, is_retry=False)
