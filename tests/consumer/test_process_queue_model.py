"""The process queue in any order of calls, and from two threads at once, against a model that is plainly right."""

from __future__ import annotations

import random
import sys
import threading
from queue import SimpleQueue

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rocketstream.consumer import process_queue
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.message import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("orders", "broker-a", 3)


def message(offset: int, size: int = 10) -> ReceivedMessage:
    return ReceivedMessage("orders", b"x" * size, queue_offset=offset)


def messages(*offsets: int) -> list[ReceivedMessage]:
    return [message(offset) for offset in offsets]


def offsets_of(given: list[ReceivedMessage]) -> list[int]:
    return [each.queue_offset for each in given]


# --- against a model ------------------------------------------------------------------------------------------------


class AgainstModel(RuleBasedStateMachine):
    """Any order of calls: the queue is what two sorted dicts are."""

    @initialize()
    def begin(self):
        self.pq = ProcessQueue(QUEUE)
        self.cached: dict[int, ReceivedMessage] = {}
        self.taken: dict[int, ReceivedMessage] = {}
        self.consuming = False
        self.backlog = 0
        self.highest = -1
        self.next = 20

    def _put(self, batch, max_offset):
        if not self.cached and not self.taken:
            self.highest = -1
        for each in batch:
            offset = each.queue_offset
            if offset not in self.cached and offset not in self.taken:
                self.cached[offset] = each
                self.highest = max(self.highest, offset)
        if batch and max_offset is not None and max_offset > batch[-1].queue_offset:
            self.backlog = max_offset - batch[-1].queue_offset
        dispatch = bool(self.cached) and not self.consuming
        self.consuming = self.consuming or dispatch
        assert self.pq.put(batch, max_offset) is dispatch

    @rule(gaps=st.lists(st.integers(1, 3), max_size=8), size=st.integers(0, 9), ahead=st.none() | st.integers(-1, 5))
    def put_in_order(self, gaps, size, ahead):
        batch = []
        for gap in gaps:
            self.next += gap
            batch.append(message(self.next, size))
        self._put(batch, None if ahead is None else self.next + ahead)

    @rule(batch=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=6), max_offset=st.integers(0, 50))
    def put_anything(self, batch, max_offset):
        self._put([message(offset, size) for offset, size in batch], max_offset)
        self.next = max(self.next, *(offset for offset, _ in batch), 0)

    @rule(n=st.integers(1, 5), now=st.floats(0, 100))
    def take(self, n, now):
        expected = sorted(self.cached)[:n]
        taken = self.pq.take(n, now)
        assert offsets_of(taken) == expected
        assert all(each is self.cached[each.queue_offset] for each in taken)
        for offset in expected:
            self.taken[offset] = self.cached.pop(offset)
        self.consuming = self.consuming and bool(expected)
        assert self.pq.last_consume_at == now

    @rule()
    def commit(self):
        assert self.pq.commit() == (max(self.taken) + 1 if self.taken else -1)
        self.taken.clear()

    @rule()
    def rollback(self):
        self.pq.rollback()
        self.cached |= self.taken
        self.taken.clear()

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def consume_again(self, data):
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.taken)), unique=True))
        self.pq.consume_again([self.taken[offset] for offset in chosen])
        for offset in chosen:
            self.cached[offset] = self.taken.pop(offset)

    @rule(data=st.data())
    def remove(self, data):
        held = st.sampled_from(sorted(self.cached)) if self.cached else st.nothing()
        chosen = data.draw(st.lists(held | st.integers(0, 40), max_size=4))
        expected = -1
        if self.cached:
            for offset in chosen:
                self.cached.pop(offset, None)
            expected = min(self.cached) if self.cached else self.highest + 1
        assert self.pq.remove(messages(*chosen)) == expected

    @rule(n=st.integers(1, 8), from_end=st.booleans())
    def remove_many(self, n, from_end):
        for offset in sorted(self.cached, reverse=from_end)[:n]:
            del self.cached[offset]
            expected = min(self.cached) if self.cached else self.highest + 1
            assert self.pq.remove(messages(offset)) == expected

    @rule()
    def clear(self):
        self.pq.clear()
        self.cached.clear()
        self.taken.clear()

    @rule()
    def ask_for_the_first(self):
        assert self.pq.first_offset == min(self.cached, default=None)

    @rule()
    def ask_for_the_last(self):
        assert self.pq.last_offset == max(self.cached, default=None)

    @rule()
    def ask_for_the_span(self):
        assert self.pq.span == (max(self.cached) - min(self.cached) if self.cached else 0)

    # Asked as rules above, not here: an answer tidies up, and every path must be met untidied too.
    @invariant()
    def is_exact(self):
        pq = self.pq
        everything = [*self.cached.values(), *self.taken.values()]
        assert pq.count == len(everything)
        assert pq.size == sum(each.body_size for each in everything)
        assert pq.taken_offsets == sorted(self.taken)
        assert (pq.consuming, pq.backlog) == (self.consuming, self.backlog)
        entries = len(pq._order) + len(pq._late) + len(pq._late_from_end)
        assert entries <= 2 * pq.count + process_queue._SLACK + 64, "what is gone is forgotten"

    def teardown(self):
        if hasattr(self, "pq"):
            assert offsets_of(self.pq.take(10_000, 0.0)) == sorted(self.cached)


@pytest.mark.behaviour("PQ-01", "PQ-02", "PQ-03", "PQ-04", "PQ-05", "PQ-06", "PQ-07")
@pytest.mark.parametrize("slack", [0, 256])
@pytest.mark.slow(10, "compares many generated histories")
def test_any_order_of_calls_is_as_the_model_says(slack, monkeypatch):
    # Without slack the order is made anew all the time.
    monkeypatch.setattr(process_queue, "_SLACK", slack)
    run_state_machine_as_test(AgainstModel, settings=settings(max_examples=150, stateful_step_count=40, deadline=None))


# --- two threads ----------------------------------------------------------------------------------------------------


@pytest.fixture
def eager_switching():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.behaviour("PQ-01", "PQ-02")
@pytest.mark.parametrize("seed", range(3))
def test_put_on_one_thread_and_take_and_commit_on_another(seed, eager_switching):
    pq = ProcessQueue(QUEUE)
    dispatched: SimpleQueue[bool] = SimpleQueue()
    consumed: list[int] = []
    failures: list[BaseException] = []

    def consume():
        chance = random.Random(seed)
        try:
            # Nobody dispatches while this one has the queue, so each dispatch is a round to its end.
            while dispatched.get():
                while taken := pq.take(chance.randrange(1, 5), 0.0):
                    action = chance.random()
                    if action < 0.1:
                        pq.rollback()
                    elif action < 0.2:
                        pq.consume_again(taken)
                    else:
                        consumed.extend(offsets_of(taken))
                        assert pq.commit() == taken[-1].queue_offset + 1
        except BaseException as error:
            failures.append(error)

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    total = 20_000
    try:
        for start in range(0, total, 8):
            if pq.put([message(offset, size=offset % 7) for offset in range(start, start + 8)], total):
                dispatched.put(True)
            assert 0 <= pq.span <= total
            assert pq.count >= 0
    finally:
        dispatched.put(False)
        consumer.join()
    assert not failures
    assert consumed == list(range(total)), "all, once, in order"
    assert (pq.count, pq.size, pq.first_offset) == (0, 0, None)
