"""What follows when queues or subscriptions change: who is told, what is divided, what is given away and when."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rocketstream.consumer.expressions import Sql, subscription_to
from rocketstream.consumer.hooks import QueueListener
from rocketstream.consumer.results import OrderlyResult
from rocketstream.errors import BrokerError, TopicRouteNotFoundError
from rocketstream.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import response
from tests.consumer.peers import GROUP, RETRY, Heard, make_core, request_of
from tests.consumer.pull_answers import no_new
from tests.scripted import eventually

BEAT = RequestCode.HEART_BEAT
FIRST = "!"  # sorts before every client id


@pytest.fixture
def four(name_server, a):
    name_server.set_route("t", {"a": {0: a.address}}, queues=4)


def subscriptions(beat):
    (data,) = beat.consumer_data_set
    return {sub.topic: sub for sub in data.subscription_data_set}


# --- orderly: given away when nobody works on it any more -------------------------------------------------------------


@pytest.mark.behaviour("REB-05")
async def test_an_orderly_queue_is_stored_at_once_but_unlocked_only_when_its_listener_has_ended(started, a, clock):
    go_on, calls = threading.Event(), []

    def listen(messages, context):
        calls.append(messages[0].queue_offset)
        if len(calls) == 2:
            go_on.wait(30.0)
        return OrderlyResult.SUCCESS

    core = await started(listen, orderly=True)
    await a.until_held()
    a.store(*"abc")
    await eventually(lambda: len(calls) == 2)
    request = request_of(core, a.queue())
    a.other_members = [FIRST]
    passing = asyncio.ensure_future(core.rebalance())
    await eventually(lambda: request.process_queue.dropped)
    await eventually(lambda: a.updates == [("t", 0, 1)])
    await clock.advance(0.9)
    assert not passing.done(), "it waits for the listener"
    await clock.advance(0.1)
    assert not await passing, "but not longer than a second: it tries again"
    assert a.unlock_requests == []
    assert a.locks == {a.queue(): core.client_id}
    assert core.rebalancer.assigned == ()
    await clock.advance(15.0)  # the timer that stores offsets comes by
    go_on.set()
    await eventually(lambda: not core.consumption._held)
    assert await core.rebalance()
    assert a.locks == {}
    assert core.rebalancer.requests == {}
    assert a.offsets[GROUP, "t", 0] == 1
    assert calls == [0, 1], "what was not begun is the next member's"


# --- REB-08 and subscriptions of a running consumer -------------------------------------------------------------------


@pytest.fixture
def u(name_server, a):
    """Topic u has a queue on broker a."""
    name_server.set_route("u", {"a": {0: a.address}}, queues=1)


@pytest.mark.behaviour("REB-08")
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_queues_of_topics_that_are_not_subscribed_any_more_are_dropped(started, u, a, orderly):
    heard = Heard(OrderlyResult.SUCCESS) if orderly else Heard()
    core = await started(heard, topics={"t": "*", "u": "*"}, orderly=orderly)
    await a.until_held(topic="u")
    a.store("one", topic="u")
    await heard.until(1)
    request = request_of(core, a.queue(topic="u"))
    await eventually(lambda: not request.process_queue.count)
    await core.subscribing.unsubscribe("u")
    assert "u" not in subscriptions(a.heartbeats[-1])
    assert await core.rebalance()
    assert request.process_queue.dropped
    assert core.rebalancer.assigned == (a.queue(),)
    assert a.updates == [("u", 0, 1)]
    assert a.locks == ({a.queue(): core.client_id} if orderly else {})


async def test_the_problems_of_a_topic_end_with_its_subscription(started, u, a, name_server, b):
    name_server.set_route("u", {"b": {0: b.address}}, queues=1)
    core = await started(topics={"t": "*", "u": "*"})
    b.plan(RequestCode.GET_CONSUMER_LIST_BY_GROUP, (ResponseCode.SYSTEM_ERROR, "no"))
    await core.rebalance()
    assert list((await core.overview.status()).problems) == ["u"]
    await core.subscribing.unsubscribe("u")
    await core.rebalance()
    assert (await core.overview.status()).problems == {}


async def test_to_end_a_subscription_that_is_not_there_is_nothing(started, a):
    core = await started()
    beats = len(a.heartbeats)
    await core.subscribing.unsubscribe("nothing")
    assert len(a.heartbeats) == beats


async def test_a_topic_subscribed_later_is_told_and_consumed(started, u, a, clock):
    heard = Heard()
    core = await started(heard)
    await core.subscribing.subscribe("u", "x || y")
    assert subscriptions(a.heartbeats[-1])["u"].tags_set == {"x", "y"}
    await clock.advance(1.0)
    await a.until_held(topic="u")
    a.store("wanted", topic="u", tags="x")
    a.store("not wanted", topic="u", tags="z")
    await heard.until(1)
    assert heard.bodies == [b"wanted"]


async def test_a_new_expression_is_a_new_version(started, a):
    core = await started()
    old = core.subscriptions["t"]
    await core.subscribing.subscribe("t", "x")
    told = subscriptions(a.heartbeats[-1])["t"]
    assert (told.sub_string, told.tags_set) == ("x", {"x"})
    assert told.sub_version > old.sub_version


@pytest.mark.parametrize(
    ("topic", "expression", "error"),
    [("nowhere", "*", TopicRouteNotFoundError), ("u", Sql("a >"), BrokerError)],
    ids=["no route", "refused filter"],
)
async def test_a_subscription_that_cannot_be_leaves_the_consumer_as_it_was(started, u, a, topic, expression, error):
    heard = Heard()
    core = await started(heard)
    before, beats = dict(core.subscriptions), len(a.heartbeats)
    a.plan(RequestCode.CHECK_CLIENT_CONFIG, (ResponseCode.SUBSCRIPTION_PARSE_FAILED, "wrong"))
    with pytest.raises(error):
        await core.subscribing.subscribe(topic, expression)
    assert core.subscriptions == before
    assert len(a.heartbeats) == beats
    a.store("still here")
    await heard.until(1)


# --- REB-09 -----------------------------------------------------------------------------------------------------------


class Told(QueueListener):
    """Notes what it is told, and on which thread."""

    def __init__(self):
        self.news = []
        self.threads = set()

    def on_change(self, topic, all_queues, mine):
        self.threads.add(threading.current_thread())
        self.news.append((topic, sorted(q.queue_id for q in all_queues), sorted(q.queue_id for q in mine)))


@pytest.mark.behaviour("REB-09")
async def test_queues_that_change_are_told_to_brokers_limits_and_the_users_listener(started, four, a, clock):
    told = Told()
    core = await started(queue_listener=told, pull_threshold_for_topic=100, pull_threshold_size_for_topic=8)
    assert told.news == [("t", [0, 1, 2, 3], [0, 1, 2, 3])]
    assert (core.limits_of("t").count, core.limits_of("t").size_bytes) == (25, 2 << 20)
    version, beats = core.subscriptions["t"].sub_version, len(a.heartbeats)
    a.other_members = [FIRST]
    await core.rebalance()
    assert told.news[1:] == [("t", [0, 1, 2, 3], [2, 3])]
    assert (core.limits_of("t").count, core.limits_of("t").size_bytes) == (50, 4 << 20)
    assert core.subscriptions["t"].sub_version > version
    assert len(a.heartbeats) == beats + 1
    assert subscriptions(a.heartbeats[-1])["t"] == core.subscriptions["t"]
    version = core.subscriptions["t"].sub_version
    await core.rebalance()
    assert (len(told.news), len(a.heartbeats)) == (2, beats + 1), "nothing has changed"
    assert core.subscriptions["t"].sub_version == version
    assert threading.current_thread() not in told.threads


@pytest.mark.behaviour("REB-09")
async def test_a_topic_that_grows_is_a_change_even_if_none_of_it_is_ours(started, name_server, a):
    a.other_members = [FIRST]
    told = []
    core = await started(queue_listener=lambda topic, queues, mine: told.append((topic, len(queues), len(mine))))
    name_server.set_route("t", {"a": {0: a.address}}, queues=2)
    await core.instance.routes.refresh("t")
    await core.rebalance()
    assert told == [("t", 1, 0), ("t", 2, 1)]


@pytest.mark.behaviour("REB-09")
async def test_a_queue_listener_that_raises_is_logged_and_changes_nothing(started, four, caplog):
    def broken(topic, queues, mine):
        raise ZeroDivisionError("not my day")

    core = await started(queue_listener=broken)
    assert len(core.rebalancer.assigned) == 4
    assert "raised when it was told of topic 't'" in caplog.text
    assert "not my day" in caplog.text


class HangingStrategy:
    """Answers once, and then hangs until it is let go."""

    name = "hanging"

    def __init__(self, hang):
        self.hang = hang
        self.asked = 0

    def allocate(self, group, me, queues, members):
        self.asked += 1
        if self.asked > 1:
            self.hang()
        return list(queues)


@pytest.mark.parametrize("what", ["queue_listener", "allocate_strategy"])
async def test_users_code_that_hangs_does_not_hang_the_end(name_server, clock, four, a, what):
    go_on, hanging = threading.Event(), threading.Event()

    def hang():
        hanging.set()
        go_on.wait(30.0)

    told = []

    def listener(*news):
        told.append(news)
        if len(told) > 1:
            hang()

    settings = (
        {"queue_listener": listener} if what == "queue_listener" else {"allocate_strategy": HangingStrategy(hang)}
    )
    core = make_core(name_server.address, clock, **settings)
    await core.start()
    a.other_members = [FIRST]
    try:
        passing = asyncio.ensure_future(core.rebalance())
        await eventually(hanging.is_set)
        await asyncio.wait_for(core.shutdown(1.0), 10.0)
        assert not await passing
        assert core.rebalancer.requests == {}
        assert clock.pending == []
    finally:
        go_on.set()


# --- members that disagree --------------------------------------------------------------------------------------------


async def test_members_with_other_subscriptions_are_a_loud_complaint(started, a, clock, caplog):
    await started(topics={"t": "x"})
    await clock.advance(10.0)
    await eventually(lambda: bool(a.requests(RequestCode.GET_CONSUMER_CONNECTION_LIST)))
    await clock.settle()
    assert "another member" not in caplog.text
    other = ConsumerData(group_name=GROUP, subscription_data_set=(subscription_to("t", "y", 1),))
    a.heartbeats.append(HeartbeatData(client_id="other", consumer_data_set=(other,)))
    await clock.advance(10.0)
    await eventually(lambda: "another member" in caplog.text)
    (said,) = (entry for entry in caplog.records if "another member" in entry.getMessage())
    assert said.levelname == "ERROR"
    assert said.getMessage() == (
        "another member of group g subscribes to topic 't' with TAG 'y', this one to TAG 'x': members of a group must"
        " subscribe to the same, or messages are lost to the group"
    )
    assert RETRY not in said.getMessage()


@pytest.mark.behaviour("REB-09")
async def test_no_pull_has_a_version_that_its_broker_was_not_told_of(started, a):
    """A broker refuses such a pull (SUBSCRIPTION_NOT_LATEST), and its queue would wait for three seconds."""
    core = await started()
    first = await a.until_held()
    old = core.subscriptions["t"]
    told = asyncio.Event()

    async def slowly(command):
        await told.wait()
        a.heartbeats.append(HeartbeatData.decode(command.body))
        return response(command, ResponseCode.SUCCESS)

    a.plan(RequestCode.HEART_BEAT, slowly)
    changing = asyncio.ensure_future(core.queues_changed("t", 1))
    await eventually(lambda: a.count(RequestCode.HEART_BEAT) > len(a.heartbeats))
    a.answer(no_new(5))
    meanwhile = await a.until_pulled(2)
    told.set()
    await changing
    a.answer(no_new(6))
    after = await a.until_pulled(3)
    versions = [int(pull.fields["subVersion"]) for pull in (first, meanwhile, after)]
    assert versions[0] == versions[1] == old.sub_version
    assert versions[2] == subscriptions(a.heartbeats[-1])["t"].sub_version > old.sub_version


async def test_a_new_expression_outdoes_a_version_that_is_being_told(started, a):
    core = await started()
    told = asyncio.Event()

    async def slowly(command):
        await told.wait()
        return response(command, ResponseCode.SUCCESS)

    a.plan(RequestCode.HEART_BEAT, slowly)
    changing = asyncio.ensure_future(core.queues_changed("t", 1))
    await eventually(lambda: a.count(RequestCode.HEART_BEAT) > len(a.heartbeats))
    announced = core.heartbeat().subscription_data_set
    await core.subscribing.subscribe("t", "x")
    told.set()
    await changing
    assert core.subscriptions["t"].sub_string == "x"
    assert core.subscriptions["t"].sub_version > max(sub.sub_version for sub in announced if sub.topic == "t")
