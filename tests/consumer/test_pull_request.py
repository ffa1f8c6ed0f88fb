"""A pull request: its flags, its code, its fields, and what a broker gets of them."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from rocketstream.cluster.versions import V5_0_0
from rocketstream.consumer.expressions import Sql
from rocketstream.consumer.flow_control import Wait, WaitReason
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest, pull_code, pull_flags
from rocketstream.message import MessageQueue
from rocketstream.remoting.replies import read_pull_result
from rocketstream.wire.codes import MessageModel, PullStatus, RequestCode, ResponseCode
from rocketstream.wire.command import request as make_request
from tests.consumer.peers import GROUP, TOPIC, has_offsets, request_of
from tests.consumer.pull_answers import found, no_new, refused
from tests.scripted import eventually

# --- flags and codes ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PULL-14")
@pytest.mark.parametrize(
    ("commit", "suspend", "subscription", "class_filter", "lite"), list(itertools.product([False, True], repeat=5))
)
def test_each_flag_is_one_bit(commit, suspend, subscription, class_filter, lite):
    flags = pull_flags(commit=commit, suspend=suspend, subscription=subscription, class_filter=class_filter, lite=lite)
    expected = 1 * commit + 2 * suspend + 4 * (subscription and not class_filter) + 8 * class_filter + 16 * lite
    assert flags == expected


@pytest.mark.behaviour("PULL-14")
def test_a_push_consumers_pull_is_always_held_back():
    assert pull_flags(commit=False, subscription=False, class_filter=False) == 2


@pytest.mark.behaviour("PULL-14")
@pytest.mark.parametrize(("post", "flags", "expression"), [(False, "2", None), (True, "6", "x || y")])
async def test_the_subscription_travels_only_when_that_is_set(started, a, post, flags, expression):
    await started(topics={TOPIC: "x || y"}, post_subscription_when_pull=post)
    pull = await a.until_held()
    assert pull.fields["sysFlag"] == flags
    assert pull.fields.get("subscription") == expression


@pytest.mark.behaviour("PULL-20")
@pytest.mark.parametrize("others", range(16))
def test_the_lite_flag_chooses_the_code(others):
    assert pull_code(others) is RequestCode.PULL_MESSAGE
    assert pull_code(others | 16) is RequestCode.LITE_PULL_MESSAGE
    assert pull_code(others | 16, V5_0_0) is RequestCode.LITE_PULL_MESSAGE
    assert pull_code(others | 16, V5_0_0 - 1) is RequestCode.PULL_MESSAGE, "brokers before 5.0 know no other code"


@pytest.mark.behaviour("PULL-20")
@pytest.mark.parametrize("lite", [False, True])
async def test_a_pull_can_be_waited_for_or_begun(started, a, lite):
    core = await started()
    pull = await a.until_held()
    assert pull.code == RequestCode.PULL_MESSAGE
    assert not pull.is_one_way
    flags = pull_flags(commit=False, subscription=False, class_filter=False, lite=lite)
    remoting, code, fields = core.instance.remoting, pull_code(flags), pull.fields | {"queueId": "7"}
    a.answer(found(3), no_new(4), queue_id=7)
    waited_for = await remoting.invoke(a.address, make_request(code, fields), 5.0)
    begun = remoting.begin(a.address, make_request(code, fields), 5.0)
    assert not begun.done()
    results = [read_pull_result(a.address, code, answer) for answer in (waited_for, await begun)]
    assert [(result.status, result.next_offset) for result in results] == [
        (PullStatus.FOUND, 4),
        (PullStatus.NO_NEW_MSG, 4),
    ]
    assert [one.code for one in a.pulls_of(7)] == [361 if lite else 11] * 2
    assert not any(one.is_one_way for one in a.pulls)


# --- fields ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PULL-15")
async def test_a_pull_has_all_its_fields(started, a, clock):
    a.offsets["g", "t", 0] = 42
    core = await started(topics={TOPIC: "x"})
    a.answer(no_new(43))
    pull = await a.until_pulled(2)
    assert pull.fields == {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "0",
        "queueOffset": "43",
        "maxMsgNums": "32",
        "maxMsgBytes": str(256 * 1024),
        "sysFlag": "3",
        "commitOffset": "43",
        "suspendTimeoutMillis": "15000",
        "subVersion": str(core.subscriptions["t"].sub_version),
        "expressionType": "TAG",
        "bname": "a",
    }
    assert core.subscriptions["t"].sub_version >= clock.wall_ms()


@pytest.mark.behaviour("PULL-15")
async def test_its_fields_follow_the_settings(started, a):
    await started(
        topics={TOPIC: Sql("n > 3")},
        group="others",
        pull_batch_size=7,
        pull_batch_size_in_bytes=4096,
        broker_suspend_max_time=2.5,
        pull_timeout=3.0,
        post_subscription_when_pull=True,
    )
    fields = (await a.until_held()).fields
    assert fields["consumerGroup"] == "others"
    assert (fields["maxMsgNums"], fields["maxMsgBytes"]) == ("7", "4096")
    assert fields["suspendTimeoutMillis"] == "2500"
    assert (fields["expressionType"], fields["subscription"]) == ("SQL92", "n > 3")


@pytest.mark.behaviour("PULL-15")
async def test_each_pull_has_the_offset_and_the_version_of_its_time(started, a):
    core = await started()
    first = await a.until_held()
    await core.queues_changed(TOPIC, 1)  # what a rebalance does: a new version of the subscription
    a.answer(no_new(5))
    second = await a.until_pulled(2)
    assert (first.fields["queueOffset"], second.fields["queueOffset"]) == ("0", "5")
    assert int(second.fields["subVersion"]) > int(first.fields["subVersion"])
    assert second.fields["subVersion"] == str(core.subscriptions[TOPIC].sub_version)


@pytest.mark.behaviour("PULL-15")
async def test_a_pull_is_given_up_after_thirty_seconds(started, a, clock):
    core = await started()
    await a.until_held()
    request = request_of(core, a.queue())
    await clock.advance(29.9)
    assert request.waiting is None
    await clock.advance(0.1)
    await eventually(lambda: request.waiting is not None)
    assert request.waiting.reason is WaitReason.PULL_FAILED
    assert len(a.pulls) == 1


@pytest.mark.behaviour("PULL-15")
async def test_queues_do_not_wait_for_each_others_pulls(started, a, name_server):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=3)
    await started()
    for queue_id in range(3):
        await a.until_held(queue_id)
    a.answer(no_new(8), queue_id=1)
    await a.until_pulled(2, queue_id=1)
    assert [len(a.pulls_of(queue_id)) for queue_id in range(3)] == [1, 2, 1]


@pytest.mark.behaviour("PULL-13")
@pytest.mark.parametrize(("offset", "field", "flags"), [(-1, "0", "2"), (0, "0", "2"), (1, "1", "3"), (99, "99", "3")])
async def test_the_offset_in_memory_travels_with_a_pull_and_is_flagged_above_zero(started, a, offset, field, flags):
    core = await started()
    has_offsets(core, a)
    await a.until_held()
    if offset >= 0:
        core.offsets.update(a.queue(), offset, increase_only=False)
    core.offsets.update(MessageQueue(TOPIC, "a", 5), 77, increase_only=False)  # another queue's
    a.answer(found(0))
    pull = await a.until_pulled(2)
    assert (pull.fields["commitOffset"], pull.fields["sysFlag"]) == (field, flags)


@pytest.mark.behaviour("PULL-13", "OFF-03")
async def test_the_first_offset_of_a_topic_is_written_and_the_next_one_travels(started, a):
    """Two pulls that a broker handles at the same time would make two tables of the group, of which one is lost."""
    core = await started()
    await a.until_held()
    core.offsets.update(a.queue(), 7, increase_only=False)
    a.answer(no_new(0))
    pull = await a.until_pulled(2)
    assert (pull.fields["commitOffset"], pull.fields["sysFlag"]) == ("0", "2")
    await eventually(lambda: a.offsets.get((GROUP, TOPIC, 0)) == 7)
    await eventually(lambda: request_of(core, a.queue()).committed == 7)
    core.offsets.update(a.queue(), 8, increase_only=False)
    a.answer(no_new(0))
    assert (await a.until_pulled(3)).fields["commitOffset"] == "8"


@pytest.mark.behaviour("PULL-13")
async def test_what_the_broker_has_is_not_carried_again(started, a):
    a.offsets["g", "t", 0] = 42
    core = await started()
    first = await a.until_held()
    assert (first.fields["commitOffset"], first.fields["sysFlag"]) == ("0", "2"), "the broker has said so itself"
    request = request_of(core, a.queue())
    a.answer(no_new(43))
    second = await a.until_pulled(2)
    assert (second.fields["commitOffset"], second.fields["sysFlag"]) == ("43", "3")
    assert (request.carries, request.committed) == (43, 42)
    a.answer(no_new(43))
    third = await a.until_pulled(3)
    assert (third.fields["commitOffset"], third.fields["sysFlag"]) == ("0", "2"), "that pull was answered"
    assert (request.carries, request.committed) == (0, 43)
    core.offsets.update(a.queue(), 44, increase_only=False)
    await core.persist_offsets()
    a.answer(found(43))
    fourth = await a.until_pulled(4)
    assert (fourth.fields["commitOffset"], fourth.fields["sysFlag"]) == ("0", "2"), "it was written"


@pytest.mark.behaviour("PULL-13")
async def test_a_broker_that_was_away_is_told_again(started, a, clock):
    """It may have crashed before the offset was on its disk."""
    a.offsets["g", "t", 0] = 42
    core = await started()
    await a.until_held()
    a.answer(no_new(43))
    await a.until_pulled(2)
    a.answer(no_new(43))
    quiet = await a.until_pulled(3)
    assert quiet.fields["commitOffset"] == "0", "the broker has 43"
    assert request_of(core, a.queue()).committed == 43
    for peer in list(a.peers):
        peer.cut()
    again = asyncio.ensure_future(a.until_pulled(4))
    while not again.done():
        await clock.advance(0.1)
        await asyncio.sleep(0.002)
    assert ((await again).fields["commitOffset"], (await again).fields["sysFlag"]) == ("43", "3")


@pytest.mark.behaviour("PULL-13")
async def test_a_pull_that_is_refused_has_committed_nothing(started, a, clock):
    core = await started()
    has_offsets(core, a)
    await a.until_held()
    core.offsets.update(a.queue(), 7, increase_only=False)
    a.commits = False
    a.answer(no_new(0), refused(ResponseCode.SYSTEM_ERROR))
    request = request_of(core, a.queue())
    await eventually(lambda: request.waiting is not None)
    assert (request.carries, request.committed) == (0, -1)
    await clock.advance(3.0)
    assert (await a.until_pulled(3)).fields["commitOffset"] == "7"


@pytest.mark.behaviour("PULL-13")
async def test_a_pull_that_is_not_answered_may_have_been_handled(started, a, clock):
    core = await started(client={"persist_offset_interval": 3600.0})
    has_offsets(core, a)
    await a.until_held()
    a.commits = False
    core.offsets.update(a.queue(), 7, increase_only=False)
    a.answer(no_new(0))
    request = request_of(core, a.queue())
    await eventually(lambda: request.carries == 7)
    await clock.advance(30.0)
    await eventually(lambda: request.waiting is not None)
    assert request.carries == 7
    await a.stop()
    await clock.advance(3.0)
    await eventually(lambda: request.carries == 0)
    assert request.committed == -1, "the next one could not even be sent"
    await a.start()


@pytest.mark.behaviour("PULL-13")
async def test_the_answer_for_a_queue_that_was_given_up_counts(started, a):
    core = await started()
    has_offsets(core, a)
    await a.until_held()
    core.offsets.update(a.queue(), 7, increase_only=False)
    a.answer(no_new(0))
    request = request_of(core, a.queue())
    await eventually(lambda: request.carries == 7)
    request.process_queue.drop()
    a.answer(no_new(0))
    await eventually(lambda: request.carries == 0)


@pytest.mark.behaviour("PULL-13")
async def test_a_pull_that_is_sent_while_an_offset_is_written_carries_none(started, a):
    core = await started()
    await a.until_held()
    written, go_on = asyncio.Event(), asyncio.Event()

    async def slow(command):
        written.set()
        await go_on.wait()
        return a._update_offset(command)

    a.plan(RequestCode.UPDATE_CONSUMER_OFFSET, slow)
    core.offsets.update(a.queue(), 7, increase_only=False)
    writing = asyncio.ensure_future(core.persist_offsets())
    await written.wait()
    core.offsets.update(a.queue(), 8, increase_only=False)
    a.answer(no_new(0))
    assert (await a.until_pulled(2)).fields["commitOffset"] == "0"
    go_on.set()
    await writing
    a.answer(no_new(0))
    assert (await a.until_pulled(3)).fields["commitOffset"] == "8"


@pytest.mark.behaviour("PULL-13")
async def test_broadcasting_commits_nothing_with_a_pull(started, a, tmp_path):
    core = await started(model=MessageModel.BROADCASTING, local_offset_dir=tmp_path)
    await a.until_held()
    core.offsets.update(a.queue(), 99, increase_only=False)
    a.answer(found(0))
    pull = await a.until_pulled(2)
    assert (pull.fields["commitOffset"], pull.fields["sysFlag"]) == ("0", "2")


def test_its_repr_tells_its_state():
    queue = MessageQueue("t", "a", 3)
    request = PullRequest("g", queue, ProcessQueue(queue), 17)
    assert "next 17, ready, <ProcessQueue t@a:3" in repr(request)
    request.pulling_since = 5.0
    assert "next 17, pulling," in repr(request)
    request.waiting = Wait(1.0, WaitReason.PAUSED, "why")
    assert "next 17, waits: PAUSED," in repr(request)
