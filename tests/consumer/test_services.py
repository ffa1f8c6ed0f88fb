"""What the consumers of one client share: the order of its services, its one rebalance, and what brokers say to it."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.consumer.inner_producer import InnerProducer
from rocketstream.consumer.local_offsets import LocalFileOffsets
from rocketstream.consumer.pull_service import PullService
from rocketstream.consumer.rebalance_service import RebalanceService
from rocketstream.remoting.client import RemotingClient
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.command import request
from rocketstream.wire.headers.group import NotifyConsumerIdsChangedRequestHeader
from tests.consumer.peers import Heard, make_core
from tests.producer.peers import make_core as make_producer
from tests.scripted import eventually

PARTS = {
    "remoting": (RemotingClient, "start", "close"),
    "timers": (ClientInstance, "_start_timers", None),
    "pull": (PullService, "start", "stop"),
    "rebalance": (RebalanceService, "start", "stop"),
    "inner producer": (InnerProducer, "start", "stop"),
}
ALL = list(PARTS)


@pytest.fixture
def instances(clock):
    return ClientInstances(clock)


@pytest.fixture
def order(monkeypatch):
    """The starts (and ends, with a minus) of an instance's parts, as they happen."""
    seen: list[str] = []

    def noted(what, method):
        def call(self, *args):
            if what != "remoting" or what not in seen:  # whoever sends something may start it, too
                seen.append(what)
            return method(self, *args)

        return call

    for name, (part, start, stop) in PARTS.items():
        monkeypatch.setattr(part, start, noted(name, getattr(part, start)))
        if stop is not None:
            monkeypatch.setattr(part, stop, noted(f"-{name}", getattr(part, stop)))
    return seen


def sharing(name_server, instances, group="g", **settings):
    return make_core(name_server.address, instances=instances, instance_name="shared", group=group, **settings)


async def at_once(clock, condition):
    """It comes to pass without time passing."""
    for _ in range(1000):
        await clock.advance(0.0)
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to pass")


def members_changed(group="g"):
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
    return request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)


# --- START-12 ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("START-12")
async def test_a_consumers_instance_starts_in_order_and_ends_in_reverse(name_server, instances, order, a):
    core = sharing(name_server, instances)
    await core.start()
    assert order == ["remoting", "timers", "pull", "rebalance", "inner producer"]
    assert [producer.group for producer in core.instance.producers] == ["CLIENT_INNER_PRODUCER"]
    assert "CLIENT_INNER_PRODUCER" in [one.group_name for one in a.heartbeats[0].producer_data_set]
    await core.shutdown(1.0)
    assert order == [*ALL, "-inner producer", "-rebalance", "-pull", "-remoting"]


@pytest.mark.behaviour("START-12")
async def test_a_consumer_that_joins_a_producers_instance_starts_the_rest_in_order(name_server, instances, order, a):
    producer = make_producer(name_server.address, instances=instances, instance_name="shared", group="p")
    await producer.start()
    assert order == ["remoting", "timers"]
    consumer = sharing(name_server, instances)
    await consumer.start()
    assert consumer.instance is producer.instance
    assert order == ["remoting", "timers", "pull", "rebalance", "inner producer"]
    await consumer.shutdown(1.0)
    assert order == ALL, "others may come; they end with the instance"
    a.other_members = [consumer.client_id]  # the scripted broker does not take one back that has left
    again = sharing(name_server, instances)
    await again.start()
    assert order == ALL
    await again.shutdown(1.0)
    await producer.shutdown()
    assert order == [*ALL, "-inner producer", "-rebalance", "-pull", "-remoting"]


@pytest.mark.behaviour("START-12")
async def test_clients_that_start_at_once_start_everything_once(name_server, instances, order):
    producer = make_producer(name_server.address, instances=instances, instance_name="shared", group="p")
    consumers = [sharing(name_server, instances, group) for group in ("g", "h")]
    await asyncio.gather(producer.start(), *(consumer.start() for consumer in consumers))
    assert order == ALL
    for client in (*consumers, producer):
        await client.shutdown()


# --- two consumers ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def two(name_server, instances, a):
    """Consumers of groups g and h in one client, subscribed to t and u."""
    name_server.set_route("u", {"a": {0: a.address}}, queues=1)
    heard = {"g": Heard(), "h": Heard()}
    cores = [
        sharing(name_server, instances, group, listener=heard[group], topics={topic: "*"})
        for group, topic in (("g", "t"), ("h", "u"))
    ]
    for core in cores:
        await core.start()
    yield (*cores, heard)
    for core in cores:
        await core.shutdown(1.0)


async def test_two_consumers_of_one_client_each_get_their_own(two, a):
    one, other, heard = two
    assert one.instance is other.instance
    assert one.pull_service is other.pull_service
    a.store("for g")
    a.store("for h", topic="u")
    await heard["g"].until(1)
    await heard["h"].until(1)
    assert (heard["g"].bodies, heard["h"].bodies) == ([b"for g"], [b"for h"])
    groups = [{data.group_name for data in beat.consumer_data_set} for beat in a.heartbeats]
    assert groups[0] == {"g"}
    assert groups[-1] == {"g", "h"}


async def test_one_leaves_and_the_other_goes_on(two, a):
    one, other, heard = two
    await one.shutdown(1.0)
    (left,) = a.requests(RequestCode.UNREGISTER_CLIENT)
    assert left.fields["consumerGroup"] == "g"
    a.store("for h", topic="u")
    await heard["h"].until(1)
    await other.rebalance()
    assert other.rebalancer.assigned == (a.queue(0, "u"),)


@pytest.mark.behaviour("REB-02")
async def test_one_pass_asks_for_every_consumer_and_every_topic(two, name_server, clock, a):
    name_server.set_route("more", {"a": {0: a.address}}, queues=1)
    one, *_ = two
    one.subscribing.before_start("more", "*")
    await clock.advance(20.0)
    await eventually(lambda: a.queue(0, "more") in one.rebalancer.assigned)
    await eventually(lambda: len(a.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) == 5)
    asked = [command.fields["consumerGroup"] for command in a.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)]
    assert asked == ["g", "h", "g", "g", "h"], "one for each at the start; then g's two topics and h's one"


# --- what wakes it ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("REB-01")
async def test_a_broker_that_says_that_members_have_changed_is_listened_to_at_once(
    started, a, clock, name_server, caplog
):
    caplog.set_level("INFO", "rocketstream.consumer")
    name_server.set_route("t", {"a": {0: a.address}}, queues=2)
    core = await started()
    assert len(core.rebalancer.assigned) == 2
    a.other_members = ["zzz"]
    a.tell(members_changed())
    await at_once(clock, lambda: len(core.rebalancer.assigned) == 1)
    assert "says that the members of group g have changed" in caplog.text


@pytest.mark.behaviour("REB-01")
async def test_a_notification_that_is_lost_costs_20_seconds(started, a, clock, name_server):
    name_server.set_route("t", {"a": {0: a.address}}, queues=2)
    core = await started()
    a.other_members = ["zzz"]
    await clock.advance(19.9)
    assert len(core.rebalancer.assigned) == 2
    await clock.advance(0.1)
    await eventually(lambda: len(core.rebalancer.assigned) == 1)


@pytest.mark.behaviour("REB-01")
async def test_a_subscription_that_changes_is_a_reason_to_rebalance_at_once(started, a, name_server, clock):
    name_server.set_route("u", {"a": {0: a.address}}, queues=1)
    core = await started()
    service = core._services.rebalance
    await core.subscribing.subscribe("u", "*")
    # Until the pass is over: one that is under way still sees what changes.
    await at_once(clock, lambda: a.queue(0, "u") in core.rebalancer.assigned and service._pass is None)
    await core.subscribing.unsubscribe("t")
    assert a.queue() in core.rebalancer.assigned
    await clock.advance(0.9)
    assert a.queue() in core.rebalancer.assigned, "but not twice within a second"
    await clock.advance(0.1)
    await eventually(lambda: core.rebalancer.assigned == (a.queue(0, "u"),))


@pytest.mark.behaviour("REB-01")
async def test_the_first_rebalance_is_a_part_of_the_start(name_server, clock, a):
    core = make_core(name_server.address, clock)
    await core.start()
    assert core.rebalancer.assigned == (a.queue(),), "without any time having passed"
    await core.shutdown(1.0)


async def test_a_pass_does_not_meet_a_consumer_that_is_half_made(
    two, name_server, instances, a, clock, caplog, tmp_path
):
    loading, go_on = asyncio.Event(), asyncio.Event()

    class SlowStore(LocalFileOffsets):
        async def load(self):
            loading.set()
            await go_on.wait()

    store = SlowStore(tmp_path, "id", "third")
    third = sharing(name_server, instances, "third", offset_store=store)
    starting = asyncio.ensure_future(third.start())
    await loading.wait()
    service = two[0]._services.rebalance
    a.tell(members_changed("g"))
    await at_once(clock, lambda: service.passes == 1 and service._pass is None)
    go_on.set()
    await starting
    assert "could not be shared out" not in caplog.text
    await third.shutdown(1.0)


async def test_nothing_keeps_the_services_of_an_instance_that_has_ended(name_server, clock):
    core = make_core(name_server.address, clock)
    await core.start()
    seen = [weakref.ref(core._services), weakref.ref(core.instance), weakref.ref(core)]
    await core.shutdown(1.0)
    del core
    await clock.advance(3600.0)  # past the timers that were cancelled, which know whose they were
    gc.collect()
    assert [one() for one in seen] == [None] * 3
