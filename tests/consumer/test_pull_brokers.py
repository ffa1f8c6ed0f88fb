"""Which broker is pulled from, and what happens when it refuses, is away, or cannot do what is asked."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

import pytest

from rocketstream.consumer.expressions import Sql
from rocketstream.consumer.flow_control import WaitReason
from rocketstream.errors import BrokerNotFoundError
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.consumer.peers import CUT, RETRY, TOPIC, ConsumerBroker, has_offsets, request_of
from tests.consumer.pull_answers import found, illegal, no_matched, no_new, refused
from tests.scripted import eventually

PULL = RequestCode.PULL_MESSAGE


def messages_of(caplog, level=logging.WARNING):
    return [one.getMessage() for one in caplog.records if one.levelno >= level]


async def until_waiting(request, reason, seconds):
    await eventually(lambda: request.waiting is not None)
    assert (request.waiting.reason, request.waiting.seconds) == (reason, seconds)


@pytest.fixture
def with_slave(name_server, a, b):
    """Topic t is at broker a and at b, its slave."""
    name_server.set_route(TOPIC, {"a": {0: a.address, 1: b.address}}, queues=1)


# --- which one ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PULL-16", "RES-01")
@pytest.mark.parametrize("answer", [found(0), no_new(1), no_matched(1)], ids=["FOUND", "NO_NEW_MSG", "NO_MATCHED_MSG"])
@pytest.mark.usefixtures("with_slave")
async def test_the_broker_that_an_answer_suggests_is_asked_next(started, a, b, answer):
    core = await started()
    await a.until_held()  # the master by default
    assert b.pulls == []
    a.answer(replace(answer, suggested=1))
    await b.until_held()
    assert core.puller.targets.broker_id_of(a.queue()) == 1
    assert core.puller.targets.broker_id_of(a.queue(3)) == 0
    assert (len(a.pulls), b.pulled_offsets()) == (1, [1])
    b.answer(found(1, suggested=0))
    await a.until_pulled(2)
    assert a.pulled_offsets() == [0, 2]


@pytest.mark.behaviour("RES-01")
@pytest.mark.usefixtures("with_slave")
async def test_the_suggestion_of_an_illegal_offset_is_remembered_until_the_queue_is_lost(started, a):
    core = await started()
    await a.until_held()
    a.answer(illegal(7, suggested=1))
    await eventually(lambda: core.puller.targets.broker_id_of(a.queue()) == 1)
    core.puller.forget(a.queue())
    assert core.puller.targets.broker_id_of(a.queue()) == 0


@pytest.mark.behaviour("PULL-16")
@pytest.mark.usefixtures("with_slave")
async def test_a_broker_id_that_the_user_chose_is_asked_whatever_is_suggested(started, a, b):
    await started(connect_broker_by_user=1)
    await b.until_held()
    b.answer(found(0, suggested=0))
    await b.until_pulled(2)
    assert a.pulls == []


@pytest.mark.behaviour("PULL-16")
@pytest.mark.parametrize("brokers", [(0, 1), (0,), (1,)], ids=str)
async def test_without_an_address_for_an_id_any_other_of_the_name_is_asked(started, name_server, a, b, brokers):
    started_core = await started()
    await a.until_held()
    addresses = {0: a.address, 1: b.address}
    name_server.set_route(TOPIC, {"a": {number: addresses[number] for number in brokers}}, queues=1)
    await started_core.instance.refresh_routes()
    suggested = 7 if 0 in brokers else 0
    a.answer(found(0, suggested=suggested))
    asked = a if 0 in brokers else b
    await eventually(lambda: asked.pulled_offsets()[-1:] == [1])


@pytest.mark.behaviour("PULL-16")
async def test_without_any_address_the_route_is_fetched_once_more(started, name_server, a, b):
    core = await started()
    await a.until_held()
    core.instance.brokers.keep_only([])
    name_server.set_route(TOPIC, {"a": {0: b.address}}, queues=1)  # it has moved
    before = name_server.asked_for(TOPIC)
    a.answer(no_new(4))
    await b.until_held()
    assert name_server.asked_for(TOPIC) == before + 1
    assert b.pulled_offsets() == [4]


@pytest.mark.behaviour("PULL-16")
async def test_a_broker_that_is_nowhere_is_a_clear_error(started, name_server, a, clock, caplog):
    core = await started()
    await a.until_held()
    core.instance.brokers.keep_only([])
    name_server.set_route(TOPIC, {"elsewhere": {0: a.address}}, queues=1)
    before = name_server.asked_for(TOPIC)
    a.answer(no_new(4))
    request = request_of(core, a.queue())
    await until_waiting(request, WaitReason.PULL_FAILED, 3.0)
    assert name_server.asked_for(TOPIC) == before + 1
    assert "no address is known for broker 'a' (id 0) of topic 't'" in request.waiting.text
    assert any(request.waiting.text in text for text in messages_of(caplog))
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=1)
    await clock.advance(3.0)
    await a.until_pulled(2)


@pytest.mark.behaviour("PULL-17")
@pytest.mark.usefixtures("with_slave")
async def test_a_pull_from_a_slave_commits_nothing(started, a, b):
    core = await started()
    has_offsets(core, a)
    await a.until_held()
    core.offsets.update(a.queue(), 5, increase_only=False)
    a.answer(found(0), found(1, suggested=1))
    slaves = await b.until_held()
    assert a.pulls[1].fields["sysFlag"] == "3"
    assert slaves.fields["sysFlag"] == "2"
    core.offsets.update(a.queue(), 6, increase_only=False)
    b.answer(found(2, suggested=0))
    assert (await a.until_pulled(3)).fields["sysFlag"] == "3"


# --- filters --------------------------------------------------------------------------------------------------------


def filter_by_class(core):
    core.subscriptions[TOPIC] = replace(core.subscriptions[TOPIC], class_filter_mode=True)


def set_filter_servers(name_server, broker, *servers):
    name_server.routes[TOPIC] = replace(
        name_server.routes[TOPIC], filter_server_table={broker.address: tuple(server.address for server in servers)}
    )


@pytest.mark.feature("filters/class")
@pytest.mark.behaviour("PULL-18", "PULL-14")
async def test_a_class_filter_is_asked_at_a_filter_server_of_the_broker(started, name_server, a, b):
    set_filter_servers(name_server, a, b)
    core = await started(post_subscription_when_pull=True)
    has_offsets(core, a)
    await a.until_held()
    filter_by_class(core)
    a.answer(no_new(3))
    pull = await b.until_held()
    assert pull.fields["sysFlag"] == "11"  # 8 class filter, 2 suspend, 1 commit; the subscription (4) does not travel
    assert "subscription" not in pull.fields
    assert (pull.fields["queueOffset"], pull.fields["bname"]) == ("3", "a")
    assert len(a.pulls) == 1


@pytest.mark.behaviour("PULL-18")
async def test_of_several_filter_servers_a_random_one_is_asked(started, name_server, a, b):
    async with ConsumerBroker("c") as c:
        set_filter_servers(name_server, a, b, c)
        core = await started()
        asked = Counter(core.puller.targets.filter_server(TOPIC, a.address) for _ in range(1000))
        assert asked.keys() == {b.address, c.address}
        assert min(asked.values()) > 300
        with pytest.raises(BrokerNotFoundError, match=f"broker {b.address} has no filter server"):
            core.puller.targets.filter_server(TOPIC, b.address)


@pytest.mark.feature("filters/class")
@pytest.mark.behaviour("PULL-18")
async def test_a_class_filter_without_a_filter_server_is_a_clear_error(started, a, caplog):
    core = await started()
    await a.until_held()
    filter_by_class(core)
    a.answer(no_new(3))
    request = request_of(core, a.queue())
    await until_waiting(request, WaitReason.PULL_FAILED, 3.0)
    expected = f"the subscription to topic 't' filters by a class, but broker {a.address} has no filter server"
    assert request.waiting.text == expected
    assert any(expected in text for text in messages_of(caplog))
    assert len(a.pulls) == 1


@pytest.mark.behaviour("PULL-19")
async def test_an_old_broker_cannot_filter_by_more_than_tags(started, a, clock, caplog):
    a.VERSION = 231  # the last before 4.1.0-SNAPSHOT
    core = await started(topics={TOPIC: Sql("n > 3")})
    request = request_of(core, a.queue())
    await until_waiting(request, WaitReason.PULL_FAILED, 3.0)
    expected = (
        f"broker a ({a.address}) is older than 4.1.0 and cannot filter by SQL92, which the subscription to topic 't'"
        " asks for"
    )
    assert request.waiting.text == expected
    assert any(expected in text for text in messages_of(caplog))
    assert a.pulls == []
    a.VERSION = 232
    await core.instance.heartbeat()
    await clock.advance(3.0)
    await a.until_held()


@pytest.mark.behaviour("PULL-19")
async def test_an_old_broker_can_filter_by_tags(started, a):
    a.VERSION = 231
    await started(topics={TOPIC: "x || y"})
    await a.until_held()


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PULL-21")
@pytest.mark.parametrize("failure", [(ResponseCode.SYSTEM_ERROR, "disk full"), CUT], ids=["refused", "cut"])
async def test_a_pull_that_fails_is_tried_again_in_three_seconds(started, a, clock, caplog, failure):
    a.plan(PULL, failure)
    core = await started()
    request = request_of(core, a.queue())
    await until_waiting(request, WaitReason.PULL_FAILED, 3.0)
    assert [text for text in messages_of(caplog) if "pulling" in text and "failed, again in 3 s" in text]
    await clock.advance(2.999)
    assert len(a.requests(PULL)) == 1
    await clock.advance(0.001)
    await a.until_held()
    assert a.pulled_offsets() == [0]


@pytest.mark.behaviour("PULL-21")
async def test_an_answer_that_cannot_be_handled_is_tried_again_in_three_seconds(started, a, clock, monkeypatch):
    core = await started()
    await a.until_held()
    monkeypatch.setattr(core.offsets, "update", lambda *_, **__: 1 / 0)
    pending = len(clock.pending)
    a.answer(no_new(0))
    await eventually(lambda: len(clock.pending) > pending)
    monkeypatch.undo()
    await clock.advance(2.999)
    assert len(a.pulls) == 1
    await clock.advance(0.001)
    await a.until_pulled(2)


@pytest.mark.behaviour("PULL-21")
async def test_a_broker_that_wants_less_is_asked_again_in_twenty_milliseconds(started, a, clock):
    core = await started()
    await a.until_held()
    a.answer(refused(ResponseCode.FLOW_CONTROL))
    await until_waiting(request_of(core, a.queue()), WaitReason.BROKER_FLOW_CONTROL, 0.020)
    await clock.advance(0.019)
    assert len(a.pulls) == 1
    await clock.advance(0.001)
    await a.until_pulled(2)


@pytest.mark.behaviour("PULL-21")
@pytest.mark.parametrize("failure", [(ResponseCode.SYSTEM_ERROR, "no"), ResponseCode.FLOW_CONTROL], ids=str)
async def test_failures_on_the_retry_topic_are_no_warnings(started, name_server, a, clock, caplog, failure):
    name_server.set_route(RETRY, {"a": {0: a.address}}, queues=1)
    core = await started()
    await a.until_held(topic=RETRY)
    await a.until_held()
    code, remark = failure if isinstance(failure, tuple) else (failure, "no")
    a.answer(refused(code, remark), topic=RETRY)
    request = request_of(core, a.queue(topic=RETRY))
    await eventually(lambda: request.waiting is not None)
    assert messages_of(caplog) == []
    await clock.advance(request.waiting.seconds)
    await a.until_pulled(2, topic=RETRY)


@pytest.mark.parametrize("code", [ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST])
async def test_a_broker_that_does_not_know_us_is_sent_a_heartbeat(started, a, code):
    core = await started()
    await a.until_held()
    beats = len(a.heartbeats)
    a.answer(refused(code))
    await until_waiting(request_of(core, a.queue()), WaitReason.PULL_FAILED, 3.0)
    await eventually(lambda: len(a.heartbeats) == beats + 1)


async def test_other_refusals_need_no_heartbeat(started, a):
    core = await started()
    await a.until_held()
    beats = len(a.heartbeats)
    a.answer(refused(ResponseCode.NO_PERMISSION))
    await until_waiting(request_of(core, a.queue()), WaitReason.PULL_FAILED, 3.0)
    assert not core._tasks
    assert len(a.heartbeats) == beats
