"""What is stored now, and what is kept for later."""

from __future__ import annotations

import pytest

from rocketstream.broker.refusal import Refusal
from rocketstream.broker.store.values import NewMessage
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.properties import decode_properties, encode_properties
from rocketstream.wire.sysflag import INNER_BATCH, TransactionType
from tests.broker.send_bench import Bench


@pytest.fixture
async def bench():
    bench = Bench()
    yield bench
    bench.stop()


def message(sys_flag: int = 0, **properties: str) -> NewMessage:
    return NewMessage(topic="t", queue_id=3, body=b"x", properties=encode_properties(properties), sys_flag=sys_flag)


def test_a_plain_message_is_stored_as_it_is(bench):
    plain = message(k="v", NOT_A_DELAY="9")
    stored = bench.intake.put(plain)
    assert (stored.topic, stored.queue_id, stored.queue_offset) == ("t", 3, 0)
    assert decode_properties(bench.stored("t", 3)[0].properties) == {"k": "v", "NOT_A_DELAY": "9"}


@pytest.mark.parametrize(("level", "kept"), [(1, 1), (18, 18), (19, 18), (1000, 18)])
def test_a_level_is_a_queue_of_the_schedule_topic(bench, level, kept):
    stored = bench.intake.put(message(DELAY=str(level), TIMER_DELAY_SEC="5"))
    assert (stored.topic, stored.queue_id) == ("SCHEDULE_TOPIC_XXXX", kept - 1)
    properties = decode_properties(bench.stored("SCHEDULE_TOPIC_XXXX", kept - 1)[0].properties)
    # A level wins over a time.
    assert properties == {"DELAY": str(kept), "REAL_TOPIC": "t", "REAL_QID": "3"}


@pytest.mark.parametrize("level", ["0", "-1"])
def test_no_level(bench, level):
    assert bench.intake.put(message(DELAY=level)).topic == "t"


def test_a_level_that_is_no_number(bench):
    with pytest.raises(Refusal) as caught:
        bench.intake.put(message(DELAY="soon"))
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("name", "value", "out"),
    [
        ("TIMER_DELAY_SEC", "5", 4000),
        ("TIMER_DELAY_MS", "1500", 1000),
        ("TIMER_DELAY_MS", "2000", 1000),
        ("TIMER_DELIVER_MS", "+2001", 2000),
    ],
)
def test_a_time_is_the_second_before_it(bench, name, value, out):
    now = bench.clock.wall_ms()
    assert now % 1000 == 0
    if value.startswith("+"):
        value = str(now + int(value))
    kept = message(**{name: value})
    stored = bench.intake.put(kept)
    assert (stored.topic, stored.queue_id) == ("rmq_sys_wheel_timer", 0)
    properties = decode_properties(kept.properties)
    assert properties == {name: value, "TIMER_OUT_MS": str(now + out), "REAL_TOPIC": "t", "REAL_QID": "3"}


def test_a_time_that_is_past_is_now(bench):
    assert bench.intake.put(message(TIMER_DELIVER_MS=str(bench.clock.wall_ms()))).topic == "t"
    # One that was delivered already does not wait again.
    assert bench.intake.put(message(TIMER_DELAY_SEC="5", TIMER_OUT_MS="1")).topic == "t"


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": str(3 * 24 * 3600 + 1)},
        {"TIMER_DELAY_MS": "x"},
        {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "t+id"},
    ],
)
def test_times_that_are_refused(bench, properties):
    with pytest.raises(Refusal) as caught:
        bench.intake.put(message(**properties))
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert "259200000ms" in caught.value.remark
    assert not bench.store.topics()


def test_a_half_message_does_not_wait_for_its_time(bench):
    assert bench.intake.put(message(TransactionType.PREPARED, DELAY="3")).topic == "t"
    assert bench.intake.put(message(TransactionType.COMMIT, DELAY="3")).topic == "SCHEDULE_TOPIC_XXXX"


@pytest.mark.parametrize("wrong", [message(INNER_NUM="3"), message(INNER_BATCH)])
def test_an_inner_batch_that_is_none(bench, wrong):
    with pytest.raises(Refusal) as caught:
        bench.intake.put(wrong)
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
