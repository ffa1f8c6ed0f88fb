"""What every answer that a listener can give means: right ones, wrong ones, none, an exception."""

from __future__ import annotations

import math
from enum import Enum

import pytest

from rocketstream.consumer.outcomes import (
    MAX_SUSPEND,
    MIN_SUSPEND,
    QueueMove,
    complaint_about,
    failed_messages,
    orderly_outcome,
    suspend_time,
)
from rocketstream.consumer.results import ALL, ConsumeResult, OrderlyResult
from rocketstream.message import ReceivedMessage


class Strange(Enum):
    """Looks like an answer and is none."""

    SUCCESS = "SUCCESS"


MESSAGES = tuple(ReceivedMessage("t", b"x", queue_offset=offset) for offset in range(4))
NO_ANSWERS = [None, True, 1, "SUCCESS", Strange.SUCCESS, object(), ConsumeResult, OrderlyResult]


def failed_offsets(result: object, ack_index: object = ALL) -> list[int]:
    return [message.queue_offset for message in failed_messages(MESSAGES, result, ack_index)]


@pytest.mark.parametrize(
    ("ack_index", "failed"),
    [
        (ALL, []),
        (4, []),
        (3, []),
        (2, [3]),
        (0, [1, 2, 3]),
        (-1, [0, 1, 2, 3]),
        (-2, [0, 1, 2, 3]),
        (-(2**31), [0, 1, 2, 3]),
        (2**63, []),
    ],
)
def test_messages_after_the_acknowledged_one_have_failed(ack_index: int, failed: list[int]):
    assert failed_offsets(ConsumeResult.SUCCESS, ack_index) == failed


@pytest.mark.parametrize("ack_index", [ALL, 3, 1, -1])
@pytest.mark.parametrize("result", [ConsumeResult.RECONSUME_LATER, *NO_ANSWERS, *OrderlyResult])
def test_all_have_failed_unless_the_listener_said_success(result: object, ack_index: int):
    assert failed_offsets(result, ack_index) == [0, 1, 2, 3]


@pytest.mark.parametrize("ack_index", [None, "1", 1.5, math.nan, True, [1]])
def test_an_index_that_is_none_loses_no_message(ack_index: object):
    assert failed_offsets(ConsumeResult.SUCCESS, ack_index) == [0, 1, 2, 3]


@pytest.mark.parametrize("expected", [ConsumeResult, OrderlyResult])
def test_there_is_nothing_to_say_of_an_answer(expected: type[Enum]):
    assert [complaint_about(answer, None, expected) for answer in expected] == [None] * len(expected)


@pytest.mark.parametrize("result", NO_ANSWERS)
def test_what_is_wrong_with_no_answer_is_said_with_what_would_be_right(result: object):
    complaint = complaint_about(result, None, ConsumeResult)
    assert complaint is not None
    assert ("returned nothing" if result is None else f"returned {result!r}") in complaint
    assert "ConsumeResult.SUCCESS, ConsumeResult.RECONSUME_LATER" in complaint


def test_the_answer_of_the_other_kind_of_listener_is_wrong():
    assert complaint_about(OrderlyResult.SUCCESS, None, ConsumeResult) is not None
    assert complaint_about(ConsumeResult.SUCCESS, None, OrderlyResult) is not None


def test_an_exception_is_named():
    assert complaint_about(None, ValueError("seven"), ConsumeResult) == "raised ValueError: seven"
    assert complaint_about(None, SystemExit(3), OrderlyResult) == "raised SystemExit: 3"


@pytest.mark.parametrize(
    ("result", "auto_commit", "move", "pauses", "warns"),
    [
        (OrderlyResult.SUCCESS, True, QueueMove.COMMIT, False, False),
        (OrderlyResult.COMMIT, True, QueueMove.COMMIT, False, True),
        (OrderlyResult.ROLLBACK, True, QueueMove.COMMIT, False, True),
        (OrderlyResult.SUSPEND, True, QueueMove.PUT_BACK, True, False),
        (OrderlyResult.SUCCESS, False, QueueMove.KEEP, False, False),
        (OrderlyResult.COMMIT, False, QueueMove.COMMIT, False, False),
        (OrderlyResult.ROLLBACK, False, QueueMove.ROLLBACK, True, False),
        (OrderlyResult.SUSPEND, False, QueueMove.PUT_BACK, True, False),
    ],
)
def test_what_an_answer_does_to_an_ordered_queue(
    result: OrderlyResult, auto_commit: bool, move: QueueMove, pauses: bool, warns: bool
):
    outcome = orderly_outcome(result, auto_commit)
    assert (outcome.move, outcome.pause, outcome.warning is not None) == (move, pauses, warns)
    if outcome.warning is not None:
        assert result.name in outcome.warning


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("result", [*NO_ANSWERS, *ConsumeResult])
def test_no_answer_suspends_an_ordered_queue(result: object, auto_commit: bool):
    assert orderly_outcome(result, auto_commit) == orderly_outcome(OrderlyResult.SUSPEND, auto_commit)
    assert orderly_outcome(result, auto_commit).move is QueueMove.PUT_BACK


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        (None, 1.0),
        (2.5, 2.5),
        (7, 7),
        (0, MIN_SUSPEND),
        (0.001, MIN_SUSPEND),
        (0.010, 0.010),
        (30.0, 30.0),
        (30.001, MAX_SUSPEND),
        (math.inf, MAX_SUSPEND),
        (-1, 1.0),
        (-0.5, 1.0),
        (math.nan, 1.0),
        (True, 1.0),
        ("5", 1.0),
    ],
)
def test_a_pause_is_what_was_asked_for_within_bounds_or_the_setting(asked: object, seconds: float):
    assert suspend_time(asked, 1.0) == seconds


def test_the_bounds_of_a_pause():
    assert (MIN_SUSPEND, MAX_SUSPEND) == (0.010, 30.0)
