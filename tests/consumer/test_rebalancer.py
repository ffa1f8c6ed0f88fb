"""One consumer's share of the queues: how it is found, what winning and losing a queue does, what changes nothing."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import MessageModel, RequestCode, ResponseCode
from rocketstream.wire.command import response
from tests.consumer.peers import GROUP, RETRY, Heard, request_of
from tests.producer.peers import SILENCE
from tests.scripted import eventually

MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP
QUERY = RequestCode.QUERY_CONSUMER_OFFSET
ERROR = (ResponseCode.SYSTEM_ERROR, "out of order")
# Sorts before or after every client id, which begins with an address.
FIRST, LAST = "!", "~"


@pytest.fixture
def four(name_server, a):
    """Topic t has four queues on broker a."""
    name_server.set_route("t", {"a": {0: a.address}}, queues=4)


def ids(core, topic="t"):
    return [queue.queue_id for queue in core.rebalancer.assigned if queue.topic == topic]


# --- which queues -----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("REB-03")
async def test_broadcasting_takes_all_queues_whoever_else_is_there(started, four, a, tmp_path):
    a.other_members = [FIRST, LAST]
    core = await started(model=MessageModel.BROADCASTING, local_offset_dir=tmp_path)
    assert ids(core) == [0, 1, 2, 3]
    assert a.requests(MEMBERS) == []


@pytest.mark.behaviour("REB-03")
async def test_clustering_shares_the_queues_and_all_members_come_to_the_same_answer(started, four, a):
    cores = [await started() for _ in range(3)]
    for core in cores:
        assert await core.rebalance()
    shares = [ids(core) for core in cores]
    assert sorted(number for share in shares for number in share) == [0, 1, 2, 3]
    assert sorted(map(len, shares)) == [1, 1, 2]
    by_id = [ids(core) for core in sorted(cores, key=lambda core: core.client_id)]
    assert by_id == [[0, 1], [2], [3]], "the sorted queues go to the sorted members"


class Strategy:
    """A user's own: gives everything, or what it is told, or raises; notes what it is asked."""

    name = "own"

    def __init__(self):
        self.asked = []
        self.answer = None

    def allocate(self, group, me, queues, members):
        self.asked.append((group, me, list(queues), list(members), threading.current_thread()))
        if isinstance(self.answer, Exception):
            raise self.answer
        return list(queues) if self.answer is None else self.answer


@pytest.mark.behaviour("REB-03")
async def test_the_strategy_gets_sorted_queues_and_members_on_another_thread(started, name_server, a, b):
    name_server.set_route("t", {"b": {0: b.address}, "a": {0: a.address}}, queues=2)
    a.other_members = b.other_members = [LAST, FIRST]
    own = Strategy()
    core = await started(allocate_strategy=own)
    group, me, queues, members, thread = own.asked[0]
    assert (group, me, members) == (GROUP, core.client_id, [FIRST, core.client_id, LAST])
    assert queues == [a.queue(0), a.queue(1), b.queue(0), b.queue(1)]
    assert thread is not threading.current_thread()


@pytest.mark.behaviour("REB-04")
@pytest.mark.parametrize(
    "wrong", [ZeroDivisionError("no idea"), [MessageQueue("other", "a", 0)]], ids=["raises", "strange queues"]
)
async def test_a_strategy_that_raises_is_logged_and_changes_nothing(started, four, a, caplog, wrong):
    own = Strategy()
    core = await started(allocate_strategy=own)
    before = dict(core.rebalancer.requests)
    own.answer = wrong
    assert not await core.rebalance(), "it is tried again soon"
    assert core.rebalancer.requests == before
    assert not any(request.process_queue.dropped for request in before.values())
    assert "group g: the queues of topic 't' stay as they are: " in caplog.text
    text = str(wrong) if isinstance(wrong, Exception) else "gave queues that the topic does not have"
    assert text in caplog.text
    assert text in (await core.overview.status()).problems["t"]
    own.answer = [a.queue(2)]
    assert await core.rebalance()
    assert ids(core) == [2]
    assert (await core.overview.status()).problems == {}


async def test_a_broker_that_does_not_list_us_changes_nothing_and_gets_a_heartbeat(started, four, a, clock):
    core = await started()
    a.heartbeats.clear()  # as if it had been restarted
    assert not await core.rebalance()
    assert ids(core) == [0, 1, 2, 3]
    assert not any(request.process_queue.dropped for request in core.rebalancer.requests.values())
    problem = (await core.overview.status()).problems["t"]
    assert problem == "the broker does not list this client among the members of group g"
    await eventually(lambda: len(a.heartbeats) == 1)
    assert await core.rebalance()
    assert a.updates == []


@pytest.mark.behaviour("REB-02")
async def test_a_topic_that_fails_is_logged_and_the_others_go_on(started, name_server, a, b, caplog):
    name_server.set_route("t", {"a": {0: a.address}}, queues=2)
    name_server.set_route("u", {"b": {0: b.address}}, queues=2)
    name_server.set_route("v", {"a": {0: a.address}}, queues=2)
    core = await started(topics={"t": "*", "u": "*", "v": "*"})
    a.other_members = b.other_members = [LAST]
    b.plan(MEMBERS, ERROR)
    assert not await core.rebalance()
    assert (ids(core, "t"), ids(core, "u"), ids(core, "v")) == ([0], [0, 1], [0])
    (said,) = (entry for entry in caplog.records if "stay as they are" in entry.getMessage())
    assert "topic 'u'" in said.getMessage()
    assert "out of order" in said.getMessage()
    assert await core.rebalance()
    assert ids(core, "u") == [0]


@pytest.mark.behaviour("REB-02")
async def test_a_retry_topic_that_fails_is_not_logged(started, name_server, a, b, caplog):
    name_server.set_route(RETRY, {"b": {0: b.address}}, queues=1)
    core = await started()
    b.plan(MEMBERS, ERROR)
    caplog.clear()
    assert not await core.rebalance()
    assert [entry.getMessage() for entry in caplog.records if RETRY in entry.getMessage()] == []


async def test_a_retry_topic_that_does_not_exist_yet_is_no_reason_to_hurry(started, caplog):
    core = await started()
    assert await core.rebalance()
    assert (await core.overview.status()).problems == {}
    assert RETRY not in caplog.text


# --- winning ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("REB-05")
async def test_a_queue_that_is_won_is_pulled_at_once_from_its_stored_offset(started, four, a):
    a.other_members = [FIRST]
    a.offsets[GROUP, "t", 0] = 11
    core = await started()
    assert ids(core) == [2, 3]
    a.other_members = []
    await core.rebalance()
    assert ids(core) == [0, 1, 2, 3]
    await a.until_held(0)
    assert a.pulled_offsets(0) == [11]
    request = request_of(core, a.queue(0))
    assert (request.queue, request.group, request.process_queue.count) == (a.queue(0), GROUP, 0)


@pytest.mark.behaviour("REB-05")
async def test_a_queue_that_comes_back_begins_where_others_left_it_with_a_new_process_queue(started, a):
    heard = Heard()
    core = await started(heard)
    a.store(*"abc")
    await heard.until(3)
    old = request_of(core, a.queue()).process_queue
    a.other_members = [FIRST]
    await core.rebalance()
    a.offsets[GROUP, "t", 0] = 9
    a.other_members = []
    await core.rebalance()
    await eventually(lambda: a.pulled_offsets()[-1] == 9)
    assert request_of(core, a.queue()).process_queue is not old


@pytest.mark.behaviour("REB-06")
@pytest.mark.parametrize("outcome", [ERROR, SILENCE], ids=["an error", "no answer"])
@pytest.mark.parametrize("code", [QUERY, RequestCode.GET_MAX_OFFSET], ids=["stored", "newest"])
async def test_a_queue_whose_offset_cannot_be_found_out_is_skipped_and_tried_again(
    started, four, a, clock, caplog, code, outcome
):
    a.other_members = [FIRST]
    core = await started()
    a.other_members = []
    a.max_offsets["t", 0] = 5
    before = len(a.requests(code))
    answer = a._query_offset if code is QUERY else (lambda c: a._offset(c, a.max_offsets, lambda queue: queue.end))

    def broken(command):
        if command.fields["queueId"] != "0":
            return answer(command)
        return None if outcome is SILENCE else response(command, *ERROR)

    a.on(code, broken)
    await clock.advance(20.0)
    await eventually(lambda: len(a.requests(code)) >= before + 2)
    if outcome is SILENCE:
        await clock.advance(5.0)
    await eventually(lambda: "the queue is left alone for now" in caplog.text)
    await eventually(lambda: ids(core) == [1, 2, 3])  # the others are not held up
    assert a.pulls_of(0) == []
    a.on(code, answer)
    await clock.advance(1.0)
    await a.until_held(0)
    assert a.pulled_offsets(0) == [5]


@pytest.mark.behaviour("REB-07")
async def test_an_orderly_queue_is_pulled_only_once_it_is_locked(started, four, a, clock):
    a.locks[a.queue(0)] = "somebody else"
    core = await started(orderly=True)
    assert ids(core) == [1, 2, 3]
    await a.until_held(1)
    assert a.pulls_of(0) == []
    await clock.advance(1.0)  # again after a second, though no broker says that anything has changed
    await eventually(lambda: core.stats.of_group.rebalances["again"] == 2)
    assert sum(a.queue(0) in lock.mq_set for lock in a.lock_requests) == 2
    await clock.advance(0.9)
    assert a.pulls_of(0) == []
    del a.locks[a.queue(0)]
    await clock.advance(0.1)
    await a.until_held(0)
    assert a.locks[a.queue(0)] == core.client_id
    assert request_of(core, a.queue(0)).process_queue.locked


@pytest.mark.behaviour("REB-07")
@pytest.mark.parametrize("outcome", [ERROR, SILENCE], ids=["an error", "no answer"])
async def test_no_answer_is_no_lock(started, four, a, clock, outcome):
    a.other_members = [FIRST]
    core = await started(orderly=True)
    a.other_members = []
    a.plan(RequestCode.LOCK_BATCH_MQ, outcome)
    passing = asyncio.ensure_future(core.rebalance())
    await eventually(lambda: not a._plans[RequestCode.LOCK_BATCH_MQ])
    if outcome is SILENCE:
        await clock.advance(1.0)  # which is how long an answer is waited for
    assert not await passing
    assert ids(core) == [2, 3]
    assert (a.pulls_of(0), a.pulls_of(1)) == ([], [])
    assert await core.rebalance()
    assert ids(core) == [0, 1, 2, 3]


async def test_a_lock_that_was_taken_in_vain_is_given_back(started, four, a):
    a.other_members = [FIRST]
    core = await started(orderly=True)
    await a.until_held(2)
    await a.until_held(3)
    a.other_members = []
    a.plan(QUERY, ERROR, ERROR)
    assert not await core.rebalance()
    assert ids(core) == [2, 3]
    assert set(a.locks) == {a.queue(2), a.queue(3)}, "whoever gets them next need not wait"


@pytest.mark.behaviour("REB-07")
async def test_an_orderly_broadcast_needs_no_locks(started, four, a, tmp_path):
    core = await started(orderly=True, model=MessageModel.BROADCASTING, local_offset_dir=tmp_path)
    assert ids(core) == [0, 1, 2, 3]
    assert a.lock_requests == []


# --- losing -----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("REB-05")
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_queue_that_is_lost_is_dropped_stored_and_forgotten(started, a, orderly):
    heard = Heard(OrderlyResult.SUCCESS if orderly else ConsumeResult.SUCCESS)
    core = await started(heard, orderly=orderly)
    await a.until_held()
    a.store(*"abc")
    await heard.until(3)
    await a.until_held()
    request = request_of(core, a.queue())
    await eventually(lambda: not request.process_queue.count)
    pulls = len(a.pulls)
    a.other_members = [FIRST]
    await core.rebalance()
    assert request.process_queue.dropped
    assert core.rebalancer.requests == {}
    assert a.updates == [("t", 0, 3)]
    assert core.offsets.read_memory(a.queue()) == -1
    unlocked = [queue for body in a.unlock_requests for queue in body.mq_set]
    assert unlocked == ([a.queue()] if orderly else [])
    assert a.locks == {}
    a.store("d")
    await eventually(lambda: not a.is_held())
    await core.rebalance()
    assert len(a.pulls) == pulls, "the answer of the last pull brings no further one"
    assert len(heard.messages) == 3
