"""Orderly: the first pull after the lock begins at the offset that is stored then."""

from __future__ import annotations

import logging

import pytest

from rocketstream.consumer.flow_control import WaitReason
from rocketstream.consumer.start_from import StartFrom
from rocketstream.wire.codes import MessageModel, RequestCode, ResponseCode
from rocketstream.wire.command import response
from rocketstream.wire.headers.offsets import OffsetResponseHeader
from tests.consumer.peers import request_of
from tests.consumer.pull_answers import found, no_new
from tests.scripted import eventually

QUERY = RequestCode.QUERY_CONSUMER_OFFSET


def warnings(caplog):
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def says(offset):
    return lambda command: response(command, ResponseCode.SUCCESS, header=OffsetResponseHeader(offset=offset))


@pytest.mark.behaviour("PULL-11")
@pytest.mark.parametrize(("then", "busy"), [(7, False), (5, False), (3, True)])
async def test_the_first_pull_with_the_lock_begins_at_the_offset_that_is_stored_then(started, a, caplog, then, busy):
    a.plan(QUERY, says(5), says(then))
    core = await started(orderly=True)
    await a.until_held()
    assert a.pulled_offsets() == [then]
    assert request_of(core, a.queue()).next_offset == then
    busy_texts = [text for text in warnings(caplog) if "the broker is busy" in text]
    assert len(busy_texts) == busy
    assert not busy or "is 3, behind the 5 that was to be pulled" in busy_texts[0]
    a.answer(found(then), no_new(then + 9))  # only the first pull asks
    await a.until_pulled(3)
    assert a.count(QUERY) == 2
    assert a.pulled_offsets() == [then, then + 1, then + 9]


@pytest.mark.behaviour("PULL-11")
@pytest.mark.parametrize("failure", [(ResponseCode.SYSTEM_ERROR, "no"), says(-7)], ids=["an error", "negative"])
async def test_an_offset_that_is_not_known_is_asked_for_again_in_three_seconds(started, a, clock, failure):
    a.plan(QUERY, says(5), failure, failure, says(9))
    core = await started(orderly=True)
    request = request_of(core, a.queue())
    for asked in (2, 3):
        await eventually(lambda: request.waiting is not None)
        assert (request.waiting.reason, request.waiting.seconds) == (WaitReason.OFFSET_UNKNOWN, 3.0)
        assert a.count(QUERY) == asked
        await clock.advance(2.999)
        assert a.count(QUERY) == asked
        await clock.advance(0.001)
    await a.until_held()
    assert a.pulled_offsets() == [9]


@pytest.mark.behaviour("PULL-11")
async def test_without_a_stored_offset_it_begins_where_the_queue_was_won(started, a):
    a.plan(RequestCode.GET_MAX_OFFSET, says(4), says(6))  # two messages come between start() and the first pull
    core = await started(orderly=True, start_from=StartFrom.LAST)
    await a.until_held()
    assert a.pulled_offsets() == [4]
    assert request_of(core, a.queue()).next_offset == 4


@pytest.mark.behaviour("PULL-11")
async def test_a_queue_that_is_lost_while_its_offset_is_read_is_not_pulled(started, a, clock):
    a.plan(QUERY, says(5), (ResponseCode.SYSTEM_ERROR, "no"))
    core = await started(orderly=True)
    request = request_of(core, a.queue())
    await eventually(lambda: request.waiting is not None)
    assert request.waiting.reason is WaitReason.OFFSET_UNKNOWN

    def lost(command):
        request.process_queue.drop()
        return says(9)(command)

    a.plan(QUERY, lost)
    await clock.advance(3.0)
    await eventually(lambda: a.count(QUERY) == 3 and not core.puller._tasks)
    assert a.pulls == []


@pytest.mark.behaviour("PULL-11")
@pytest.mark.parametrize("settings", [{}, {"orderly": True, "model": MessageModel.BROADCASTING}])
async def test_without_locks_the_offset_is_not_asked_for_again(started, a, tmp_path, settings):
    await started(local_offset_dir=tmp_path, **settings)
    await a.until_held()
    assert a.count(QUERY) == (0 if settings else 1)
