"""A consumer's end: no more pulls, running listeners end, offsets are stored, locks given back, brokers told."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rocketstream.cluster.client import ClientState
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.consumer.rebalancer import HAND_OVER, LAST_COMMIT
from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.consumer.lives import nothing_left
from tests.consumer.peers import GROUP, Heard, has_offsets, make_core, request_of
from tests.consumer.pull_answers import found, no_new
from tests.producer.peers import SILENCE
from tests.scripted import eventually

LOOK = RequestCode.QUERY_CONSUMER_OFFSET
PULL = RequestCode.PULL_MESSAGE
STORE = RequestCode.UPDATE_CONSUMER_OFFSET
UNLOCK = RequestCode.UNLOCK_BATCH_MQ
LEAVE = RequestCode.UNREGISTER_CLIENT
INTERESTING = (PULL, STORE, UNLOCK, LEAVE)


class Busy:
    """A listener that keeps each message until it is let go."""

    def __init__(self, orderly=False):
        self.result = OrderlyResult.SUCCESS if orderly else ConsumeResult.SUCCESS
        self.begun = threading.Semaphore(0)
        self.count = 0
        self.go_on = threading.Event()

    def __call__(self, messages, context):
        self.count += 1
        self.go_on.wait(30.0)
        return self.result


@pytest.fixture
def instances(clock):
    return ClientInstances(clock)


@pytest.fixture
def busy():
    listener = Busy()
    yield listener
    listener.go_on.set()


def since(broker, mark):
    """What was asked of a broker since then, of what matters here; the inner producer's leave is not the consumer's."""
    return [
        RequestCode(command.code)
        for command in broker.received[mark:]
        if command.code in INTERESTING and "producerGroup" not in command.fields
    ]


@pytest.mark.behaviour("REB-10")
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_an_end_waits_for_listeners_then_stores_unlocks_and_leaves(name_server, instances, clock, a, b, orderly):
    name_server.set_route("t", {"a": {0: a.address}, "b": {0: b.address}}, queues=1)
    listener = Busy(orderly)
    core = make_core(name_server.address, listener=listener, instances=instances, orderly=orderly)
    await core.start()
    await b.until_held()
    a.store("one")
    await eventually(lambda: listener.count == 1)
    await a.until_held()
    mark = len(a.received)
    ending = asyncio.ensure_future(core.shutdown(30.0))
    await clock.advance(5.0)
    assert core.state is ClientState.SHUTDOWN_ALREADY
    assert not ending.done()
    assert since(a, mark) == [], "it waits for the listener"
    a.store("two")
    await asyncio.sleep(0)
    await clock.advance(5.0)
    listener.go_on.set()
    await ending
    assert since(a, mark) == ([STORE, UNLOCK, LEAVE] if orderly else [STORE, LEAVE]), "and no pull"
    assert a.offsets[GROUP, "t", 0] == 1, "what the listener has finished meanwhile counts, and no more than that"
    assert listener.count == 1, "what came after the end had begun is another member's"
    assert a.locks == b.locks == {}
    for broker in (a, b):
        (left,) = (one for one in broker.requests(LEAVE) if "consumerGroup" in one.fields)
        assert (left.fields["clientID"], left.fields["consumerGroup"]) == (core.client_id, GROUP)
    assert nothing_left(core, instances, clock)


@pytest.mark.behaviour("REB-10")
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_listener_that_hangs_does_not_hang_the_end(name_server, instances, clock, a, caplog, orderly):
    listener = Busy(orderly)
    core = make_core(name_server.address, listener=listener, instances=instances, orderly=orderly)
    a.offsets[GROUP, "t", 0] = 0
    await core.start()
    a.store("hangs", "waits")
    await eventually(lambda: listener.count >= 1)
    mark = len(a.received)
    await core.shutdown(0.0)
    try:
        assert since(a, mark)[-1] is LEAVE
        assert bool(a.locks) is orderly, "the lock stays as long as a listener runs: nobody else may begin (ORD-03)"
        assert a.offsets[GROUP, "t", 0] == 0, "what is not finished comes again"
        assert "listeners still run after 0 s; what they have not finished comes again" in caplog.text
        assert not instances._instances
        assert clock.pending == []
    finally:
        listener.go_on.set()
    await eventually(lambda: nothing_left(core, instances, clock))
    assert a.offsets[GROUP, "t", 0] == 0


@pytest.mark.behaviour("REB-10")
@pytest.mark.parametrize(
    ("settings", "given", "waits"),
    [({}, None, 30.0), ({"await_termination_when_shutdown": 7.0}, None, 7.0), ({}, 3.0, 3.0)],
    ids=["default", "setting", "argument"],
)
async def test_how_long_an_end_waits(name_server, clock, monkeypatch, settings, given, waits):
    core = make_core(name_server.address, clock, **settings)
    await core.start()
    stop, waited = core.consumption.stop, []

    async def noted(timeout):
        waited.append(timeout)
        return await stop(timeout)

    monkeypatch.setattr(core.consumption, "stop", noted)
    await core.shutdown(given)
    assert waited == [waits]


@pytest.mark.behaviour("REB-10")
async def test_an_answer_that_comes_during_the_end_brings_no_further_pull(name_server, clock, a, busy):
    core = make_core(name_server.address, clock, busy)
    await core.start()
    a.store("one")
    await eventually(lambda: busy.count == 1)
    await a.until_held()
    pulls = len(a.pulls)
    ending = asyncio.ensure_future(core.shutdown(30.0))
    await clock.settle()
    a.answer(found(1, 3))
    await clock.advance(10.0)
    await clock.advance(60.0)
    assert len(a.pulls) == pulls
    busy.go_on.set()
    await ending
    assert busy.count == 1
    assert clock.pending == []


async def test_brokers_that_are_gone_do_not_hang_the_end(name_server, instances, clock, a, caplog):
    heard = Heard()
    core = make_core(name_server.address, listener=heard, instances=instances)
    await core.start()
    a.store("one")
    await heard.until(1)
    await a.stop()
    await core.shutdown(1.0)
    assert "its last messages come again" in caplog.text
    assert nothing_left(core, instances, clock)


async def test_a_rebalance_under_way_does_not_bring_queues_back(name_server, instances, clock, a):
    name_server.set_route("t", {"a": {0: a.address}}, queues=2)
    a.other_members = ["zzz"]
    core = make_core(name_server.address, instances=instances)
    await core.start()
    assert len(core.rebalancer.assigned) == 1
    a.other_members = []
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(command):
        asked.set()
        await go_on.wait()
        return a._query_offset(command)

    a.plan(RequestCode.QUERY_CONSUMER_OFFSET, slow)
    passing = asyncio.ensure_future(core.rebalance())
    await asked.wait()
    ending = asyncio.ensure_future(core.shutdown(1.0))
    await clock.settle()
    go_on.set()
    await asyncio.gather(passing, ending)
    assert core.rebalancer.requests == {}
    assert len(a.pulls_of(1)) == 0
    assert nothing_left(core, instances, clock)


# --- the pull under way carries an older offset -------------------------------------------------------------------


@pytest.fixture
async def carrying(name_server, instances, a):
    """A consumer that has finished two messages, while the pull under way carries offset 1; the broker had 0."""
    heard = Heard()
    a.offsets[GROUP, "t", 0] = 0
    core = make_core(name_server.address, listener=heard, instances=instances)
    await core.start()
    has_offsets(core, a)
    await a.until_held()
    for count in (1, 2):
        a.commits = False
        a.store(str(count))
        await eventually(lambda count=count: core.offsets.read_memory(a.queue()) == count)
        await a.until_held()
    assert request_of(core, a.queue()).carries == 1
    assert a.offsets[GROUP, "t", 0] == 0
    yield core
    await core.shutdown(0.0)


async def passing(clock, work, seconds):
    """Let time pass until something has ended, or so many seconds; returns how much it took.

    That is a little more than its timers say: while real sockets take their time, this clock goes on.
    """
    began = clock.monotonic()
    while not work.done() and clock.monotonic() - began < seconds:
        await clock.advance(0.01)
        await asyncio.sleep(0.002)
    return clock.monotonic() - began


def asked(a, mark):
    return [RequestCode(c.code) for c in a.received[mark:] if c.code in (LOOK, STORE) and c.fields["topic"] == "t"]


@pytest.mark.behaviour("REB-10")
async def test_an_end_asks_once_whether_the_pull_under_way_was_handled(carrying, instances, clock, a):
    a.commit_late()
    mark = len(a.received)
    await carrying.shutdown(30.0)
    assert asked(a, mark) == [LOOK, STORE]
    assert a.offsets[GROUP, "t", 0] == 2
    assert nothing_left(carrying, instances, clock)


@pytest.mark.behaviour("REB-10")
async def test_an_end_waits_until_the_broker_has_handled_the_pull_under_way(carrying, instances, clock, a):
    mark = len(a.received)
    ending = asyncio.ensure_future(carrying.shutdown(30.0))
    await eventually(lambda: asked(a, mark) == [LOOK])
    await clock.settle()
    assert not ending.done()
    a.commit_late()
    await passing(clock, ending, 30.0)
    await ending
    assert asked(a, mark) == [LOOK, LOOK, STORE]
    assert a.offsets[GROUP, "t", 0] == 2
    assert nothing_left(carrying, instances, clock)


@pytest.mark.behaviour("REB-10")
async def test_an_answer_says_that_the_pull_was_handled(carrying, instances, clock, a):
    mark = len(a.received)
    ending = asyncio.ensure_future(carrying.shutdown(30.0))
    await eventually(lambda: asked(a, mark) == [LOOK])
    request = request_of(carrying, a.queue())
    a.answer(no_new(2))
    await eventually(lambda: request.carries == 0)
    await passing(clock, ending, 30.0)
    await ending
    assert asked(a, mark) == [LOOK, STORE]


@pytest.mark.behaviour("REB-10")
async def test_an_offset_that_the_pull_lowers_after_all_is_written_again(carrying, instances, clock, a, caplog):
    mark = len(a.received)
    ending = asyncio.ensure_future(carrying.shutdown(0.0))
    await eventually(lambda: asked(a, mark) == [LOOK, STORE])
    a.commit_late()
    assert a.offsets[GROUP, "t", 0] == 1
    await passing(clock, ending, 30.0)
    await ending
    assert asked(a, mark) == [LOOK, STORE, LOOK, STORE]
    assert a.offsets[GROUP, "t", 0] == 2
    assert "may still lower it" not in caplog.text
    assert nothing_left(carrying, instances, clock)


@pytest.mark.behaviour("REB-10")
@pytest.mark.parametrize(("timeout", "patience"), [(0.0, 0.0), (3.0, 3.0), (30.0, 5.0)])
async def test_a_pull_that_is_never_handled_is_not_waited_for_without_end(
    carrying, instances, clock, a, caplog, timeout, patience
):
    ending = asyncio.ensure_future(carrying.shutdown(timeout))
    took = await passing(clock, ending, 60.0)
    await ending
    looked_after = 0.75
    assert patience + looked_after <= took < patience + looked_after + 2.0
    assert a.offsets[GROUP, "t", 0] == 2
    assert "offset 2 of group g is stored, but a pull that carries offset 1 may still lower it" in caplog.text
    assert nothing_left(carrying, instances, clock)


@pytest.mark.behaviour("REB-10")
async def test_a_broker_that_hangs_takes_an_end_no_longer_than_one_time_out(carrying, instances, clock, a, caplog):
    a.plan(LOOK, SILENCE)
    a.plan(STORE, SILENCE)
    ending = asyncio.ensure_future(carrying.shutdown(30.0))
    took = await passing(clock, ending, 60.0)
    await ending
    assert 5.0 <= took < 8.0, "one time-out for a look and a write together, not one for each"
    assert "its last messages come again" in caplog.text
    assert nothing_left(carrying, instances, clock)


@pytest.mark.behaviour("REB-10")
async def test_a_broker_that_takes_a_write_but_does_not_say_whether_it_has_handled_the_pull(
    carrying, instances, clock, a, caplog
):
    mark = len(a.received)
    a.plan(LOOK, ResponseCode.SYSTEM_BUSY)
    ending = asyncio.ensure_future(carrying.shutdown(30.0))
    await eventually(lambda: asked(a, mark) == [LOOK, STORE])
    a.commit_late()
    await passing(clock, ending, 30.0)
    await ending
    assert asked(a, mark) == [LOOK, STORE, LOOK, STORE]
    assert a.offsets[GROUP, "t", 0] == 2
    assert nothing_left(carrying, instances, clock)


@pytest.mark.behaviour("REB-10")
async def test_a_write_under_way_is_no_proof_that_the_pull_was_handled(carrying, instances, clock, a):
    """The broker has stored the timer's write, and is late with the answer to it and with the pull."""
    answer = asyncio.Event()

    async def late(command):
        done = a._update_offset(command)
        await answer.wait()
        return done

    await carrying.persist_offsets()  # puts the queue off, because a pull brings its offset
    a.plan(STORE, late)
    writing = asyncio.ensure_future(carrying.persist_offsets())
    await eventually(lambda: a.offsets[GROUP, "t", 0] == 2)
    mark = len(a.received)
    ending = asyncio.ensure_future(carrying.shutdown(30.0))
    await eventually(lambda: a.queue() in carrying.offsets._leaving)
    await passing(clock, ending, 0.2)  # who looks now sees what was written
    answer.set()
    await eventually(lambda: LOOK in asked(a, mark))
    await passing(clock, ending, 1.0)
    assert STORE not in asked(a, mark), "the pull could still lower it"
    a.commit_late()
    await passing(clock, ending, 30.0)
    await asyncio.gather(ending, writing)
    assert asked(a, mark)[-1] == STORE
    assert a.offsets[GROUP, "t", 0] == 2
    assert nothing_left(carrying, instances, clock)


@pytest.mark.behaviour("REB-10")
async def test_a_broker_that_is_gone_is_not_waited_for(carrying, instances, clock, a, caplog):
    await a.stop()
    await carrying.shutdown(30.0)  # time stands still
    assert "its last messages come again" in caplog.text
    assert nothing_left(carrying, instances, clock)


@pytest.mark.behaviour("REB-10")
async def test_nobody_asks_where_the_pull_under_way_carries_the_last_offset_or_none(carrying, instances, clock, a):
    a.answer(no_new(2))
    request = request_of(carrying, a.queue())
    await eventually(lambda: request.carries == 2)
    mark = len(a.received)
    await carrying.shutdown(30.0)
    assert asked(a, mark) == [STORE]
    assert a.offsets[GROUP, "t", 0] == 2


@pytest.mark.behaviour("REB-10", "OFF-03")
async def test_the_last_write_comes_after_the_timers(name_server, instances, clock, a):
    heard = Heard()
    core = make_core(name_server.address, listener=heard, instances=instances)
    await core.start()
    has_offsets(core, a)
    a.store("one")
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 1)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(command):
        begun.set()
        await go_on.wait()
        return a._update_offset(command)

    a.plan(STORE, slow)
    timer = asyncio.ensure_future(core.persist_offsets())
    await begun.wait()
    a.store("two")
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 2)
    ending = asyncio.ensure_future(core.shutdown(30.0))
    await eventually(lambda: not core.is_running)
    await clock.settle()
    go_on.set()
    await asyncio.gather(timer, ending)
    assert [offset for topic, _, offset in a.updates if topic == "t"] == [1, 2]
    assert a.offsets[GROUP, "t", 0] == 2
    assert nothing_left(core, instances, clock)


# --- the same when a queue is given away --------------------------------------------------------------------------


@pytest.mark.behaviour("REB-05")
async def test_who_loses_a_queue_waits_until_the_broker_has_handled_its_pull(carrying, clock, a):
    a.other_members = ["!"]
    mark = len(a.received)
    losing = asyncio.ensure_future(carrying.rebalance())
    await eventually(lambda: asked(a, mark) == [LOOK])
    a.commit_late()
    await passing(clock, losing, 30.0)
    assert await losing
    assert asked(a, mark) == [LOOK, LOOK, STORE]
    assert a.offsets[GROUP, "t", 0] == 2


@pytest.mark.behaviour("REB-05")
async def test_who_loses_a_queue_looks_after_its_offset_without_holding_up_the_pass(carrying, instances, clock, a):
    a.other_members = ["!"]
    losing = asyncio.ensure_future(carrying.rebalance())
    took = await passing(clock, losing, 30.0)
    assert await losing
    assert took >= LAST_COMMIT
    assert LAST_COMMIT < HAND_OVER - 0.43, "a pass was seen to be that late"
    assert carrying._tasks, "who looks after it does so now"
    assert a.offsets[GROUP, "t", 0] == 2
    a.commit_late()
    assert a.offsets[GROUP, "t", 0] == 1
    await clock.advance(0.05)
    await eventually(lambda: a.offsets[GROUP, "t", 0] == 2)


@pytest.mark.behaviour("REB-05", "REB-10")
async def test_an_end_waits_for_who_looks_after_the_offset_of_a_queue_that_was_lost(carrying, instances, clock, a):
    a.other_members = ["!"]
    losing = asyncio.ensure_future(carrying.rebalance())
    written = asyncio.ensure_future(eventually(lambda: a.offsets[GROUP, "t", 0] == 2))
    await passing(clock, written, 30.0)  # and no further: what looks after the offset would end by itself
    assert await losing
    assert carrying._tasks
    ending = asyncio.ensure_future(carrying.shutdown(30.0))
    await clock.settle()
    a.commit_late()
    assert a.offsets[GROUP, "t", 0] == 1
    await passing(clock, ending, 30.0)
    await ending
    assert a.offsets[GROUP, "t", 0] == 2
    assert not carrying._tasks
    assert nothing_left(carrying, instances, clock)
