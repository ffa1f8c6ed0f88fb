"""Check points of popped messages, as Java makes them."""

from __future__ import annotations

import pytest

from rocketstream.errors import ProtocolError
from rocketstream.message import ReceivedMessage
from rocketstream.wire.check_point import CheckPoint, set_check_points
from rocketstream.wire.headers.pop import PopMessageResponseHeader

POP_CK, FIRST = "POP_CK", "1ST_POP_TIME"


def message(queue_id: int, offset: int, topic: str = "t", **properties: str) -> ReceivedMessage:
    return ReceivedMessage(topic, b"", queue_id=queue_id, queue_offset=offset, properties=properties)


def lease(start: str | None, offsets: str | None, counts: str | None = None) -> PopMessageResponseHeader:
    return PopMessageResponseHeader(
        pop_time=1000,
        invisible_time=60,
        revive_qid=5,
        rest_num=0,
        start_offset_info=start,
        msg_offset_info=offsets,
        order_count_info=counts,
    )


def points(*messages: ReceivedMessage) -> list[str]:
    return [one.properties[POP_CK] for one in messages]


def test_a_check_point_is_a_text():
    point = CheckPoint(7, 1000, 60, 5, "1", "broker-a", 3, 9)
    assert point.encode() == "7 1000 60 5 1 broker-a 3 9"
    assert CheckPoint.decode(point.encode()) == point


@pytest.mark.parametrize("text", ["", "7", "7 1000 60 5 1 broker-a 3", "x 1000 60 5 1 broker-a 3 9"])
def test_what_is_no_check_point(text):
    with pytest.raises(ProtocolError, match="no check point"):
        CheckPoint.decode(text)


@pytest.mark.parametrize(("retry", "topic"), [("0", "t"), ("1", "%RETRY%g_t"), ("2", "%RETRY%g+t")])
def test_where_a_popped_message_lies(retry, topic):
    assert CheckPoint(7, 1000, 60, 5, retry, "a", 3, 9).real_topic("t", "g") == topic


def test_each_message_has_the_lease_of_its_queue():
    some = [message(0, 4), message(0, 6), message(1, 9), message(2, 3, "%RETRY%g_t"), message(0, 5, "%RETRY%g+t")]
    told = lease("0 0 4;0 1 8;1 2 3;2 0 5", "0 0 4,6;0 1 9;1 2 3;2 0 5")
    set_check_points(some, told, "a", order=False)
    assert points(*some) == [
        "4 1000 60 5 0 a 0 4",
        "4 1000 60 5 0 a 0 6",
        "8 1000 60 5 0 a 1 9",
        "3 1000 60 5 1 a 2 3",
        "5 1000 60 5 2 a 0 5",
    ]
    assert {one.properties[FIRST] for one in some} == {"1000"}


def test_a_check_point_that_the_broker_wrote_stays():
    """A retried message under its first topic's name: only its check point tells where it lies."""
    given = "2 900 60 5 1 a 0 2"
    some = [message(0, 2, POP_CK=given, **{FIRST: "800"}), message(0, 7)]
    set_check_points(some, lease("1 0 2;0 0 7", "1 0 2;0 0 7"), "a", order=False)
    assert points(*some) == [given, "7 1000 60 5 0 a 0 7"]
    assert [one.properties[FIRST] for one in some] == ["800", "1000"]


def test_offsets_that_are_other_than_stored_are_told_by_their_order():
    some = [message(0, 4), message(0, 5)]
    set_check_points(some, lease("0 0 100", "0 0 104,105"), "a", order=False)
    assert points(*some) == ["100 1000 60 5 0 a 0 104", "100 1000 60 5 0 a 0 105"]


def test_without_infos_the_first_message_of_a_queue_begins_its_lease():
    some = [message(0, 4), message(0, 6), message(1, 9), message(1, 1, "%RETRY%g_t")]
    set_check_points(some, lease(None, None), "a", order=False)
    assert points(*some) == [
        "4 1000 60 5 0 a 0 4",
        "4 1000 60 5 0 a 0 6",
        "9 1000 60 5 0 a 1 9",
        "1 1000 60 5 1 a 1 1",
    ]


def test_how_often_ordered_messages_have_failed():
    told = lease("0 0 4;0 1 9", "0 0 4,5;0 1 9", "0 0 2;0 qo0%5 3;0 1 0")
    some = [message(0, 4), message(0, 5), message(1, 9)]
    set_check_points(some, told, "a", order=True)
    assert [one.reconsume_times for one in some] == [2, 3, 0]
    others = [message(0, 4), message(0, 5), message(1, 9)]
    set_check_points(others, told, "a", order=False)
    assert [one.reconsume_times for one in others] == [0, 0, 0], "that is told of ordered ones only"


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        ("0 0", "0 0 4"),
        ("0 0 x", "0 0 4"),
        ("0 0 4", "0 0 x"),
        ("0 0 4", None),
        ("0 1 4", "0 1 4"),
        ("0 0 4 4", "0 0 4"),
    ],
)
def test_infos_that_do_not_fit(start, offsets):
    with pytest.raises(ProtocolError):
        set_check_points([message(0, 4)], lease(start, offsets), "a", order=False)


@pytest.mark.parametrize(
    "infos", [("0 0 4;0 1 9;1 0 2", "0 0 4,6;0 1 9;1 0 2"), (None, None)], ids=["told", "not told"]
)
def test_what_was_set_is_returned_in_the_order_of_the_messages(infos):
    some = [message(0, 4), message(1, 9), message(0, 2, "%RETRY%g_t"), message(0, 6)]
    given = set_check_points(some, lease(*infos), "a", order=False)
    assert [point.encode() for point in given] == points(*some)
    assert [(point.retry, point.queue_id, point.offset) for point in given] == [
        ("0", 0, 4),
        ("0", 1, 9),
        ("1", 0, 2),
        ("0", 0, 6),
    ]
