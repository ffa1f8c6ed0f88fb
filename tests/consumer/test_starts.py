"""Starts: what one does, in which order; what it says when it fails, and that it can be tried again."""

from __future__ import annotations

import asyncio

import pytest

from rocketstream.cluster.client import ClientState
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.consumer.expressions import Sql
from rocketstream.errors import BrokerError, ClientStateError, NameServerError, TopicRouteNotFoundError
from rocketstream.wire.bodies.subscription import CheckClientRequestBody
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.consumer.lives import fails, nothing_left, starts
from tests.consumer.peers import GROUP, RETRY, Heard, make_core

UNREGISTER = RequestCode.UNREGISTER_CLIENT


@pytest.fixture
def instances(clock):
    return ClientInstances(clock)


# --- START-08, START-09 and what makes a start fail -------------------------------------------------------------------


@pytest.mark.behaviour("START-08")
async def test_a_second_consumer_of_a_group_in_one_client_is_refused(name_server, instances, clock, a):
    heard = Heard()
    one = make_core(name_server.address, listener=heard, instances=instances, instance_name="shared")
    other = make_core(name_server.address, instances=instances, instance_name="shared")
    await one.start()
    timers = len(clock.pending)
    await fails(
        other,
        ClientStateError,
        f"client {one.client_id} already has a consumer of group 'g': a group has one consumer per client."
        " Use that one, another group, or another instance_name",
    )
    assert len(clock.pending) == timers
    assert one.instance.consumers == (one,)
    assert a.requests(UNREGISTER) == [], "the first one is not disturbed"
    a.store("still here")
    await heard.until(1)
    await one.shutdown(1.0)
    assert nothing_left(other, instances, clock)
    a.other_members = [other.client_id]  # the scripted broker does not take one back that has left
    await starts(other)


@pytest.mark.behaviour("START-09")
async def test_a_start_fetches_routes_checks_filters_sends_a_heartbeat_and_rebalances(started, name_server, a, b):
    name_server.set_route("t", {"a": {0: a.address}, "b": {0: b.address}}, queues=1)
    name_server.set_route("u", {"a": {0: a.address}}, queues=1)
    core = await started(topics={"t": Sql("price > 5"), "u": "x"}, namespace=None)
    assert {"t", "u", RETRY} <= {command.fields.get("topic") for command in name_server.received}
    codes = [RequestCode(c.code) for c in a.received if c.code != RequestCode.PULL_MESSAGE]
    check, beat, members = (
        codes.index(code)
        for code in (
            RequestCode.CHECK_CLIENT_CONFIG,
            RequestCode.HEART_BEAT,
            RequestCode.QUERY_CONSUMER_OFFSET,
        )
    )
    assert check < beat < members
    for broker in (a, b):
        (asked,) = broker.requests(RequestCode.CHECK_CLIENT_CONFIG)
        body = CheckClientRequestBody.decode(asked.body)
        assert (body.client_id, body.group, body.subscription_data.topic) == (core.client_id, GROUP, "t")
        assert body.subscription_data.sub_string == "price > 5"
        assert broker.heartbeats
    assert len(core.rebalancer.assigned) == 3, "at once: no time has passed"


@pytest.mark.behaviour("START-09")
async def test_a_broker_that_has_only_the_retry_topic_is_met_too(started, name_server, b):
    name_server.set_route(RETRY, {"b": {0: b.address}}, queues=1)
    core = await started()
    assert b.received[0].code == RequestCode.HEART_BEAT, "before anything is asked of it"
    assert b.queue(0, RETRY) in core.rebalancer.assigned


@pytest.mark.behaviour("START-09")
async def test_a_broker_without_sql92_is_an_error_at_the_start(name_server, instances, clock, a):
    refusal = (ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92")
    a.plan(RequestCode.CHECK_CLIENT_CONFIG, refusal)
    core = make_core(name_server.address, instances=instances, topics={"t": Sql("price > 5")})
    await fails(
        core,
        BrokerError,
        f"{a.address} answered SYSTEM_ERROR (1) to CHECK_CLIENT_CONFIG: The broker does not support consumer to filter"
        " message by SQL92",
    )
    assert a.heartbeats == [], "no other member was made to rebalance"
    assert nothing_left(core, instances, clock)
    await asyncio.sleep(0)
    assert not a.peers or a.requests(RequestCode.PULL_MESSAGE) == []


async def test_a_topic_without_a_route_is_an_error_that_names_it(name_server, instances, clock, a):
    core = make_core(name_server.address, instances=instances, topics={"nowhere": "*"})
    await fails(
        core,
        TopicRouteNotFoundError,
        f"topic 'nowhere' has no route at {name_server.address}: it does not exist there (create it, or allow the"
        " broker to create topics), or its broker is not registered",
    )
    assert nothing_left(core, instances, clock)
    name_server.set_route("nowhere", {"a": {0: a.address}}, queues=1)
    await starts(core)


async def test_a_name_server_that_is_not_there_is_an_error_that_names_it(name_server, instances, clock):
    await name_server.stop()
    core = make_core(name_server.address, instances=instances)
    with pytest.raises(NameServerError, match=f"^no name server can be reached: {name_server.address}: cannot connect"):
        await core.start()
    assert core.state is ClientState.CREATE_JUST
    assert nothing_left(core, instances, clock)
    await name_server.start()
    await starts(core)


async def test_a_dead_broker_is_an_error_that_names_it(name_server, instances, clock, a):
    await a.stop()
    core = make_core(name_server.address, instances=instances)
    await fails(
        core,
        ClientStateError,
        f"consumer of group 'g' cannot start: no broker of its topics took its heartbeat: a ({a.address})",
    )
    assert nothing_left(core, instances, clock)
    await a.start()
    await starts(core)


async def test_one_broker_of_two_is_enough_to_start(started, name_server, clock, a, b):
    name_server.set_route("t", {"a": {0: a.address}, "b": {0: b.address}}, queues=1)
    await b.stop()
    core = await started()
    assert core.rebalancer.assigned == (a.queue(),)
    await b.start()
    await clock.advance(20.0)
    await b.until_held()


async def test_members_that_cannot_be_asked_for_are_an_error_at_the_start(name_server, instances, clock, a):
    a.plan(RequestCode.GET_CONSUMER_LIST_BY_GROUP, (ResponseCode.SYSTEM_ERROR, "no consumer for this group"))
    core = make_core(name_server.address, instances=instances)
    await fails(
        core,
        ClientStateError,
        "consumer of group 'g' cannot start: its queues could not be shared out: topic 't':"
        f" {a.address} answered SYSTEM_ERROR (1) to GET_CONSUMER_LIST_BY_GROUP: no consumer for this group",
    )
    (told,) = (one for one in a.requests(UNREGISTER) if "consumerGroup" in one.fields)
    assert told.fields["consumerGroup"] == GROUP
    assert nothing_left(core, instances, clock)
    a.other_members = [core.client_id]
    await starts(core)
