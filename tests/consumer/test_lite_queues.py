"""The lite pull consumer against scripted brokers: queues, shared out or by hand, seeks, pauses, limits, its end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rocketstream.cluster.client import ClientState
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.consumer.flow_control import WaitReason
from rocketstream.errors import (
    ClientStateError,
    ConfigurationError,
    OffsetOutOfRangeError,
    QueueNotAssignedError,
)
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.consumer.lite_peers import make_lite_core, offsets, poll
from tests.consumer.lives import nothing_left
from tests.consumer.peers import GROUP, TOPIC, ConsumerBroker, request_of
from tests.consumer.pull_answers import illegal, no_matched, refused
from tests.scripted import ScriptedNameServer, eventually

# --- the queues -------------------------------------------------------------------------------------------------------


async def test_a_queue_that_is_lost_is_never_given_out_and_stored_before(
    puller, a: ConsumerBroker, name_server: ScriptedNameServer
):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=2)
    for queue_id in (0, 1):
        a.store(*"01234", queue_id=queue_id)
    core = await puller(pull_batch_size=2)
    polled = {0: 0, 1: 0}
    while polled[1] < 4:
        messages = await poll(core)
        polled[messages[0].queue_id] += len(messages)
        await asyncio.sleep(0)
    await eventually(lambda: core.polls.stock.count > 0)
    held = request_of(core, a.queue(1)).process_queue
    a.other_members = ["0.0.0.0@first"]  # gets the first queue, or the second: whichever; ours loses one
    await core.rebalance()
    (kept,) = core.rebalancer.assigned
    lost = 1 - kept.queue_id
    stored = [offset for _, queue_id, offset in a.updates if queue_id == lost]
    assert stored, "its offset was stored before it was released"
    assert stored[-1] <= polled[lost]
    while messages := await poll(core, 0):
        assert {message.queue_id for message in messages} == {kept.queue_id}
    assert held.dropped == (lost == 1)


async def test_seeks_are_checked_and_take_effect_at_once(puller, a: ConsumerBroker):
    a.begin_at(10)
    a.store(*"0123456789")
    core = await puller(pull_batch_size=3)
    queue = a.queue()
    assert offsets(await poll(core)) == [10, 11, 12]
    for wrong in (9, 21):
        with pytest.raises(OffsetOutOfRangeError, match=f"t@a:0 has no offset {wrong}: its messages are 10 to 20"):
            await core.seek(queue, wrong)
    await core.seek(queue, 15)
    assert await core.committed(queue) == 15, "a seek is a new place of the group"
    assert offsets(await poll(core)) == [15, 16, 17]
    await core.seek_to_begin(queue)
    assert offsets(await poll(core)) == [10, 11, 12]
    await core.seek_to_end(queue)
    assert await poll(core, 0) == []
    await a.until_held()
    a.offsets_by_time[TOPIC, 0] = 13
    assert await core.offset_for_timestamp(queue, 1) == 13
    await core.seek_to_timestamp(queue, 1)
    assert offsets(await poll(core)) == [13, 14, 15]
    with pytest.raises(QueueNotAssignedError, match="does not have t@a:5"):
        await core.seek(queue._replace(queue_id=5), 0)


async def test_the_answer_to_a_pull_from_before_a_seek_is_ignored(puller, a: ConsumerBroker):
    a.store(*"01")
    core = await puller()
    await poll(core)
    await a.until_held()  # at 2
    a.max_offsets[TOPIC, 0] = 9
    await core.seek(a.queue(), 9)
    await eventually(lambda: a.pulled_offsets()[-1] == 9)
    a.store(*"2345678")  # answers both pulls that wait
    a.store("9")
    assert offsets(await poll(core)) == [9]


async def test_a_paused_queue_is_neither_pulled_nor_given_out(
    puller, a: ConsumerBroker, name_server: ScriptedNameServer, clock
):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=2)
    core = await puller()
    for queue_id in (0, 1):
        await a.until_held(queue_id)
    await core.pause([a.queue(0)])
    a.store("0")  # its pull was under way
    await eventually(lambda: core.polls.stock.count == 1)
    assert await poll(core, 0) == []
    a.store("1", queue_id=1)
    assert [message.queue_id for message in await poll(core)] == [1]
    pulls = len(a.pulls_of(0))
    await clock.advance(10.0)
    (paused, other) = core.overview.queues()
    assert (len(a.pulls_of(0)), paused.waits_for, other.waits_for) == (pulls, "the queue is paused", None)
    assert core.overview.watched() == (other,)
    waiting = asyncio.ensure_future(poll(core))
    await eventually(lambda: len(core.polls.stock._waiting) == 1)
    await core.resume(None)
    assert [message.queue_id for message in await waiting] == [0]
    await a.until_pulled(pulls + 1)
    with pytest.raises(QueueNotAssignedError):
        await core.pause([a.queue(9)])


async def test_so_much_of_a_queue_and_of_all_is_pulled_ahead(
    puller, a: ConsumerBroker, name_server: ScriptedNameServer
):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=2)
    for queue_id in (0, 1):
        a.store(*map(str, range(60)), queue_id=queue_id)
    core = await puller(pull_batch_size=5, pull_threshold_for_queue=20, pull_threshold_for_all=30)
    await eventually(lambda: all(r.waiting is not None for r in core.rebalancer.requests.values()))
    assert 30 < core.polls.stock.count <= 50
    assert all(r.process_queue.count <= 25 for r in core.rebalancer.requests.values())
    texts = {status.waits_for for status in core.overview.queues()}
    assert texts == {"message 0 waits to be polled"}
    # No clock moves: what is polled makes room.
    seen = {0: [], 1: []}
    while sum(map(len, seen.values())) < 120:
        for message in await poll(core):
            seen[message.queue_id].append(message.queue_offset)
    assert seen == {0: list(range(60)), 1: list(range(60))}


async def test_so_much_of_all_queues_together_is_pulled_ahead(
    puller, a: ConsumerBroker, name_server: ScriptedNameServer
):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=4)
    for queue_id in range(4):
        a.store(*map(str, range(50)), queue_id=queue_id)
    core = await puller(pull_batch_size=5, pull_threshold_for_all=40)
    requests = core.rebalancer.requests.values()
    await eventually(lambda: all(r.waiting is not None for r in requests))
    assert {r.waiting.reason for r in requests} == {WaitReason.ALL}
    assert 40 < core.polls.stock.count <= 40 + 2 * 4 * 5
    seen = 0
    while seen < 200:  # no clock moves: what is polled makes room
        seen += len(await poll(core))


async def test_a_queue_that_has_nothing_waits_for_the_others_no_longer_than_needed(
    puller, a: ConsumerBroker, name_server: ScriptedNameServer
):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=2)
    a.store(*map(str, range(50)))
    core = await puller(pull_batch_size=5, pull_threshold_for_all=10)
    await eventually(lambda: core.polls.stock.count > 10)
    await a.until_held(1)
    a.answer(no_matched(1), queue_id=1)
    await eventually(lambda: request_of(core, a.queue(1)).waiting is not None)
    pulls = len(a.pulls_of(1))
    while core.polls.stock.count > 5:
        await poll(core)
        core.polls.settle()
    await a.until_pulled(pulls + 1, 1)


async def test_where_a_broker_says_to_go_on_is_the_groups_place(puller, a: ConsumerBroker):
    a.offsets[GROUP, TOPIC, 0] = 3
    a.begin_at(10)
    a.answer(illegal(10, min_offset=10, max_offset=10))
    core = await puller()
    await a.until_pulled(2)
    assert await core.committed(a.queue()) == 10


async def test_an_offset_that_the_broker_has_not_is_corrected(puller, a: ConsumerBroker, clock, caplog):
    a.offsets[GROUP, TOPIC, 0] = 3
    a.begin_at(10)
    a.store(*"01")
    a.answer(illegal(10, min_offset=10, max_offset=12))
    with caplog.at_level(logging.WARNING):
        core = await puller()
        assert offsets(await poll(core)) == [10, 11]
    assert "t@a:0: offset 3 is not one of the broker's (10 to 12): it is pulled from 10 on" in caplog.text
    await a.until_held()
    pulls = len(a.pulls)
    a.answer(illegal(12, min_offset=10, max_offset=12))
    await eventually(lambda: request_of(core, a.queue()).waiting is not None)
    assert len(a.pulls) == pulls, "a broker that contradicts itself is not asked without end"
    await clock.advance(1.0)
    await a.until_pulled(pulls + 1)


async def test_pulls_go_on_after_an_outage(puller, a: ConsumerBroker, clock, caplog):
    a.answer(refused(ResponseCode.SYSTEM_ERROR, "shutting down"))
    core = await puller()
    await eventually(lambda: request_of(core, a.queue()).waiting is not None)
    a.store("0")
    await clock.advance(1.0)
    assert offsets(await poll(core)) == [0]
    assert "pulling t@a:0 failed, again in 1 s" in caplog.text


# --- by hand ----------------------------------------------------------------------------------------------------------


async def test_queues_by_hand(puller, a: ConsumerBroker, name_server: ScriptedNameServer):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=3)
    for queue_id in range(3):
        a.store("0", queue_id=queue_id)
    a.other_members = ["0.0.0.0@first", "1.1.1.1@second"]
    core = await puller(topics={})
    assert core.rebalancer.assigned == ()
    assert await core.fetch_queues(TOPIC) == tuple(a.queue(n) for n in range(3))
    with pytest.raises(ConfigurationError, match=r"assign: topic 't' has no queue 9 on broker 'a' .* a:0, a:1, a:2"):
        await core.assign([a.queue(9)], "*")
    await core.assign([a.queue(0), a.queue(2)], "*")
    assert core.rebalancer.assigned == (a.queue(0), a.queue(2))
    assert a.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == []
    (data,) = a.heartbeats[-1].consumer_data_set
    assert data.subscription_data_set == ()
    polled = [*await poll(core), *await poll(core)]
    assert sorted(message.queue_id for message in polled) == [0, 2]
    with pytest.raises(ClientStateError, match=r"has 2 queues assigned by hand: subscribe\('t'\) and assign\(\) can"):
        await core.subscribe(TOPIC, "*")
    with pytest.raises(ClientStateError, match=r"queues assigned by hand: change them with assign\(\)"):
        await core.unsubscribe(TOPIC)
    with pytest.raises(QueueNotAssignedError, match=r"does not have t@a:1: assign\(\) did not name it"):
        await core.seek(a.queue(1), 0)
    await core.assign([a.queue(1)], "*")
    assert core.rebalancer.assigned == (a.queue(1),)
    await core.rebalance()
    assert core.rebalancer.assigned == (a.queue(1),)
    await core.assign([], "*")
    assert core.rebalancer.assigned == ()


async def test_queues_by_hand_before_the_start(name_server, clock, a: ConsumerBroker):
    core = make_lite_core(name_server.address, clock, topics={})
    await core.assign([a.queue(4)], "x")
    with pytest.raises(ConfigurationError, match="topic 't' has no queue 4"):
        await core.start()
    assert core.state is ClientState.CREATE_JUST
    await core.assign([a.queue(0)], "x")
    await core.start()
    pull = await a.until_held()
    assert pull.fields["subscription"] == "x"
    await core.shutdown(1.0)


async def test_who_subscribes_cannot_assign(puller, a: ConsumerBroker):
    core = await puller()
    with pytest.raises(ClientStateError, match=r"subscribes to 't': subscribe\(\) and assign\(\) cannot be mixed"):
        await core.assign([a.queue()], "*")
    await core.unsubscribe(TOPIC)
    assert core.rebalancer.assigned == ()
    await core.assign([a.queue()], "*")
    assert core.rebalancer.assigned == (a.queue(),)


async def test_a_topic_that_is_subscribed_to_later_is_there_at_once(puller, a: ConsumerBroker):
    core = await puller(topics={})
    await core.subscribe(TOPIC, "*")
    assert core.rebalancer.assigned == (a.queue(),)
    a.store("0")
    assert offsets(await poll(core)) == [0]


async def test_a_queue_listener_may_use_the_consumer(puller, a: ConsumerBroker):
    a.store(*"0123")
    loop, told, cores = asyncio.get_running_loop(), [], []
    begun = asyncio.Event()

    def listen(topic: str, queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> None:
        asyncio.run_coroutine_threadsafe(begun.wait(), loop).result(10)
        for queue in mine:
            asyncio.run_coroutine_threadsafe(cores[0].seek(queue, 2), loop).result(10)
        asyncio.run_coroutine_threadsafe(cores[0].rebalance(), loop).result(10)
        told.append((topic, queues, mine))

    cores.append(await puller(queue_listener=listen))
    begun.set()
    mine = frozenset({a.queue()})
    await eventually(lambda: told == [(TOPIC, mine, mine)])
    assert offsets(await poll(cores[0])) == [2, 3]


# --- its life ---------------------------------------------------------------------------------------------------------


async def test_an_end_leaves_nothing(name_server, clock, a: ConsumerBroker):
    instances = ClientInstances(clock)
    core = make_lite_core(name_server.address, clock, instances=instances)
    await core.start()
    await a.until_held()
    await core.shutdown(1.0)
    assert nothing_left(core, instances, clock)
    assert a.requests(RequestCode.UNREGISTER_CLIENT)[0].fields["consumerGroup"] == GROUP


async def test_an_operator_who_resets_offsets_moves_it(puller, a: ConsumerBroker, clock):
    a.store(*"0123")
    core = await puller()
    await poll(core)
    core.resets.begin(TOPIC, {a.queue(): 1})
    await asyncio.sleep(0)
    await clock.advance(10.0)
    await eventually(lambda: a.offsets.get((GROUP, TOPIC, 0)) == 1)
    await clock.advance(1.0)
    assert offsets(await poll(core)) == [1, 2, 3]
