"""A consumer at work counts its pulls and its listener's calls, per topic (the sums themselves: test_stats.py)."""

from __future__ import annotations

import pytest

from rocketstream.consumer.hooks import FilterHook
from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from tests.consumer.peers import RETRY, TOPIC
from tests.consumer.pull_answers import found, no_new, record
from tests.scripted import eventually


async def until_counted(core, name, value, topic=TOPIC):
    await eventually(lambda: core.stats.snapshot().get(topic, {}).get(name) == value)


@pytest.mark.behaviour("RES-11")
@pytest.mark.parametrize("hooks", [False, True])
async def test_pulls_are_counted_with_their_time_and_what_filters_left(started, a, clock, held_up, hooks):
    core = await started(held_up, topics={TOPIC: "x"}, filter_hooks=[FilterHook()] if hooks else [])
    await a.until_held()
    await clock.advance(0.25)
    a.answer(found(0, 4, records=[record(n, tags="x" if n else "y") for n in range(4)]))
    await held_up.until(3)
    await a.until_pulled(2)
    await clock.advance(0.5)
    a.answer(no_new(4))  # only what was found counts
    await a.until_pulled(3)
    counts = core.stats.snapshot()[TOPIC]
    assert (counts["pulls"], counts["pull_ms"], counts["pulled_messages"]) == (1, 250, 3)


@pytest.mark.behaviour("RES-11")
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("orderly", [False, True])
async def test_calls_of_the_listener_are_counted_with_their_time_and_outcome(
    started, a, name_server, clock, held_up, batch, orderly
):
    name_server.set_route(RETRY, {"a": {0: a.address}}, queues=1)
    kind = OrderlyResult if orderly else ConsumeResult
    held_up.result = kind.SUCCESS
    core = await started(held_up, orderly=orderly, consume_message_batch_max_size=batch)
    await a.until_held()
    calls = 3 // batch
    a.answer(found(0, 3))
    if orderly:  # one call after the other
        for n in range(calls):
            await held_up.until((n + 1) * batch)
            await clock.advance(0.4)
            held_up.let_go(*range(n * batch, (n + 1) * batch))
    else:
        await held_up.until(3)
        await clock.advance(0.4)
        held_up.let_go(0, 1, 2)
    await until_counted(core, "listener_calls", calls)
    counts = core.stats.snapshot()[TOPIC]
    assert (counts["ok_messages"], counts["failed_messages"], counts["listener_ms"]) == (3, 0, calls * 400)
    held_up.result = OrderlyResult.SUSPEND if orderly else ConsumeResult.RECONSUME_LATER
    await a.until_held(topic=RETRY)
    a.answer(found(10, records=[record(10, topic=RETRY)]), topic=RETRY)
    await held_up.until(4)
    await clock.advance(0.1)
    held_up.let_go(10)
    await until_counted(core, "failed_messages", 1, RETRY)
    failed = core.stats.snapshot()[RETRY]
    assert (failed["ok_messages"], failed["listener_calls"], failed["listener_ms"]) == (0, 1, 100)
    assert core.stats.snapshot()[TOPIC] == counts


@pytest.mark.behaviour("RES-11")
async def test_rates_come_from_samples_that_a_timer_takes(started, a, clock, held_up):
    held_up.let_go()
    core = await started(held_up)
    await a.until_held()
    a.answer(found(0, 30))
    await held_up.until(30)
    await until_counted(core, "ok_messages", 30)
    assert core.stats.status(TOPIC, clock.monotonic()).consume_ok_tps == 0.0
    await clock.advance(10.0)
    status = core.stats.status(TOPIC, clock.monotonic())
    assert (status.pull_tps, status.consume_ok_tps) == (3.0, 3.0)
