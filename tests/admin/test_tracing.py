"""The life of a message, put together from what many clients told."""

from __future__ import annotations

from rocketstream.admin.tracing import steps_of
from rocketstream.wire.trace import (
    ConsumeBeginTrace,
    ConsumeEndTrace,
    ConsumeReturn,
    EndTransactionTrace,
    PublishTrace,
    RecallTrace,
    TracedMessageType,
)


def sent(message_id: str = "ID", at: int = 10, **others) -> PublishTrace:
    values = {
        "timestamp": at,
        "region": "r",
        "group": "p",
        "topic": "orders",
        "message_id": message_id,
        "tags": None,
        "keys": None,
        "store_host": "s",
        "body_length": 1,
        "cost_ms": 3,
        "message_type": TracedMessageType.DELAY,
        "offset_message_id": None,
        "success": True,
    }
    return PublishTrace(**{**values, **others})


def began(request: str, at: int, retry: int = 0) -> ConsumeBeginTrace:
    return ConsumeBeginTrace(at, "r", "g", request, "ID", retry, None)


def ended(request: str, at: int | None, returned: ConsumeReturn = ConsumeReturn.SUCCESS) -> ConsumeEndTrace:
    return ConsumeEndTrace(request, "ID", 7, returned is ConsumeReturn.SUCCESS, None, returned, at, "g")


def test_a_consumption_that_is_told_twice_is_one_step_and_steps_are_in_order():
    told = [
        (ended("q2", 60), "c2"),
        (began("q2", 50, retry=1), "c2"),
        (began("q1", 20), "c1"),
        (ended("q1", 30, ConsumeReturn.EXCEPTION), "c1"),
        (sent(), "p1"),
        (sent("OTHER"), "p1"),
    ]
    steps = steps_of("ID", told)
    assert [(step.what, step.timestamp, step.client, step.success, step.cost_ms, step.detail) for step in steps] == [
        ("sent", 10, "p1", True, 3, "delay"),
        ("consumed", 20, "c1", False, 7, "exception"),
        ("consumed", 50, "c2", True, 7, "retry 1, success"),
    ]
    assert (steps[0].group, steps[0].topic, steps[1].group) == ("p", "orders", "g")


def test_what_is_half_told_is_half_a_step():
    (only_begun,) = steps_of("ID", [(began("q", 20), "c")])
    assert (only_begun.success, only_begun.cost_ms, only_begun.detail) == (None, None, "not ended, as far as is told")
    (only_ended,) = steps_of("ID", [(ended("q", None), "c")])
    assert (only_ended.success, only_ended.timestamp, only_ended.group, only_ended.client) == (True, None, "g", "c")
    assert steps_of("ID", []) == []


def test_transactions_and_recalls_are_steps_too():
    end = EndTransactionTrace(5, "r", "p", "orders", "ID", None, None, "s", "T", "COMMIT_MESSAGE", True)
    steps = steps_of("ID", [(RecallTrace(9, "r", "p", "orders", "ID", False), "c"), (end, "c")])
    assert [(step.what, step.success, step.detail) for step in steps] == [
        ("transaction", True, "COMMIT_MESSAGE, asked by the broker"),
        ("recalled", False, None),
    ]
