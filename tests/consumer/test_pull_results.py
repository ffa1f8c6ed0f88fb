"""What the answer to a pull does: messages, offsets, the next pull, and what is said about it."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from rocketstream.consumer import puller as puller_module
from rocketstream.consumer.flow_control import WaitReason
from rocketstream.consumer.results import ConsumeResult
from rocketstream.errors import CorruptMessageError
from rocketstream.remoting.replies import PullResult
from rocketstream.wire.batch import BatchItem, encode_batch
from rocketstream.wire.codes import PullStatus, RequestCode
from rocketstream.wire.compression import compress
from rocketstream.wire.sysflag import INNER_BATCH, NEED_UNWRAP, Codec, with_codec
from tests.consumer.peers import GROUP, TOPIC, Heard, request_of
from tests.consumer.pull_answers import found, illegal, no_matched, no_new, record
from tests.scripted import eventually

UPDATE = RequestCode.UPDATE_CONSUMER_OFFSET


def errors(caplog):
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


# --- decoding -------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("RES-02")
async def test_every_message_of_a_found_answer_is_consumed_inflated_and_unpacked(started, a):
    heard = Heard()
    await started(heard)
    await a.until_held()
    text = b"a body worth compressing " * 40
    packed = [record(n, body=compress(text, codec), sys_flag=with_codec(0, codec)) for n, codec in enumerate(Codec)]
    items = encode_batch([BatchItem(b"one", ""), BatchItem(b"two", "TAGS\x01x\x02"), BatchItem(b"three", "")])
    batch = record(4, body=items, sys_flag=INNER_BATCH | NEED_UNWRAP)
    a.answer(found(0, 8, records=[*packed, record(3, body=b"plain"), batch, record(7, body=b"last")]))
    await heard.until(8)
    by_offset = {message.queue_offset: message for message in heard.messages}
    assert [by_offset[n].body for n in range(8)] == [text, text, text, b"plain", b"one", b"two", b"three", b"last"]
    assert by_offset[5].tags == "x"
    assert a.pulled_offsets()[:1] == [0]
    assert (await a.until_pulled(2)).fields["queueOffset"] == "8"


@pytest.mark.behaviour("RES-02")
@pytest.mark.parametrize("answer", [no_new, no_matched, illegal])
async def test_only_what_was_found_is_decoded(started, a, answer, monkeypatch):
    decoded = []
    monkeypatch.setattr(puller_module, "decode_records", lambda *_, **__: decoded.append(1))
    heard = Heard()
    core = await started(heard)
    await a.until_held()
    request = request_of(core, a.queue())
    a.answer(answer(3, body=record(0)))
    await eventually(lambda: request.next_offset == 3)
    assert (decoded, heard.messages, request.process_queue.count) == ([], [], 0)


class ReadsBodies(Heard):
    """A listener that looks at the bodies, as listeners do."""

    def __call__(self, messages, context):
        super().__call__(messages, context)
        for message in messages:
            assert message.body
        return ConsumeResult.SUCCESS


@pytest.mark.behaviour("RES-02")
@pytest.mark.parametrize(
    "broken",
    [
        partial(record, body=b"good?", body_crc=4711),
        *(partial(record, body=b"junk", sys_flag=with_codec(0, codec)) for codec in Codec),
        partial(record, body=b"junk", sys_flag=INNER_BATCH | NEED_UNWRAP),
        partial(record, body=b"junk", sys_flag=with_codec(0, Codec.ZLIB) | 0x700),
    ],
    ids=["checksum", "lz4", "zstd", "zlib", "batch", "unknown codec"],
)
async def test_a_corrupt_body_fails_its_message_and_no_other(started, a, broken, caplog):
    heard = ReadsBodies()
    core = await started(heard)
    await a.until_held()
    a.answer(found(0, 3, records=[record(0), broken(1), record(2)]))
    await heard.until(3)
    assert heard.offsets == [0, 1, 2]
    await eventually(lambda: len(a.sent_back) == 1)  # it comes again, and in the end lies in the dead-letter queue
    assert a.sent_back[0].fields["offset"] == "1001"
    (bad,) = [message for message in heard.messages if message.queue_offset == 1]
    with pytest.raises(CorruptMessageError, match=r"of t at queue offset 1: .+"):
        _ = bad.body
    assert any("at queue offset 1:" in str(one.exc_info[1]) for one in caplog.records if one.exc_info)
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 3)


@pytest.mark.behaviour("RES-02")
async def test_bytes_that_are_no_message_are_told_and_passed_over(started, a, caplog):
    heard = Heard()
    await started(heard)
    await a.until_held()
    damaged = bytearray(record(1))
    damaged[4:8] = b"\0\0\0\0"
    a.answer(found(0, 3, records=[record(0), bytes(damaged), record(2)]))
    await heard.until(2)
    await a.until_pulled(2)
    assert heard.offsets == [0, 2]
    (told,) = errors(caplog)
    assert f"{len(damaged)} bytes at {len(record(0))} of an answer for offset 0 are no message" in told
    assert "its magic is 0x00000000" in told
    assert a.pulled_offsets() == [0, 3]


async def test_messages_know_their_queue_and_its_ends(started, a):
    heard = Heard()
    await started(heard)
    await a.until_held()
    a.answer(found(5, min_offset=2, max_offset=77))
    await heard.until(1)
    (message,) = heard.messages
    assert (message.properties["MIN_OFFSET"], message.properties["MAX_OFFSET"]) == ("2", "77")
    assert (message.broker_name, message.queue) == ("a", a.queue())


# --- found ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("RES-06")
@pytest.mark.parametrize("near_a_limit", [False, True])
async def test_what_was_found_is_cached_and_consumed_and_the_next_pull_follows(started, a, held_up, near_a_limit):
    core = await started(held_up, pull_threshold_for_queue=10 if near_a_limit else 1000)
    await a.until_held()
    request = request_of(core, a.queue())
    a.answer(found(0, 3, next_offset=7, max_offset=50))
    await held_up.until(3)
    await a.until_pulled(2)  # though the clock stands still, and nothing is finished
    assert a.pulled_offsets() == [0, 7]
    pq = request.process_queue
    assert (request.next_offset, pq.count, pq.first_offset, pq.last_offset) == (7, 3, 0, 2)
    assert request.broker_max == 50
    assert held_up.offsets == [0, 1, 2]


@pytest.mark.behaviour("RES-06")
async def test_with_a_pull_interval_the_next_pull_waits_for_it(started, a, clock):
    heard = Heard()
    core = await started(heard, pull_interval=0.75)
    await a.until_held()
    a.answer(found(0, 3))
    await heard.until(3)
    request = request_of(core, a.queue())
    assert (request.waiting.reason, request.waiting.seconds) == (WaitReason.INTERVAL, 0.75)
    await clock.advance(0.749)
    assert len(a.pulls) == 1
    await clock.advance(0.001)
    await a.until_pulled(2)
    assert a.pulled_offsets() == [0, 3]


@pytest.mark.behaviour("RES-08")
@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (found(50, 2), None),
        (found(51, 1), None),
        (found(50, 1, next_offset=49), "the answer begins at 50 and goes on at 49"),
        (found(49, 2, next_offset=51), "the answer begins at 49 and goes on at 51"),
        (found(50, records=[], next_offset=3), "the answer begins at none and goes on at 3"),
    ],
    ids=["as asked", "later", "next offset", "first message", "empty"],
)
async def test_offsets_below_the_one_that_was_asked_for_are_a_data_error(started, a, caplog, answer, wrong):
    a.offsets[GROUP, TOPIC, 0] = 50
    await started()
    await a.until_held()
    a.answer(answer)
    await a.until_pulled(2)
    expected = [] if wrong is None else [f"{a.queue()}: data error: offset 50 was asked for, {wrong}"]
    await eventually(lambda: len(errors(caplog)) >= len(expected))
    assert errors(caplog) == expected
    assert a.pulled_offsets()[1] == answer.next_offset


# --- the next pull leaves before the messages are decoded, unless it may not ------------------------------------------


@pytest.fixture
def at_decoding(monkeypatch):
    """How many requests were on their way each time that messages were decoded; the test appends the client."""
    seen = []
    real = puller_module.decode_records

    def decode(*given, **named):
        seen.append(seen[0].instance.remoting.pending)
        return real(*given, **named)

    monkeypatch.setattr(puller_module, "decode_records", decode)
    return seen


NEAR = {
    "count": {"pull_threshold_for_queue": 31},
    "size": {"pull_threshold_size_for_queue": 1, "pull_batch_size_in_bytes": 1024 * 1024 + 1},
    "span": {"consume_concurrently_max_span": 1},
    "interval": {"pull_interval": 1.0},
}


@pytest.mark.parametrize("limit", [None, *NEAR])
async def test_the_next_pull_leaves_first_unless_a_limit_is_near(started, a, held_up, at_decoding, limit):
    core = await started(held_up, **NEAR.get(limit, {}))
    at_decoding.append(core)
    await a.until_held()
    a.answer(found(0, 2))
    await held_up.until(2)
    assert at_decoding[1:] == [1 if limit is None else 0]


async def test_a_suspended_consumer_sends_no_pull_first(started, a, at_decoding):
    heard = Heard()
    core = await started(heard)
    at_decoding.append(core)
    await a.until_held()
    await core.set_paused(True)
    a.answer(found(0, 2))
    await heard.until(2)
    assert at_decoding[1:] == [0]
    await eventually(lambda: request_of(core, a.queue()).waiting is not None)
    assert len(a.pulls) == 1


async def test_an_orderly_queue_without_its_lock_sends_no_pull_first(started, a, at_decoding):
    core = await started(orderly=True)
    at_decoding.append(core)
    await a.until_held()
    request_of(core, a.queue()).process_queue.set_unlocked()
    a.answer(found(0, 2))
    await eventually(lambda: len(at_decoding) > 1)
    assert at_decoding[1:] == [0]


async def test_after_the_shutdown_no_pull_is_sent_and_nothing_is_consumed(started, a):
    heard = Heard()
    core = await started(heard)
    await a.until_held()
    request = request_of(core, a.queue())
    held = core.rebalancer.lose_all

    async def answered_in_between():
        a.answer(found(0, 2))
        await eventually(lambda: request.next_offset == 2 or request.process_queue.dropped)
        await held()

    core.rebalancer.lose_all = answered_in_between
    await core.shutdown(1.0)
    assert request.process_queue.dropped
    assert (len(a.pulls), heard.messages) == (1, [])


@pytest.mark.parametrize("answer", [found(0, 2), no_new(9), illegal(9)], ids=["FOUND", "NO_NEW_MSG", "OFFSET_ILLEGAL"])
async def test_an_answer_that_comes_after_its_queue_was_lost_does_nothing(started, a, answer, clock):
    heard = Heard()
    core = await started(heard)
    await a.until_held()
    request = request_of(core, a.queue())
    request.process_queue.drop()
    before = clock.pending
    a.answer(answer)
    await eventually(lambda: not core.instance.remoting.pending)
    await clock.settle()
    assert (request.next_offset, request.process_queue.count, heard.messages, len(a.pulls)) == (0, 0, [], 1)
    assert core.offsets.read_memory(a.queue()) == -1
    assert clock.pending == before
    assert not core.leaving


async def test_messages_are_not_lost_when_the_next_pull_cannot_be_sent(started, a, clock, monkeypatch):
    heard = Heard()
    core = await started(heard)
    await a.until_held()
    pending = len(clock.pending)
    monkeypatch.setattr(core.offsets, "read_memory", lambda queue: 1 / 0)  # a user's own store may do that
    a.answer(found(0, 2))
    await heard.until(2)
    assert heard.offsets == [0, 1]
    assert len(a.pulls) == 1
    assert len(clock.pending) > pending
    monkeypatch.undo()
    await clock.advance(3.0)
    await a.until_pulled(2)
    assert a.pulled_offsets() == [0, 2]


def result(status, first, count, next_offset):
    return PullResult(status, next_offset, 0, next_offset, 0, b"".join(record(first + n) for n in range(count)))


@pytest.mark.behaviour("RES-06", "RES-09")
@pytest.mark.parametrize("orderly", [False, True])
async def test_answers_are_taken_in_their_order_even_if_the_loop_brings_two_at_once(started, a, held_up, orderly):
    core = await started(held_up, orderly=orderly)
    await a.until_held()
    request, sub = request_of(core, a.queue()), core.subscriptions[TOPIC]
    core.puller._handle(request, sub, result(PullStatus.FOUND, 0, 2, 2))  # taken in the loop's next turn
    assert request.process_queue.count == 0
    core.puller._handle(request, sub, result(PullStatus.NO_MATCHED_MSG, 0, 0, 9))
    assert request.process_queue.count == 2
    assert core.offsets.read_memory(a.queue()) <= 0  # not 9: the two are not done
    core.paused = True
    core.puller._handle(request, sub, result(PullStatus.FOUND, 9, 1, 10))
    assert request.process_queue.count == 3
    await held_up.until(1)
    assert held_up.messages[0].queue_offset == 0
    await asyncio.sleep(0)
    assert request.process_queue.count == 3


# --- nothing found --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("RES-09")
@pytest.mark.parametrize("answer", [no_new, no_matched])
async def test_with_nothing_cached_the_stored_offset_follows_and_it_is_pulled_again_at_once(started, a, answer):
    a.offsets[GROUP, TOPIC, 0] = 4
    core = await started(pull_interval=5.0)
    await a.until_held()
    a.answer(answer(20))
    await a.until_pulled(2)  # though the clock stands still
    assert a.pulled_offsets() == [4, 20]
    assert core.offsets.read_memory(a.queue()) == 20
    a.answer(answer(10))  # it never goes down
    await a.until_pulled(3)
    assert a.pulled_offsets() == [4, 20, 10]
    assert core.offsets.read_memory(a.queue()) == 20


@pytest.mark.behaviour("RES-09")
@pytest.mark.parametrize("answer", [no_new, no_matched])
async def test_with_messages_cached_the_stored_offset_stays(started, a, held_up, answer):
    a.offsets[GROUP, TOPIC, 0] = 4
    core = await started(held_up)
    await a.until_held()
    a.answer(found(4, 2), answer(20))
    await a.until_pulled(3)
    assert a.pulled_offsets() == [4, 6, 20]
    assert core.offsets.read_memory(a.queue()) == 4
    held_up.let_go(4)
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 5)
    a.answer(answer(30))
    await a.until_pulled(4)
    assert core.offsets.read_memory(a.queue()) == 5  # one is still with the listener


# --- an offset that the broker does not have --------------------------------------------------------------------------


@pytest.mark.behaviour("RES-10")
@pytest.mark.parametrize("goes_to", [100, 900])
@pytest.mark.parametrize("orderly", [False, True])
async def test_an_illegal_offset_ends_the_queue_and_ten_seconds_later_it_begins_anew(
    started, a, clock, goes_to, orderly
):
    a.offsets[GROUP, TOPIC, 0] = 500
    core = await started(orderly=orderly, client={"persist_offset_interval": 3600.0})
    await a.until_held()
    await clock.advance(10.5)
    await eventually(lambda: bool(a.updates))  # the first time that offsets are stored; from now on that is in memory
    a.updates.clear()
    request = request_of(core, a.queue())
    a.answer(illegal(goes_to))
    await eventually(lambda: request.process_queue.dropped)
    assert request.next_offset == goes_to
    await core.rebalance()  # does not take it back before its time
    await clock.advance(9.999)
    assert request_of(core, a.queue()) is request
    assert (a.offsets[GROUP, TOPIC, 0], len(a.pulls)) == (500, 1)
    assert a.unlock_requests == []
    await clock.advance(0.001)
    await eventually(lambda: core.rebalancer.requests.get(a.queue()) is not request)
    await clock.advance(1.0)
    await a.until_pulled(2)
    assert a.updates == [(TOPIC, 0, goes_to)]
    assert a.pulled_offsets() == [500, goes_to]
    assert request_of(core, a.queue()) is not request
    assert [body.mq_set for body in a.unlock_requests] == ([{a.queue()}] if orderly else [])
    assert not core.leaving
