"""The pending-response table, without a socket."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from rocketstream.errors import ConnectionLostError, RequestTimeoutError
from rocketstream.remoting.pending import PendingTable
from rocketstream.wire.command import Command

ONE, OTHER = "one connection", "another"


def answer(opaque: int) -> Command:
    return Command(code=0, opaque=opaque, flag=1)


async def add(table: PendingTable, connection: str = ONE, deadline: float = 10.0):
    opaque = table.next_opaque()
    future = asyncio.get_running_loop().create_future()
    return table.add(opaque, connection, "b:1", 11, 0.0, deadline, future)


@pytest.mark.behaviour("REM-01")
async def test_opaques_wrap_and_skip_those_that_are_pending():
    table = PendingTable(first_opaque=0x7FFFFFFE)
    first = await add(table)
    second = await add(table)
    third = await add(table)
    assert [first.opaque, second.opaque, third.opaque] == [0x7FFFFFFE, 0x7FFFFFFF, 0]
    again = PendingTable(first_opaque=0x7FFFFFFF)
    held = await add(again)
    again._numbers = itertools.count(0x7FFFFFFF)
    assert again.next_opaque() == 0
    assert held.opaque == 0x7FFFFFFF


@pytest.mark.behaviour("REM-05")
async def test_an_entry_leaves_once_by_whatever_comes_first():
    table = PendingTable()
    answered, late, lost, gone = [await add(table, deadline=deadline) for deadline in (10, 1, 10, 10)]
    assert table.waiting_on(ONE) == 4
    assert table.complete(ONE, answer(answered.opaque)) is answered
    assert table.complete(ONE, answer(answered.opaque)) is None
    assert table.expire(1.0) == [late]
    assert table.expire(1.0) == []
    table.discard(gone)
    table.discard(gone)
    assert table.fail_connection(ONE, lambda entry: ConnectionLostError(entry.address, "cut")) == 1
    assert table.fail_connection(ONE, lambda entry: ConnectionLostError(entry.address, "cut")) == 0
    assert len(table) == table.waiting_on(ONE) == 0
    assert answered.completion.result().opaque == answered.opaque
    assert isinstance(late.completion.exception(), RequestTimeoutError)
    assert isinstance(lost.completion.exception(), ConnectionLostError)
    assert not gone.completion.done()


@pytest.mark.behaviour("REM-07")
async def test_a_lost_connection_takes_only_its_own_requests():
    table = PendingTable()
    mine, others = await add(table, ONE), await add(table, OTHER)
    assert (table.waiting_on(ONE), table.waiting_on(OTHER)) == (1, 1)
    assert table.complete(OTHER, answer(mine.opaque)) is None
    table.fail_connection(ONE, lambda entry: ConnectionLostError(entry.address, "cut"))
    assert isinstance(mine.completion.exception(), ConnectionLostError)
    assert not others.completion.done()
    assert (table.waiting_on(ONE), table.waiting_on(OTHER)) == (0, 1)
    assert repr(others) == "<PendingRequest PULL_MESSAGE opaque=1 to b:1>"
