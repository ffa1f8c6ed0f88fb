"""A consumer in a namespace: brokers see wrapped names everywhere, its user never does."""

from __future__ import annotations

import pytest

from rocketstream.consumer.expressions import Sql
from rocketstream.consumer.hooks import ConsumeHook
from rocketstream.wire.bodies.subscription import CheckClientRequestBody
from rocketstream.wire.codes import RequestCode
from tests.consumer.peers import Heard
from tests.consumer.pull_answers import record
from tests.scripted import eventually

pytestmark = pytest.mark.behaviour("START-13")

WRAPPED, GROUP, RETRY = "ns%t", "ns%g", "%RETRY%ns%g"


class Noting(ConsumeHook):
    """Remembers what it was shown."""

    def __init__(self):
        self.seen = []

    def before(self, context):
        self.seen.append((context.group, context.queue.topic, context.namespace))


@pytest.fixture
def routes(name_server, a):
    name_server.routes.clear()
    for topic in (WRAPPED, RETRY):
        name_server.set_route(topic, {"a": {0: a.address}}, queues=1)


async def test_names_are_wrapped_on_the_way_out(started, routes, name_server, a):
    heard = Heard()
    core = await started(heard, namespace="ns", topics={"t": Sql("a > 1")})
    assert (core.group, set(core.subscriptions)) == (GROUP, {WRAPPED, RETRY})
    asked = {command.fields["topic"] for command in name_server.received if "topic" in command.fields}
    assert asked >= {WRAPPED, RETRY}
    assert all("ns%" in topic for topic in asked)
    (data,) = a.heartbeats[-1].consumer_data_set
    assert data.group_name == GROUP
    assert {sub.topic for sub in data.subscription_data_set} == {WRAPPED, RETRY}
    check = CheckClientRequestBody.decode(a.requests(RequestCode.CHECK_CLIENT_CONFIG)[0].body)
    assert (check.group, check.namespace, check.subscription_data.topic) == (GROUP, "ns", WRAPPED)
    a.store("one", topic=WRAPPED)
    await heard.until(1)
    await core.shutdown(5.0)
    assert {(p.fields["consumerGroup"], p.fields["topic"]) for p in a.pulls} == {(GROUP, WRAPPED), (GROUP, RETRY)}
    assert a.offsets[GROUP, WRAPPED, 0] == 1
    (left,) = (one for one in a.requests(RequestCode.UNREGISTER_CLIENT) if "consumerGroup" in one.fields)
    assert left.fields["consumerGroup"] == GROUP


async def test_names_are_stripped_on_the_way_in(started, routes, a):
    heard, hook, told = Heard(), Noting(), []
    core = await started(heard, namespace="ns", consume_hooks=[hook], queue_listener=lambda *news: told.append(news))
    a.store("one", topic=WRAPPED)
    a.store(record(0, topic=RETRY, body=b"two", properties={"RETRY_TOPIC": WRAPPED}), topic=RETRY)
    await heard.until(2)
    assert {message.topic for message in heard.messages} == {"t"}
    assert {context.queue.topic for context in heard.contexts} == {"t", "%RETRY%g"}
    assert {seen[0] for seen in hook.seen} == {"g"}
    assert {seen[2] for seen in hook.seen} == {"ns"}
    shown = a.queue(0, "t")
    assert await core.overview.assignment() == (shown,)
    assert {queue.queue.topic for queue in (await core.overview.status()).queues} == {"t", "%RETRY%g"}
    assert ("t", frozenset({shown}), frozenset({shown})) in told
    assert (await core.overview.status()).group == "g"


async def test_a_retried_message_without_its_origin_is_stripped_too(started, routes, a):
    heard = Heard()
    await started(heard, namespace="ns")
    a.store(record(0, topic=RETRY, body=b"x"), topic=RETRY)
    await heard.until(1)
    assert heard.messages[0].topic == "%RETRY%g"


async def test_orderly_queues_are_locked_under_their_wrapped_names(started, routes, a):
    await started(namespace="ns", orderly=True)
    assert {(lock.consumer_group, queue.topic) for lock in a.lock_requests for queue in lock.mq_set} == {
        (GROUP, WRAPPED),
        (GROUP, RETRY),
    }


async def test_what_is_wrapped_already_is_not_wrapped_twice(started, routes):
    core = await started(namespace="ns", topics={WRAPPED: "*"})
    assert set(core.subscriptions) == {WRAPPED, RETRY}


async def test_subscriptions_of_a_running_consumer_are_wrapped_too(started, routes, name_server, clock, a):
    name_server.set_route("ns%u", {"a": {0: a.address}}, queues=1)
    core = await started(namespace="ns")
    await core.subscribing.subscribe("u", "*")
    assert "ns%u" in core.subscriptions
    await clock.advance(1.0)
    await eventually(lambda: a.queue(0, "ns%u") in core.rebalancer.assigned)
    assert a.queue(0, "u") in await core.overview.assignment()
    await core.subscribing.unsubscribe("u")
    await clock.advance(1.0)
    await eventually(lambda: a.queue(0, "ns%u") not in core.rebalancer.assigned)
    core.rebalancer.problems["ns%t"] = "why"
    assert (await core.overview.status()).problems == {"t": "why"}
