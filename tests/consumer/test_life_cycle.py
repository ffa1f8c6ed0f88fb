"""A consumer's life: its states, and what it is made of by the time it runs."""

from __future__ import annotations

import asyncio
import os

import pytest

from rocketstream.cluster.client import ClientState
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.consumer.broker_offsets import BrokerOffsets
from rocketstream.consumer.concurrent import ConcurrentConsumption
from rocketstream.consumer.local_offsets import LocalFileOffsets
from rocketstream.consumer.orderly import OrderlyConsumption
from rocketstream.consumer.pop_consumption import PopConcurrentConsumption, PopOrderlyConsumption
from rocketstream.consumer.results import ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult
from rocketstream.consumer.start_from import StartFrom
from rocketstream.errors import (
    ClientStateError,
    ConfigurationError,
    OffsetStoreError,
    TopicRouteNotFoundError,
)
from rocketstream.wire.codes import ConsumeFromWhere, ConsumeType, MessageModel, RequestCode
from tests.consumer.lives import fails, nothing_left, starts
from tests.consumer.peers import GROUP, RETRY, Heard, make_core
from tests.consumer.pull_answers import record
from tests.scripted import eventually

UNREGISTER = RequestCode.UNREGISTER_CLIENT


@pytest.fixture
def instances(clock):
    return ClientInstances(clock)


# --- START-01 ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("START-01")
async def test_the_states_of_a_life(name_server, instances, clock):
    core = make_core(name_server.address, instances=instances)
    await core.shutdown()
    assert core.state is ClientState.CREATE_JUST
    starting = asyncio.ensure_future(core.start())
    await asyncio.sleep(0)
    assert core.state is ClientState.START_FAILED
    for state in ("START_FAILED", "RUNNING"):
        with pytest.raises(ClientStateError, match=rf"^consumer of group 'g' cannot start: it is {state}$"):
            await core.start()
        await starting
        assert core.state is ClientState.RUNNING
    await asyncio.gather(core.shutdown(1.0), core.shutdown(1.0))
    assert core.state is ClientState.SHUTDOWN_ALREADY
    with pytest.raises(ClientStateError, match=r"^consumer of group 'g' cannot start: it is SHUTDOWN_ALREADY$"):
        await core.start()
    await core.shutdown()
    assert nothing_left(core, instances, clock)


@pytest.mark.behaviour("START-01")
async def test_a_start_that_is_cancelled_leaves_nothing_and_can_be_repeated(name_server, instances, clock, a):
    a.on(RequestCode.HEART_BEAT, lambda command: None)
    core = make_core(name_server.address, instances=instances)
    starting = asyncio.ensure_future(core.start())
    await eventually(lambda: bool(a.requests(RequestCode.HEART_BEAT)))
    starting.cancel()
    a.on(RequestCode.HEART_BEAT, a._heartbeat)
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert core.state is ClientState.CREATE_JUST
    assert nothing_left(core, instances, clock)


# --- START-02 to START-07 ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("START-02")
async def test_a_consumer_that_is_not_ready_opens_nothing(name_server, instances, clock, a):
    core = make_core(name_server.address, instances=instances, topics={})
    await fails(core, ConfigurationError, "subscriptions={}: call subscribe(topic) before the start")
    core.subscribing.before_start("t", "*")
    listener, core.listener = core.listener, None
    await fails(
        core, ConfigurationError, "listener=None: give one to the consumer, or call set_listener before the start"
    )
    assert name_server.connections_made == a.connections_made == 0
    assert nothing_left(core, instances, clock)
    core.listener = listener
    await starts(core)


async def test_a_failed_start_does_not_make_an_empty_consumer_look_ready(name_server, instances):
    core = make_core(name_server.address, instances=instances, topics={"nowhere": "*"})
    with pytest.raises(TopicRouteNotFoundError):
        await core.start()
    await core.subscribing.unsubscribe("nowhere")
    await fails(core, ConfigurationError, "subscriptions={}: call subscribe(topic) before the start")


@pytest.mark.behaviour("START-03")
async def test_in_clustering_the_groups_retry_topic_is_subscribed_too(started, name_server, a):
    name_server.set_route(RETRY, {"a": {0: a.address}}, queues=1)
    heard = Heard()
    core = await started(heard, topics={"t": "x || y"})
    assert {q.topic for q in core.rebalancer.assigned} == {"t", RETRY}
    told = {sub.topic: sub for sub in a.heartbeats[0].consumer_data_set[0].subscription_data_set}
    assert {topic: sub.sub_string for topic, sub in told.items()} == {"t": "x || y", RETRY: "*"}
    a.store(record(0, topic=RETRY, body=b"again", tags="z", properties={"RETRY_TOPIC": "t"}), topic=RETRY)
    await heard.until(1)
    assert heard.messages[0].topic == "t"


@pytest.mark.behaviour("START-03")
async def test_in_broadcasting_there_is_no_retry_topic(started, a, tmp_path):
    core = await started(model=MessageModel.BROADCASTING, local_offset_dir=tmp_path)
    assert list(core.subscriptions) == ["t"]
    assert [sub.topic for sub in a.heartbeats[-1].consumer_data_set[0].subscription_data_set] == ["t"]


@pytest.mark.behaviour("START-04")
async def test_in_clustering_a_name_left_at_its_default_is_this_process_and_a_unique_part(name_server, instances):
    ids = [make_core(name_server.address, instances=instances).client_id for _ in range(3)]
    ids.append(make_core(name_server.address, instances=instances, instance_name="DEFAULT").client_id)
    assert len(set(ids)) == 4
    assert {one.split("@")[1].split("#")[0] for one in ids} == {str(os.getpid())}
    named = make_core(name_server.address, instances=instances, instance_name="mine").client_id
    assert named.endswith("@mine")


@pytest.mark.behaviour("START-04")
async def test_in_broadcasting_the_name_stays_for_the_offsets_are_found_by_it(name_server, instances):
    one, two = (
        make_core(name_server.address, instances=instances, model=MessageModel.BROADCASTING).client_id for _ in range(2)
    )
    assert one == two
    assert one.endswith("@DEFAULT")


class OwnStore(LocalFileOffsets):
    """A user's own store, which notes what is asked of it."""

    def __init__(self, path, error=None):
        super().__init__(path, "own", GROUP)
        self.error = error
        self.calls: list[str] = []

    async def load(self):
        self.calls.append("load")
        if self.error is not None:
            raise self.error
        await super().load()

    async def read(self, queue, where):
        self.calls.append("read")
        return await super().read(queue, where)


@pytest.mark.behaviour("START-06")
@pytest.mark.parametrize(
    ("model", "kind"),
    [(MessageModel.CLUSTERING, BrokerOffsets), (MessageModel.BROADCASTING, LocalFileOffsets)],
    ids=["clustering", "broadcasting"],
)
async def test_offsets_are_at_the_brokers_or_in_a_local_file(started, a, tmp_path, model, kind):
    heard = Heard()
    core = await started(heard, model=model, local_offset_dir=tmp_path)
    assert type(core.offsets) is kind
    a.store("one")
    await heard.until(1)
    await core.shutdown(5.0)
    at_broker = {("t", 0, 1)} == set(a.updates)
    files = list(tmp_path.rglob("offsets.json"))
    assert (at_broker, len(files)) == ((True, 0) if kind is BrokerOffsets else (False, 1))
    if files:
        assert files[0].parent == tmp_path / core.client_id / GROUP


@pytest.mark.behaviour("START-06")
@pytest.mark.parametrize("model", [MessageModel.CLUSTERING, MessageModel.BROADCASTING], ids=lambda m: m.name)
async def test_a_users_own_store_comes_first_and_is_loaded_before_anything_is_consumed(started, a, tmp_path, model):
    store = OwnStore(tmp_path)
    store.update(a.queue(), 3, increase_only=False)
    await store.persist(a.queue())
    core = await started(offset_store=store, model=model)
    assert core.offsets is store
    assert store.calls[:2] == ["load", "read"]
    await a.until_held()
    assert a.pulled_offsets() == [3]


@pytest.mark.behaviour("START-06")
async def test_local_offsets_are_loaded_before_anything_is_consumed(started, a, tmp_path):
    settings = {"model": MessageModel.BROADCASTING, "local_offset_dir": tmp_path}
    a.store("one", "two")
    first = await started(Heard(), start_from=StartFrom.FIRST, **settings)
    await first.listener.call.until(2)
    await first.shutdown(5.0)
    await started(**settings, start_from=StartFrom.FIRST)
    await a.until_pulled(3)
    assert a.pulled_offsets() == [0, 2, 2]


@pytest.mark.behaviour("START-06")
async def test_a_store_that_cannot_be_loaded_is_no_start(name_server, instances, clock, a, tmp_path):
    store = OwnStore(tmp_path, OffsetStoreError("the disk is gone"))
    core = make_core(name_server.address, instances=instances, offset_store=store)
    await fails(core, OffsetStoreError, "the disk is gone")
    assert a.received == []
    assert nothing_left(core, instances, clock)
    store.error = None
    await starts(core)


@pytest.mark.behaviour("START-07")
@pytest.mark.parametrize(
    ("orderly", "pulled", "popped", "context"),
    [
        (False, ConcurrentConsumption, PopConcurrentConsumption, ConsumeContext),
        (True, OrderlyConsumption, PopOrderlyConsumption, OrderlyContext),
    ],
    ids=["concurrent", "orderly"],
)
async def test_the_kind_of_listener_chooses_how_is_consumed(started, a, orderly, pulled, popped, context):
    heard = Heard(OrderlyResult.SUCCESS if orderly else ConsumeResult.SUCCESS)
    core = await started(heard, orderly=orderly)
    assert type(core.consumption) is pulled
    assert type(core.popper.consumption) is popped
    await a.until_held()
    a.store("one")
    await heard.until(1)
    assert type(heard.contexts[0]) is context


# --- START-15 ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("START-15")
async def test_a_heartbeat_tells_what_the_consumer_is(started, a):
    core = await started(topics={"t": "x || y"}, start_from=StartFrom.FIRST, unit_mode=True)
    beat = a.heartbeats[-1]
    assert beat.client_id == core.client_id
    (data,) = beat.consumer_data_set
    assert (data.group_name, data.consume_type) == (GROUP, ConsumeType.CONSUME_PASSIVELY)
    assert (data.message_model, data.unit_mode) == (MessageModel.CLUSTERING, True)
    assert data.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    told = {sub.topic: sub for sub in data.subscription_data_set}
    assert set(told) == {"t", RETRY}
    assert (told["t"].tags_set, told["t"].code_set) == ({"x", "y"}, {120, 121})
    assert told["t"].sub_version > 0


@pytest.mark.behaviour("START-15")
async def test_a_heartbeat_tells_of_broadcasting(started, a, tmp_path):
    moment = StartFrom.at(1_700_000_000_000)
    await started(model=MessageModel.BROADCASTING, start_from=moment, local_offset_dir=tmp_path)
    (data,) = a.heartbeats[-1].consumer_data_set
    assert (data.message_model, data.unit_mode) == (MessageModel.BROADCASTING, False)
    assert data.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
