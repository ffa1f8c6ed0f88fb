"""What a consumer at work measures: durations, what goes back, waits, stalls, queues, and what there is now."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from rocketstream.metrics.registry import registry
from rocketstream.metrics.values import SECONDS, HistogramValue
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.consumer.peers import GROUP, RETRY, TOPIC, Heard
from tests.consumer.pop_peers import PopBroker, popped
from tests.consumer.pull_answers import found, record, refused
from tests.scripted import eventually


def told(core, name: str, *labels: str):
    """One value of a consumer's, None if it has none."""
    values = {
        (sample.metric.name.removeprefix("rocketstream_"), sample.labels): sample.value
        for sample in core.collect_metrics()
    }
    return values.get((name, labels))


def of_topic(core, name: str, *labels: str, topic: str = TOPIC):
    return told(core, f"consumer_{name}", GROUP, topic, *labels)


def histogram(*values: float) -> HistogramValue:
    """What a histogram of seconds is that has seen just these."""
    counts = [0] * (len(SECONDS) + 1)
    for value in values:
        counts[sum(bound < value for bound in SECONDS)] += 1
    return HistogramValue(tuple(counts), pytest.approx(sum(values)))


@pytest.mark.parametrize("orderly", [False, True])
async def test_durations_and_what_is_there_now(started, a, clock, held_up, orderly):
    held_up.result = OrderlyResult.SUCCESS if orderly else ConsumeResult.SUCCESS
    core = await started(held_up, orderly=orderly, consume_message_batch_max_size=2)
    await a.until_held()
    await clock.advance(0.25)
    stored_at = clock.wall_ms() - 3000
    answer = found(0, 2, records=[record(n, body=b"12345", store_timestamp=stored_at) for n in range(2)])
    a.answer(answer)
    await held_up.until(2)
    await clock.advance(0.4)
    assert of_topic(core, "pull_seconds") == histogram(0.25)
    assert of_topic(core, "pulled_bytes_total") > 2 * 91
    assert of_topic(core, "cached_messages") == 2
    assert of_topic(core, "cached_bytes") == 10
    assert of_topic(core, "lag_messages") == 2
    assert of_topic(core, "oldest_message_age_seconds") == 3.4
    assert of_topic(core, "assigned_queues") == 1
    assert of_topic(core, "queues_won_total") == 1
    assert told(core, "consumer_paused", GROUP) == 0
    assert told(core, "consumer_threads", GROUP) == 20
    held_up.let_go(0, 1)
    await eventually(lambda: of_topic(core, "cached_messages") == 0)
    assert of_topic(core, "listener_seconds") == histogram(0.4)
    assert of_topic(core, "oldest_message_age_seconds") == 0.0
    assert of_topic(core, "messages_total", "ok") == 2
    await core.set_paused(True)
    assert told(core, "consumer_paused", GROUP) == 1


async def test_what_goes_back_and_what_is_dead(started, a):
    heard = Heard(ConsumeResult.RECONSUME_LATER)
    core = await started(heard, max_reconsume_times=2)
    await a.until_held()
    a.answer(found(0, records=[record(n, reconsume_times=n) for n in range(4)]))
    await eventually(lambda: of_topic(core, "sent_back_total", "ok") == 4)
    assert of_topic(core, "dead_letters_total") == 2, "those that had failed twice and three times before"
    assert of_topic(core, "messages_total", "failed") == 4
    metrics = core.stats.metrics()[TOPIC]
    assert (metrics["sent_back_messages"], metrics["dead_letters"]) == (4, 2)


async def test_a_delay_level_below_zero_makes_a_dead_letter(started, a):
    def listen(messages, context):
        context.delay_level_when_next_consume = -1
        return ConsumeResult.RECONSUME_LATER

    core = await started(listen)
    await a.until_held()
    a.answer(found(0))
    await eventually(lambda: of_topic(core, "dead_letters_total") == 1)


async def test_what_no_broker_takes_back(started, a):
    a.plan(RequestCode.CONSUMER_SEND_MSG_BACK, (ResponseCode.SYSTEM_ERROR, "no"))
    a.always = ResponseCode.MESSAGE_ILLEGAL
    core = await started(Heard(ConsumeResult.RECONSUME_LATER))
    await a.until_held()
    a.answer(found(0))
    await eventually(lambda: of_topic(core, "sent_back_total", "failed") == 1)
    assert (of_topic(core, "sent_back_total", "ok"), of_topic(core, "dead_letters_total")) == (0, 0)


async def test_waits_are_counted_by_their_reason(started, a, clock):
    core = await started()
    await a.until_held()
    a.answer(refused(ResponseCode.SYSTEM_ERROR))
    await eventually(lambda: of_topic(core, "waits_total", "pull_failed") == 1)
    await core.set_paused(True)
    await clock.advance(3.0)
    await eventually(lambda: of_topic(core, "waits_total", "paused") == 1)
    assert core.stats.metrics()[TOPIC]["waits"] == 2


async def test_a_queue_that_stands_still_is_seen(started, a, clock, held_up):
    core = await started(held_up)
    await a.until_held()
    a.answer(found(0))
    await held_up.until(1)
    await clock.advance(25.0)
    assert (of_topic(core, "stalled_queues"), of_topic(core, "stalls_total")) == (0, 0)
    await clock.advance(300.0)
    assert (of_topic(core, "stalled_queues"), of_topic(core, "stalls_total")) == (1, 1)
    held_up.let_go(0)
    await eventually(lambda: of_topic(core, "cached_messages") == 0)
    await clock.advance(10.0)
    assert (of_topic(core, "stalled_queues"), of_topic(core, "stalls_total")) == (0, 1)


async def test_queues_are_won_and_lost(started, a, name_server):
    name_server.set_route("other", {"a": {0: a.address}}, queues=2)
    core = await started(topics={TOPIC: "*", "other": "*"})
    assert of_topic(core, "queues_won_total", topic="other") == 2
    await core.subscribing.unsubscribe("other")
    await core.rebalance()
    assert of_topic(core, "queues_lost_total", topic="other") == 2
    assert of_topic(core, "queues_lost_total") == 0
    assert of_topic(core, "assigned_queues", topic="other") is None
    assert told(core, "consumer_rebalances_total", GROUP, "balanced") >= 2


async def test_a_pass_that_fails_is_told_apart(started, a, name_server):
    core = await started()
    a.plan(RequestCode.GET_CONSUMER_LIST_BY_GROUP, (ResponseCode.SYSTEM_ERROR, "no"))
    assert not await core.rebalance()
    assert told(core, "consumer_rebalances_total", GROUP, "again") == 1


async def test_counts_are_in_the_registry_and_outlive_the_consumer(started, a):
    heard = Heard()
    group = "outliving"
    core = await started(heard, group=group)

    def counted() -> dict[str, object]:
        return {s.metric.name: s.value for s in registry.collect() if s.labels[:2] == (group, TOPIC)}

    await a.until_held()
    a.answer(found(0, 3))
    await eventually(lambda: core.stats.metrics()[TOPIC]["ok_messages"] == 3)
    assert counted()["rocketstream_consumer_lag_messages"] == 0
    await core.shutdown()
    assert id(core) not in registry._sources
    assert counted()["rocketstream_consumer_pulled_messages_total"] == 3
    assert "rocketstream_consumer_lag_messages" not in counted()


class TestPop:
    """Popped messages."""

    @pytest.fixture
    async def a(self) -> AsyncIterator[PopBroker]:
        async with PopBroker("a") as server:
            yield server

    async def test_acks_and_those_that_come_again(self, started, a):
        def listen(messages, context):
            return ConsumeResult.SUCCESS if messages[0].queue_offset else ConsumeResult.RECONSUME_LATER

        core = await started(listen)
        await a.until_popped(1)
        a.give(popped([0, 1, 2]))
        await eventually(lambda: told(core, "pop_acks_total", GROUP, "ok") == 2)
        await eventually(lambda: told(core, "pop_nacks_total", GROUP, "ok") == 1)
        assert of_topic(core, "pulled_messages_total") == 3
        assert sum(of_topic(core, "listener_seconds").counts) == 3

    async def test_a_lease_that_is_over(self, started, a, clock, held_up):
        core = await started(held_up)
        await a.until_popped(1)
        a.give(popped([5]))
        await held_up.until(1)
        assert of_topic(core, "cached_messages") == 1
        await clock.advance(61.0)
        held_up.let_go(5)
        await eventually(lambda: told(core, "pop_expired_total", GROUP, TOPIC) == 1)
        assert told(core, "pop_acks_total", GROUP, "ok") is None
        assert of_topic(core, "messages_total", "ok", topic=RETRY) in (None, 0)
