"""The offsets of a group in memory and at (scripted) brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rocketstream.clock import ManualClock
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.settings import ClientSettings
from rocketstream.cluster.versions import V5_0_0
from rocketstream.consumer.broker_offsets import BrokerOffsets, QueueOffsets
from rocketstream.consumer.offset_store import OffsetStore, ReadFrom
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.errors import BrokerError, BrokerNotFoundError, OffsetStoreError
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import RequestCode, ResponseCode, RpcFlag
from rocketstream.wire.command import Command, response
from tests.scripted import ScriptedBroker, ScriptedNameServer, eventually

TOPIC = "orders"
FIRST, SECOND = (MessageQueue(TOPIC, "a", number) for number in (0, 1))
OTHER = MessageQueue("others", "a", 0)


class OffsetBroker(ScriptedBroker):
    """Keeps offsets; `fault` is what it says instead."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets: dict[tuple[str, int], int] = {}
        self.fault: int | None = None
        self.refused: int | None = None
        """A queue of which it takes no offset."""
        self.answer = 0
        self.on(RequestCode.QUERY_CONSUMER_OFFSET, self._query)
        self.on(RequestCode.UPDATE_CONSUMER_OFFSET, self._update)
        for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP):
            self.on(code, lambda command: self._say(command, self.answer))

    @property
    def updates(self) -> list[Command]:
        return [command for command in self.received if command.code == RequestCode.UPDATE_CONSUMER_OFFSET]

    def _say(self, command: Command, offset: int) -> Command:
        if self.fault is not None:
            return response(command, self.fault, "no luck")
        answer = response(command, ResponseCode.SUCCESS)
        answer.fields["offset"] = str(offset)
        return answer

    def _query(self, command: Command) -> Command:
        offset = self.offsets.get((command.fields["topic"], int(command.fields["queueId"])))
        if offset is None and self.fault is None:
            return response(command, ResponseCode.QUERY_NOT_FOUND, "maybe this group consumer boot first")
        return self._say(command, offset or 0)

    def _update(self, command: Command) -> Command | None:
        if command.fields["queueId"] == str(self.refused):
            return response(command, ResponseCode.SYSTEM_ERROR, "no luck")
        if self.fault is None:
            place = command.fields["topic"], int(command.fields["queueId"])
            self.offsets[place] = int(command.fields["commitOffset"])
        return None if command.flag & RpcFlag.ONE_WAY else self._say(command, 0)


@pytest.fixture
async def broker() -> AsyncIterator[OffsetBroker]:
    async with OffsetBroker() as server:
        yield server


@pytest.fixture
async def slave() -> AsyncIterator[OffsetBroker]:
    async with OffsetBroker() as server:
        yield server


@pytest.fixture
async def name_server(broker: OffsetBroker) -> AsyncIterator[ScriptedNameServer]:
    async with ScriptedNameServer() as server:
        server.set_route(TOPIC, {"a": {0: broker.address}}, queues=2)
        server.set_route("others", {"a": {0: broker.address}})
        yield server


@pytest.fixture
async def instance(name_server: ScriptedNameServer) -> AsyncIterator[ClientInstance]:
    instance = ClientInstance("me", ClientSettings.make(name_server.address), clock=ManualClock())
    await instance.start()
    await instance.routes.get(TOPIC)
    yield instance
    await instance.stop()


@pytest.fixture
def store(instance: ClientInstance) -> BrokerOffsets:
    return BrokerOffsets(instance, "g")


@pytest.mark.behaviour("OFF-01")
async def test_an_offset_is_read_from_memory_from_the_store_or_from_both(store, broker):
    assert await store.read(FIRST, ReadFrom.MEMORY) == -1
    assert store.read_memory(FIRST) == -1
    assert await store.read(FIRST, ReadFrom.STORE) == -1, "the broker says that there is none"
    broker.offsets[TOPIC, 0] = 7
    assert await store.read(FIRST, ReadFrom.MEMORY) == -1
    assert await store.read(FIRST, ReadFrom.MEMORY_THEN_STORE) == 7
    assert store.read_memory(FIRST) == 7, "what was read is remembered"
    store.update(FIRST, 9, increase_only=True)
    assert await store.read(FIRST, ReadFrom.MEMORY_THEN_STORE) == 9
    assert await store.read(FIRST, ReadFrom.MEMORY) == 9
    assert await store.read(FIRST, ReadFrom.STORE) == 7
    assert store.read_memory(FIRST) == 7


async def test_what_a_broker_is_asked(store, broker):
    await store.read(SECOND, ReadFrom.STORE)
    (asked,) = (command for command in broker.received if command.code == RequestCode.QUERY_CONSUMER_OFFSET)
    # No setZeroIfNotFound: a young queue is read from its start, as by Java's client.
    assert asked.fields == {"consumerGroup": "g", "topic": TOPIC, "queueId": "1", "bname": "a"}


@pytest.mark.behaviour("OFF-01")
@pytest.mark.parametrize(
    "code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST, 4711]
)
@pytest.mark.parametrize("where", [ReadFrom.STORE, ReadFrom.MEMORY_THEN_STORE])
async def test_a_broker_that_cannot_say_is_an_error_and_not_unknown(store, broker, code, where):
    broker.fault = code
    with pytest.raises(OffsetStoreError, match=r"group 'g' in queue 0 of topic 'orders' on broker 'a'.*no luck"):
        await store.read(FIRST, where)
    assert store.read_memory(FIRST) == -1


@pytest.mark.behaviour("OFF-01")
async def test_a_broker_that_is_gone_is_an_error_and_not_unknown(store, broker):
    await broker.stop()
    with pytest.raises(OffsetStoreError, match=r"could not be read: 127\.0\.0\.1"):
        await store.read(FIRST, ReadFrom.STORE)


@pytest.mark.behaviour("OFF-01")
async def test_a_broker_that_nobody_knows_is_an_error(store):
    with pytest.raises(OffsetStoreError, match="no address is known for broker 'nobody'"):
        await store.read(MessageQueue(TOPIC, "nobody", 0), ReadFrom.STORE)


@pytest.mark.behaviour("OFF-01")
@pytest.mark.parametrize("offset", ["-1", "x", None])
async def test_an_answer_without_a_sensible_offset_is_an_error(store, broker, offset):
    def strange(command: Command) -> Command:
        answer = response(command, ResponseCode.SUCCESS)
        if offset is not None:
            answer.fields["offset"] = offset
        return answer

    broker.on(RequestCode.QUERY_CONSUMER_OFFSET, strange)
    with pytest.raises(OffsetStoreError, match="offset"):
        await store.read(FIRST, ReadFrom.STORE)


@pytest.mark.behaviour("OFF-02")
def test_an_increase_only_update_never_lowers(store):
    store.update(FIRST, 5, increase_only=True)
    store.update(FIRST, 4, increase_only=True)
    assert store.read_memory(FIRST) == 5
    store.update(FIRST, 6, increase_only=True)
    assert store.read_memory(FIRST) == 6
    store.update(FIRST, 3, increase_only=False)
    assert store.read_memory(FIRST) == 3
    store.update(SECOND, 0, increase_only=True)
    assert store.read_memory(SECOND) == 0


def test_a_reset_may_lower_and_a_negative_offset_is_a_mistake(store):
    store.update(FIRST, 5, increase_only=True)
    store.reset(FIRST, 1)
    assert store.read_memory(FIRST) == 1
    with pytest.raises(ValueError, match="-1"):
        store.update(FIRST, -1, increase_only=False)


def test_a_snapshot_is_a_copy_of_all_or_of_one_topic(store):
    for number, queue in enumerate((FIRST, SECOND, OTHER)):
        store.update(queue, number, increase_only=True)
    assert store.snapshot() == {FIRST: 0, SECOND: 1, OTHER: 2}
    assert store.snapshot(TOPIC) == {FIRST: 0, SECOND: 1}
    store.snapshot().clear()
    assert repr(store) == "<BrokerOffsets of group g, 3 queues>"


@pytest.mark.behaviour("OFF-03")
async def test_owned_queues_are_written_and_others_are_forgotten(store, broker):
    for number, queue in enumerate((FIRST, SECOND, OTHER), 10):
        store.update(queue, number, increase_only=True)
    await store.persist_all([FIRST, OTHER])
    assert broker.offsets == {(TOPIC, 0): 10, ("others", 0): 12}
    assert store.snapshot() == {FIRST: 10, OTHER: 12}
    assert not any(command.flag & RpcFlag.ONE_WAY for command in broker.updates)
    assert broker.updates[0].fields == {
        "consumerGroup": "g",
        "topic": TOPIC,
        "queueId": "0",
        "commitOffset": "10",
        "bname": "a",
    }
    await store.persist_all([])
    assert store.snapshot() == {}


@pytest.mark.behaviour("OFF-03")
async def test_one_queue_is_written_and_its_broker_confirms(store, broker):
    store.update(FIRST, 10, increase_only=True)
    await store.persist(FIRST)
    assert broker.offsets == {(TOPIC, 0): 10}
    (update,) = broker.updates
    assert not update.flag & RpcFlag.ONE_WAY
    await store.persist(SECOND)
    assert len(broker.updates) == 1, "nothing is known of it, so there is nothing to write"


async def test_a_write_that_a_broker_refuses_is_an_error(store, broker):
    store.update(FIRST, 10, increase_only=True)
    broker.fault = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    with pytest.raises(OffsetStoreError, match=r"offset 10 of group 'g' in queue 0 .* could not be persisted"):
        await store.persist(FIRST)


async def test_only_what_has_changed_is_written_but_now_and_then_everything(store, broker):
    for queue in (FIRST, SECOND):
        store.update(queue, 1, increase_only=True)
    both = frozenset({FIRST, SECOND})

    async def written() -> list[tuple[str, str]]:
        before = len(broker.updates)
        await store.persist_all(both)
        return sorted((one.fields["queueId"], one.fields["commitOffset"]) for one in broker.updates[before:])

    everything = [("0", "1"), ("1", "1")]
    assert await written() == everything
    assert await written() == []
    store.update(SECOND, 2, increase_only=True)
    assert await written() == [("1", "2")]
    rounds = [await written() for _ in range(24)]
    assert [number for number, writes in enumerate(rounds) if writes] == [9, 21], "each twelfth time"
    assert rounds[9] == [("0", "1"), ("1", "2")]
    store.remove(FIRST)
    store.update(FIRST, 1, increase_only=True)
    assert await written() == [("0", "1")], "it was somebody else's meanwhile"


async def test_a_broker_that_is_down_keeps_no_other_from_its_offsets(store, name_server, broker, slave, caplog):
    there = MessageQueue(TOPIC, "b", 0)
    name_server.set_route(TOPIC, {"a": {0: broker.address}, "b": {0: slave.address}}, queues=2)
    await store._instance.routes.refresh(TOPIC)
    await broker.stop()
    for queue in (FIRST, SECOND, there):
        store.update(queue, 3, increase_only=True)
    await store.persist_all([FIRST, SECOND, there])
    assert slave.offsets == {(TOPIC, 0): 3}
    assert len([record for record in caplog.records if "not persisted at a" in record.message]) == 1
    assert store.snapshot() == {FIRST: 3, SECOND: 3, there: 3}
    with pytest.raises(OffsetStoreError):
        await store.persist(FIRST)
    await broker.start()
    await store.persist_all([FIRST, SECOND, there])
    assert len(broker.offsets) == 2


@pytest.mark.behaviour("OFF-03")
async def test_a_write_that_is_refused_keeps_no_other_from_being_written_and_comes_again(store, broker, caplog):
    many = [MessageQueue(TOPIC, "a", number) for number in range(5)]
    for queue in many:
        store.update(queue, 3, increase_only=True)
    broker.refused = 2
    await store.persist_all(many)
    assert len(broker.offsets) == 4
    assert [r.message for r in caplog.records if "not persisted at a yet" in r.message and "no luck" in r.message]
    broker.refused = None
    before = len(broker.updates)
    await store.persist_all(many)
    assert [command.fields["queueId"] for command in broker.updates[before:]] == ["2"]


async def test_many_are_written_side_by_side_but_not_all_at_once(store, broker):
    many = [MessageQueue(TOPIC, "a", number) for number in range(200)]
    for queue in many:
        store.update(queue, 3, increase_only=True)
    go_on = asyncio.Event()
    most = 0

    async def slow(command: Command) -> Command | None:
        nonlocal most
        if len(broker.updates) > 1:  # the first one goes alone
            most = max(most, len(broker.updates) - len(broker.offsets))
            await go_on.wait()
        return broker._update(command)

    broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, slow)
    writing = asyncio.ensure_future(store.persist_all(many))
    await eventually(lambda: len(broker.updates) == 65)
    go_on.set()
    await writing
    assert len(broker.offsets) == 200
    assert most == 64


@pytest.mark.behaviour("OFF-03")
@pytest.mark.parametrize("how", ["by the timer", "the last ones"])
async def test_the_first_offset_of_a_topic_goes_alone_and_the_others_after_it(store, broker, how):
    """Of two that it gets at the same time, a broker that has none yet keeps one."""
    queues = [MessageQueue(TOPIC, "a", number) for number in range(4)]
    for queue in queues:
        store.update(queue, 3, increase_only=True)
    answers: asyncio.Queue[bool] = asyncio.Queue()

    async def slow(command: Command) -> Command | None:
        works = await answers.get()
        return broker._update(command) if works else response(command, ResponseCode.SYSTEM_ERROR, "no luck")

    async def sent_are(count: int) -> None:
        await eventually(lambda: len(broker.updates) >= count)
        await asyncio.sleep(0.02)  # others would have come by now
        assert len(broker.updates) == count

    broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, slow)
    together = (
        [store.persist_all(queues)] if how == "by the timer" else [store.persist_last(one, 0.0) for one in queues]
    )
    writing = asyncio.gather(*together, return_exceptions=True)
    await sent_are(1)
    answers.put_nowait(False)
    await sent_are(2)
    answers.put_nowait(True)
    await sent_are(4)
    answers.put_nowait(True)
    answers.put_nowait(True)
    await writing
    assert len(broker.offsets) == 3


@pytest.mark.behaviour("OFF-03")
async def test_a_broker_that_has_offsets_gets_all_others_at_once(store, broker):
    broker.offsets[TOPIC, 0] = 1
    await store.read(FIRST, ReadFrom.STORE)
    for queue in (FIRST, SECOND):
        store.update(queue, 3, increase_only=True)
    go_on = asyncio.Event()

    async def slow(command: Command) -> Command | None:
        await go_on.wait()
        return broker._update(command)

    broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, slow)
    writing = asyncio.gather(*(store.persist(queue) for queue in (FIRST, SECOND)))
    await eventually(lambda: len(broker.updates) == 2)
    go_on.set()
    await writing
    assert broker.offsets == {(TOPIC, 0): 3, (TOPIC, 1): 3}


@pytest.mark.behaviour("OFF-03")
async def test_a_round_that_writes_everything_sends_the_first_offset_alone_again(store, broker):
    """The broker may have crashed since, and have lost what it had."""
    for queue in (FIRST, SECOND):
        store.update(queue, 3, increase_only=True)
    for _ in range(12):
        await store.persist_all([FIRST, SECOND])
    before, go_on = len(broker.updates), asyncio.Event()

    async def slow(command: Command) -> Command | None:
        await go_on.wait()
        return broker._update(command)

    broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, slow)
    writing = asyncio.ensure_future(store.persist_all([FIRST, SECOND]))
    await eventually(lambda: len(broker.updates) > before)
    await asyncio.sleep(0.02)  # the other one would have come by now
    assert len(broker.updates) == before + 1
    go_on.set()
    await writing
    assert len(broker.updates) == before + 2


@pytest.mark.behaviour("OFF-03")
async def test_of_a_queue_one_write_is_under_way_at_a_time(store, broker):
    store.update(FIRST, 1, increase_only=True)
    go_on = asyncio.Event()

    async def slow(command: Command) -> Command | None:
        await go_on.wait()
        return broker._update(command)

    broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, slow)
    writing = asyncio.ensure_future(store.persist_all([FIRST]))
    await eventually(lambda: len(broker.updates) == 1)
    store.update(FIRST, 2, increase_only=True)
    await store.persist_all([FIRST])
    writing.cancel()  # what has left is not taken back
    last = asyncio.ensure_future(store.persist(FIRST))
    await store.read(SECOND, ReadFrom.STORE)
    assert len(broker.updates) == 1
    go_on.set()
    await last
    assert [command.fields["commitOffset"] for command in broker.updates] == ["1", "2"]
    assert broker.offsets == {(TOPIC, 0): 2}


async def test_without_a_master_another_broker_of_its_name_is_asked(store, name_server, broker, slave):
    name_server.set_route(TOPIC, {"a": {1: slave.address}}, queues=2)
    await store._instance.routes.refresh(TOPIC)
    slave.offsets[TOPIC, 0] = 5
    assert await store.read(FIRST, ReadFrom.STORE) == 5
    store.update(FIRST, 6, increase_only=True)
    await store.persist(FIRST)
    assert slave.offsets == {(TOPIC, 0): 6}
    await name_server.stop()
    assert await store.read(FIRST, ReadFrom.STORE) == 6, "no route is to be had, but the slave is known"


async def test_a_master_that_is_back_is_found_by_its_route(store, name_server, broker, slave):
    name_server.set_route(TOPIC, {"a": {1: slave.address}}, queues=2)
    await store._instance.routes.refresh(TOPIC)
    name_server.set_route(TOPIC, {"a": {0: broker.address, 1: slave.address}}, queues=2)
    broker.offsets[TOPIC, 0] = 5
    assert await store.read(FIRST, ReadFrom.STORE) == 5


async def test_a_master_that_is_back_is_told_what_its_slave_was_told(store, name_server, broker, slave):
    await store.persist_all([])  # the first round writes everything
    name_server.set_route(TOPIC, {"a": {1: slave.address}}, queues=2)
    await store._instance.routes.refresh(TOPIC)
    store.update(FIRST, 6, increase_only=True)
    await store.persist_all([FIRST])
    assert slave.offsets == {(TOPIC, 0): 6}
    name_server.set_route(TOPIC, {"a": {0: broker.address, 1: slave.address}}, queues=2)
    await store._instance.routes.refresh(TOPIC)
    await store.persist_all([FIRST])
    assert broker.offsets == {(TOPIC, 0): 6}
    told = len(broker.received)
    await store.persist_all([FIRST])
    assert len(broker.received) == told, "it knows"


async def test_a_queue_that_is_lost_while_offsets_are_written_is_left_out(store, broker):
    store.update(FIRST, 1, increase_only=True)
    store.update(SECOND, 2, increase_only=True)
    writing = asyncio.ensure_future(store.persist_all([FIRST, SECOND]))
    await asyncio.sleep(0)
    store.remove(SECOND)
    await writing
    assert broker.offsets == {(TOPIC, 0): 1}
    assert store.snapshot() == {FIRST: 1}


def test_a_store_of_ones_own_has_to_do_everything():
    with pytest.raises(TypeError, match="abstract"):
        OffsetStore()


# --- pulls that carry offsets -------------------------------------------------------------------------------------


@pytest.fixture
def pull() -> PullRequest:
    """The pull of the first queue: it carries offset 5, and the broker had none."""
    pull = PullRequest("g", FIRST, ProcessQueue(FIRST), 5)
    pull.carries = 5
    return pull


@pytest.fixture
def beside_pulls(instance: ClientInstance, pull: PullRequest) -> BrokerOffsets:
    store = BrokerOffsets(instance, "g", {FIRST: pull}.get)
    store.update(FIRST, 6, increase_only=True)
    return store


def queries(broker: OffsetBroker) -> int:
    return sum(1 for command in broker.received if command.code == RequestCode.QUERY_CONSUMER_OFFSET)


@pytest.mark.behaviour("OFF-03")
async def test_the_timer_writes_after_a_pull_was_handled(beside_pulls, broker, pull):
    broker.offsets[TOPIC, 0] = 5
    await beside_pulls.persist_all([FIRST])
    assert broker.offsets == {(TOPIC, 0): 6}
    assert (queries(broker), pull.carries, pull.committed) == (1, 0, 6)
    beside_pulls.update(FIRST, 7, increase_only=True)
    await beside_pulls.persist_all([FIRST])
    assert (queries(broker), broker.offsets) == (1, {(TOPIC, 0): 7}), "that is known from now on"


@pytest.mark.behaviour("OFF-03")
async def test_the_timer_leaves_an_offset_to_the_pull_once_and_no_longer(beside_pulls, broker, pull):
    broker.offsets[TOPIC, 0] = 4
    await beside_pulls.persist_all([FIRST])
    assert broker.updates == []
    assert pull.carries == 5
    await beside_pulls.persist_all([FIRST])
    assert broker.offsets == {(TOPIC, 0): 6}
    broker.fault = ResponseCode.SYSTEM_ERROR
    beside_pulls.update(FIRST, 7, increase_only=True)
    await beside_pulls.persist_all([FIRST])
    assert len(broker.updates) == 1, "who cannot say it has not handled it"


@pytest.mark.behaviour("OFF-03")
async def test_the_timer_leaves_an_offset_to_a_pull_that_left_while_it_looked(beside_pulls, broker, pull):
    def answered_meanwhile(command: Command) -> Command:
        pull.carries, pull.committed = 6, 5
        return broker._say(command, 5)

    broker.on(RequestCode.QUERY_CONSUMER_OFFSET, answered_meanwhile)
    await beside_pulls.persist_all([FIRST])
    assert broker.updates == []
    assert pull.carries == 6


async def test_a_later_offset_says_that_the_pull_was_handled_but_not_after_a_reset(beside_pulls, broker, pull):
    broker.offsets[TOPIC, 0] = 9  # an operator, or the next owner
    await beside_pulls._look(FIRST, pull, 5)
    assert (pull.carries, pull.committed) == (0, 9)
    pull.carries = 5  # lower than what it has
    await beside_pulls._look(FIRST, pull, 5)
    assert (pull.carries, pull.committed) == (5, 9)
    broker.offsets[TOPIC, 0] = 5
    await beside_pulls._look(FIRST, pull, 5)
    assert (pull.carries, pull.committed) == (0, 5)


@pytest.mark.behaviour("OFF-03")
async def test_a_queue_that_is_given_up_is_not_forgotten_before_it_was_written(beside_pulls, broker, pull, instance):
    last = asyncio.ensure_future(beside_pulls.persist_last(FIRST, 1.0))
    await eventually(lambda: queries(broker) == 1)
    await beside_pulls.persist_all([])
    broker.offsets[TOPIC, 0] = 5
    await instance.clock.advance(0.01)
    assert await last is None
    assert broker.offsets == {(TOPIC, 0): 6}
    await beside_pulls.persist_all([])
    assert beside_pulls.snapshot() == {}


async def test_a_queue_that_is_won_again_is_not_looked_after(beside_pulls, broker, pull, instance):
    make_sure = await beside_pulls.persist_last(FIRST, 0.0)
    assert (queries(broker), broker.offsets) == (1, {(TOPIC, 0): 6})
    beside_pulls._pull_of = {FIRST: PullRequest("g", FIRST, ProcessQueue(FIRST), 5)}.get
    looking = asyncio.ensure_future(make_sure())
    broker.offsets[TOPIC, 0] = 5
    await instance.clock.advance(1.0)
    await looking
    assert (queries(broker), broker.offsets) == (1, {(TOPIC, 0): 5})


async def test_a_store_of_ones_own_needs_to_know_nothing_of_pulls(store, broker):
    assert store.known_at_broker(FIRST) == -1
    broker.offsets[TOPIC, 0] = 3
    await store.read(FIRST, ReadFrom.STORE)
    assert store.known_at_broker(FIRST) == 3
    assert OffsetStore.known_at_broker(store, FIRST) == -1
    store.update(FIRST, 4, increase_only=True)
    assert await OffsetStore.persist_last(store, FIRST, 1.0) is None
    assert broker.offsets == {(TOPIC, 0): 4}


# --- what brokers say of their queues -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda asker: asker.max_offset(SECOND), RequestCode.GET_MAX_OFFSET),
        (lambda asker: asker.min_offset(SECOND), RequestCode.GET_MIN_OFFSET),
        (lambda asker: asker.search(SECOND, 1_700_000_000_000), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
    ],
)
async def test_a_queues_ends_and_times(instance, name_server, broker, slave, ask, code):
    broker.answer = 42
    asker = QueueOffsets(instance)
    assert await ask(asker) == 42
    (asked,) = (command for command in broker.received if command.code == code)
    assert (asked.fields["topic"], asked.fields["queueId"], asked.fields["bname"]) == (TOPIC, "1", "a")
    broker.fault = ResponseCode.SYSTEM_ERROR
    with pytest.raises(BrokerError):
        await ask(asker)
    name_server.set_route(TOPIC, {"a": {1: slave.address}}, queues=2)
    await instance.routes.refresh(TOPIC)
    with pytest.raises(BrokerNotFoundError):
        await ask(asker)


@pytest.mark.parametrize(("version", "asked_for"), [(None, 1000), (V5_0_0, 1000), (V5_0_0 - 1, 999)])
async def test_a_time_is_asked_so_that_no_message_of_that_time_is_lost(instance, broker, version, asked_for):
    if version is not None:
        instance.brokers.set_version("a", broker.address, version)
    await QueueOffsets(instance).search(FIRST, 1000)
    assert broker.received[-1].fields["timestamp"] == str(asked_for)
