"""The lite pull consumer against scripted brokers: its requests, what polls and loops give, what is committed when."""

from __future__ import annotations

import asyncio
import gc

import pytest

from rocketstream.errors import (
    ClientStateError,
    ConfigurationError,
    OffsetStoreError,
    QueueNotAssignedError,
)
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import ConsumeType, RequestCode, ResponseCode
from tests.consumer.lite_peers import face_of, make_lite_core, offsets, poll
from tests.consumer.peers import GROUP, TOPIC, ConsumerBroker, request_of
from tests.consumer.pull_answers import found, no_matched, record
from tests.scripted import eventually

# --- what brokers see -------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PULL-14", "PULL-20")
async def test_a_lite_pull_has_its_own_code_and_flags(puller, a: ConsumerBroker):
    await puller(topics={TOPIC: "x || y"})
    pull = await a.until_held()
    assert pull.code == RequestCode.LITE_PULL_MESSAGE
    assert pull.fields["sysFlag"] == str(2 | 4 | 16), "suspend, subscription, lite pull; no offset is committed by it"
    assert (pull.fields["subscription"], pull.fields["expressionType"]) == ("x || y", "TAG")
    assert (pull.fields["commitOffset"], pull.fields["suspendTimeoutMillis"]) == ("0", "20000")
    assert a.requests(RequestCode.PULL_MESSAGE) == []


async def test_pulls_after_a_commit_carry_no_offset_either(puller, a: ConsumerBroker):
    a.store("0")
    core = await puller()
    await poll(core)
    await core.commit(None)
    a.store("1")
    await poll(core)
    pull = await a.until_held()
    assert (pull.fields["queueOffset"], pull.fields["sysFlag"], pull.fields["commitOffset"]) == ("2", "22", "0")


async def test_brokers_are_told_of_a_member_that_consumes_actively(puller, a: ConsumerBroker):
    await puller()
    (data,) = a.heartbeats[-1].consumer_data_set
    assert data.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert [sub.topic for sub in data.subscription_data_set] == [TOPIC], "no retry topic: nothing is sent back"
    assert a.requests(RequestCode.QUERY_ASSIGNMENT) == [], "members share the queues out among themselves"


# --- polling ----------------------------------------------------------------------------------------------------------


async def test_a_poll_gives_what_one_pull_brought(puller, a: ConsumerBroker):
    a.store(*"01234")
    core = await puller(pull_batch_size=2)
    assert [offsets(await poll(core)) for _ in range(3)] == [[0, 1], [2, 3], [4]]
    assert await poll(core, 0) == []
    assert core.stats.snapshot()[TOPIC]["ok_messages"] == 5


async def test_a_poll_that_waits_is_woken(puller, a: ConsumerBroker):
    core = await puller()
    waiting = asyncio.ensure_future(poll(core))
    await a.until_held()
    a.store("0")
    assert offsets(await waiting) == [0]


async def test_what_a_filter_hook_removes_is_not_given(puller, a: ConsumerBroker):
    a.store(record(0, tags="x"), record(1, tags="y"), record(2, tags="x"))
    core = await puller(topics={TOPIC: "x"})
    assert offsets(await poll(core)) == [0, 2]


@pytest.mark.parametrize("timeout", [-1, "1", True, float("nan")])
async def test_a_wrong_timeout_is_refused(puller, timeout):
    core = await puller()
    with pytest.raises(ConfigurationError, match=r"timeout=.* must be a number of seconds, 0 or more, or None"):
        await face_of(core).poll(timeout)


async def test_a_poll_before_the_start_or_after_the_end_is_refused(name_server, clock, a: ConsumerBroker):
    core = make_lite_core(name_server.address, clock)
    with pytest.raises(ClientStateError, match="lite pull consumer of group 'g' is CREATE_JUST: call start"):
        await face_of(core).poll(0)
    await core.start()
    await a.until_held()
    waiting = asyncio.ensure_future(face_of(core).poll(600))
    await eventually(lambda: len(core.polls.stock._waiting) == 1)
    await core.shutdown(1.0)
    assert await waiting == [], "who waits is let go"
    with pytest.raises(ClientStateError, match="has been shut down"):
        await face_of(core).poll(0)
    with pytest.raises(ClientStateError, match="cannot start: it is SHUTDOWN_ALREADY"):
        await core.start()


async def test_a_cancelled_poll_takes_nothing(puller, a: ConsumerBroker):
    core = await puller()
    face, stock = face_of(core), core.polls.stock
    await a.until_held()
    first, second = (asyncio.ensure_future(face.poll(600)) for _ in range(2))
    await eventually(lambda: len(stock._waiting) == 2)
    stock._waiting[0].add_done_callback(lambda _: first.cancel())  # woken, and cancelled before it can look
    a.store("0")
    with pytest.raises(asyncio.CancelledError):
        await first
    assert offsets(await second) == [0], "the other is woken in its place"


async def test_polls_that_are_given_up_leave_nothing_behind(puller, a: ConsumerBroker):
    core = await puller()
    for _ in range(5):
        assert await face_of(core).poll(0.001) == []
    cancelled = asyncio.ensure_future(face_of(core).poll(600))
    await eventually(lambda: len(core.polls.stock._waiting) == 1)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert not core.polls.stock._waiting


# --- loops ------------------------------------------------------------------------------------------------------------


async def test_a_loop_that_breaks_off_leaves_the_rest_to_the_next(puller, a: ConsumerBroker):
    a.store(*"01234")
    core = await puller()
    face, seen = face_of(core), []
    async for message in face:
        seen.append(message.queue_offset)
        if len(seen) == 2:
            break
    gc.collect()
    core.polls.settle()
    assert request_of(core, a.queue()).process_queue.position == 2
    assert offsets(await poll(core)) == [2, 3, 4]
    assert seen == [0, 1]


async def test_a_loop_finishes_a_message_when_it_asks_for_the_next(puller, a: ConsumerBroker):
    a.store(*"0123")
    core = await puller()
    messages = face_of(core).__aiter__()
    for _ in range(3):
        await anext(messages)
    core.polls.settle()
    assert core.offsets.read_memory(a.queue()) == 2, "the third is still being worked on"
    await core.commit(None)
    assert a.updates[-1] == (TOPIC, 0, 3), "a commit says that it is finished too"
    await anext(messages)
    await core.commit(None)
    assert a.updates[-1] == (TOPIC, 0, 4)
    assert request_of(core, a.queue()).process_queue.count == 0


async def test_a_loop_ends_with_the_consumer(puller, a: ConsumerBroker):
    a.store(*"012")
    core = await puller()
    seen = []
    async for message in face_of(core):
        seen.append(message.queue_offset)
        if len(seen) == 2:
            await core.shutdown(1.0)
    assert seen == [0, 1]
    assert a.updates[-1] == (TOPIC, 0, 2), "what was not given out is not committed"


async def test_a_loop_gives_nothing_of_a_queue_that_was_moved_in(puller, a: ConsumerBroker):
    a.store(*"0123")
    core = await puller()
    messages = face_of(core).__aiter__()
    await anext(messages)
    await core.seek(a.queue(), 3)
    assert (await anext(messages)).queue_offset == 3


# --- committing -------------------------------------------------------------------------------------------------------


async def test_what_was_polled_is_committed_once_the_next_poll_was_made(puller, a: ConsumerBroker, clock):
    a.store(*"01234")
    core = await puller(pull_batch_size=2)
    await poll(core)
    await clock.advance(5.0)
    await a.until_held()
    assert a.updates == [], "the program may still be working on it"
    await poll(core)
    assert await core.committed(a.queue()) == 2
    await asyncio.sleep(0)
    assert a.updates == [], "not before its time"
    await clock.advance(5.0)
    await eventually(lambda: a.updates == [(TOPIC, 0, 2)])
    await poll(core)
    await poll(core, 0)  # finds nothing, but says that all is finished
    await clock.advance(5.0)
    await eventually(lambda: a.updates == [(TOPIC, 0, 2), (TOPIC, 0, 5)])


async def test_the_interval_of_commits_can_be_set(puller, a: ConsumerBroker, clock):
    a.store("0")
    core = await puller(auto_commit_interval=60.0)
    await poll(core)
    await poll(core, 0)
    await clock.advance(55.0)
    await asyncio.sleep(0)
    assert a.updates == []
    await clock.advance(5.0)
    await eventually(lambda: a.updates == [(TOPIC, 0, 1)])


async def test_without_auto_commit_only_commits_count(puller, a: ConsumerBroker, clock):
    a.store(*"012")
    core = await puller(pull_batch_size=1, auto_commit=False)
    await poll(core)
    await poll(core)
    await clock.advance(20.0)
    await asyncio.sleep(0)
    assert (a.updates, await core.committed(a.queue())) == ([], None)
    await core.commit(None)
    assert (a.updates, await core.committed(a.queue())) == ([(TOPIC, 0, 2)], 2)
    await poll(core)
    await core.shutdown(1.0)
    assert {offset for _, _, offset in a.updates} == {2}


async def test_who_only_reads_writes_nothing(puller, a: ConsumerBroker, clock):
    a.store(*"012")
    a.offsets[GROUP, TOPIC, 0] = 1
    core = await puller(auto_commit=False)
    assert offsets(await poll(core)) == [1, 2]
    assert await core.committed(a.queue()) == 1
    a.offsets[GROUP, TOPIC, 0] = 3  # others of the group have gone on
    await clock.advance(60.0)
    assert await core.committed(a.queue()) == 3
    await core.shutdown(1.0)
    assert a.updates == []


async def test_auto_commit_may_be_switched(puller, a: ConsumerBroker, clock):
    a.store("0")
    core = await puller(auto_commit=False)
    await poll(core)
    await poll(core, 0)
    assert core.offsets.read_memory(a.queue()) == -1
    core.set_auto_commit(True)
    assert core.offsets.read_memory(a.queue()) == 1


async def test_offsets_can_be_committed_that_the_program_says(puller, a: ConsumerBroker):
    a.store(*"01234")
    core = await puller(auto_commit=False)
    await poll(core)
    await core.commit({a.queue(): 3})
    assert a.updates == [(TOPIC, 0, 3)]
    await core.commit({a.queue(): 1})
    assert a.updates[-1] == (TOPIC, 0, 1), "also back"
    other = MessageQueue(TOPIC, "a", 7)
    for what in ({other: 1}, [other]):
        with pytest.raises(QueueNotAssignedError, match="group 'g' does not have t@a:7: it is another member's"):
            await core.commit(what)
    await core.commit([a.queue()])
    assert a.updates[-1] == (TOPIC, 0, 5)


async def test_a_commit_that_no_broker_takes_is_an_error(puller, a: ConsumerBroker):
    a.store("0")
    core = await puller(auto_commit=False)
    await poll(core)
    a.plan(RequestCode.UPDATE_CONSUMER_OFFSET, (ResponseCode.SYSTEM_ERROR, "disk full"))
    with pytest.raises(OffsetStoreError, match=r"offset 1 of group 'g' in queue 0 .* could not be persisted.*disk"):
        await core.commit(None)


@pytest.mark.parametrize(("well", "stored"), [(True, 4), (False, 2)])
async def test_an_end_commits_what_was_polled_unless_the_program_failed(puller, a: ConsumerBroker, well, stored):
    a.store(*"0123")
    core = await puller(pull_batch_size=2)
    await poll(core)
    await poll(core)
    core.ended_well = well
    await core.shutdown(1.0)
    assert a.updates[-1] == (TOPIC, 0, stored)


async def test_what_is_filtered_away_is_passed_over(puller, a: ConsumerBroker):
    a.answer(no_matched(7))
    core = await puller()
    await a.until_pulled(2)
    assert await core.committed(a.queue()) == 7
    a.answer(found(7), no_matched(20))
    assert offsets(await poll(core)) == [7]
    await a.until_pulled(4)
    assert core.offsets.read_memory(a.queue()) == 7, "the program may still be working on it"
    await poll(core, 0)
    core.polls.settle()
    await core.commit(None)
    assert a.updates[-1] == (TOPIC, 0, 20)
