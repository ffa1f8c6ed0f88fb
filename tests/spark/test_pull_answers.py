from __future__ import annotations

import struct

import pytest

from rocketstream.remoting.replies import PullResult
from rocketstream.spark.pull_answers import first_offset, next_ask, next_step
from rocketstream.wire.codes import PullStatus


def body(offset: int) -> bytes:
    return bytes(20) + struct.pack(">q", offset) + bytes(80)


def answer(
    status: PullStatus, next_offset: int, first: int | None = None, low: int = 0, high: int = 1000
) -> PullResult:
    return PullResult(status, next_offset, low, high, 0, b"" if first is None else body(first))


def test_messages_are_taken_and_the_next_offset_follows() -> None:
    step = next_step(10, 100, answer(PullStatus.FOUND, 42, first=10), filtered=False)
    assert (step.next_offset, step.take, step.lost) == (42, True, None)


def test_an_inner_batch_that_begins_before_is_taken() -> None:
    step = next_step(10, 100, answer(PullStatus.FOUND, 20, first=8), filtered=False)
    assert (step.next_offset, step.take, step.lost) == (20, True, None)


def test_a_gap_before_the_first_message_is_what_retention_took() -> None:
    step = next_step(10, 100, answer(PullStatus.FOUND, 62, first=30), filtered=False)
    assert (step.next_offset, step.take, step.lost) == (62, True, (10, 30))


def test_a_gap_is_normal_where_a_filter_makes_it() -> None:
    step = next_step(10, 100, answer(PullStatus.FOUND, 62, first=30), filtered=True)
    assert (step.next_offset, step.take, step.lost) == (62, True, None)


def test_messages_beyond_the_end_are_not_taken() -> None:
    step = next_step(10, 100, answer(PullStatus.FOUND, 300, first=200), filtered=True)
    assert (step.next_offset, step.take, step.lost) == (300, False, None)
    step = next_step(10, 100, answer(PullStatus.FOUND, 300, first=200), filtered=False)
    assert (step.next_offset, step.take, step.lost) == (300, False, (10, 100))


@pytest.mark.parametrize(("filtered", "lost"), [(True, None), (False, (10, 50))])
def test_nothing_that_matches_is_a_gap_or_a_loss(filtered: bool, lost: tuple[int, int] | None) -> None:
    step = next_step(10, 100, answer(PullStatus.NO_MATCHED_MSG, 50), filtered=filtered)
    assert (step.next_offset, step.take, step.lost) == (50, False, lost)


def test_an_offset_that_is_gone_is_a_loss_up_to_what_is_left() -> None:
    step = next_step(10, 100, answer(PullStatus.OFFSET_ILLEGAL, 50, low=50), filtered=True)
    assert (step.next_offset, step.take, step.lost) == (50, False, (10, 50))
    step = next_step(10, 100, answer(PullStatus.OFFSET_ILLEGAL, 500, low=500), filtered=False)
    assert (step.next_offset, step.take, step.lost) == (500, False, (10, 100))


@pytest.mark.parametrize(
    "odd",
    [
        answer(PullStatus.FOUND, 10, first=10),
        answer(PullStatus.FOUND, 5, first=10),
        answer(PullStatus.NO_MATCHED_MSG, 10),
        answer(PullStatus.NO_NEW_MSG, 10, high=10),
        answer(PullStatus.OFFSET_ILLEGAL, 4, high=4),
        answer(PullStatus.OFFSET_ILLEGAL, 0, high=0),
    ],
)
def test_what_a_recovering_broker_says_is_asked_again(odd: PullResult) -> None:
    step = next_step(10, 100, odd, filtered=False)
    assert (step.next_offset, step.take, step.lost) == (10, False, None)
    assert step.why


def test_the_first_offset_of_an_answer() -> None:
    assert first_offset(body(77)) == 77
    assert first_offset(b"short") is None


def test_a_broker_that_gives_little_is_asked_for_little() -> None:
    assert next_ask(4096, 32, 4096, 4096) == 64
    assert next_ask(64, 32, 64, 4096) == 64
    assert next_ask(64, 64, 64, 4096) == 128
    assert next_ask(4096, 4096, 4096, 4096) == 4096
    assert next_ask(10, 10, 64, 4096) == 64, "the end of a range says nothing of the broker"
    assert next_ask(20, 5, 20, 20) == 20, "never more than the user wants"
