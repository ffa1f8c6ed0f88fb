"""A consumer's end: no more pulls, running listeners end, offsets are stored, locks given back, brokers told."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rocketstream.cluster.client import ClientState
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from rocketstream.wire.codes import RequestCode
from tests.consumer.lives import nothing_left
from tests.consumer.peers import GROUP, Heard, make_core
from tests.consumer.pull_answers import found
from tests.scripted import eventually

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
