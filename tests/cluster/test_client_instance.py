"""The client instance: shared, started in order, its timers on time, its heartbeats complete."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rocketstream.cluster.client_id import client_id, unique_instance_name
from rocketstream.cluster.client_instance import ClientInstance, InstanceState
from rocketstream.cluster.client_instances import ClientInstances, instances_of
from rocketstream.cluster.members import ServiceOrder
from rocketstream.cluster.settings import ClientSettings
from rocketstream.errors import ClientStateError, ConfigurationError, NameServerError
from rocketstream.remoting.acl import Credentials
from rocketstream.remoting.io_thread import IoThread
from rocketstream.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketstream.wire.codes import ConsumeFromWhere, ConsumeType, MessageModel, RequestCode
from rocketstream.wire.subscription import subscription
from tests.scripted import eventually

HEART_BEAT = RequestCode.HEART_BEAT


class Producer:
    def __init__(self, group: str, *topics: str) -> None:
        self.group = group
        self._topics = topics

    def topics(self) -> Iterable[str]:
        return self._topics


class Consumer(Producer):
    def __init__(self, group: str, *topics: str) -> None:
        super().__init__(group, *topics)
        self.persisted: list[float] = []
        self.adjusted = 0
        self.fails = False

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.BROADCASTING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            subscription_data_set=tuple(subscription(topic, "a || b", version=7) for topic in self._topics),
            unit_mode=True,
        )

    async def persist_offsets(self) -> None:
        self.persisted.append(0)
        if self.fails:
            raise RuntimeError("the store is broken")

    async def adjust_threads(self) -> None:
        self.adjusted += 1


@pytest.fixture
async def instance(clock, name_server):
    settings = ClientSettings(name_servers=(name_server.address,))
    instance = ClientInstance("127.0.0.1@test", settings, clock=clock)
    yield instance
    await instance.stop()


@pytest.mark.behaviour("START-11")
async def test_timers_run_when_they_should(instance, clock, name_server, broker):
    name_server.set_route("t", {"a": {0: broker.address}})
    consumer = Consumer("g", "t")
    instance.register_consumer(consumer)
    await instance.start()
    await clock.advance(0.009)
    assert name_server.asked_for("t") == 0
    await clock.advance(0.001)
    await eventually(lambda: instance.routes.cached("t") is not None)  # routes: 10 ms

    await clock.advance(0.98)
    assert broker.count(HEART_BEAT) == 0
    await clock.advance(0.01)
    await eventually(lambda: broker.count(HEART_BEAT) == 1)  # heartbeat: 1 s
    await clock.advance(8.9)
    assert consumer.persisted == []
    await clock.advance(0.1)
    assert len(consumer.persisted) == 1  # offsets: 10 s
    await clock.advance(5)
    assert len(consumer.persisted) == 2  # and each 5 s
    await clock.advance(14.9)  # 29.9 s
    assert name_server.asked_for("t") == 1
    assert broker.count(HEART_BEAT) == 1
    await clock.advance(0.11)  # 30.01 s
    await eventually(lambda: name_server.asked_for("t") == 2)
    await clock.advance(0.99)  # 31 s
    await eventually(lambda: broker.count(HEART_BEAT) == 2)
    await clock.advance(28.9)
    assert consumer.adjusted == 0
    await clock.advance(0.1)  # 60 s
    assert consumer.adjusted == 1
    await clock.advance(60)
    assert consumer.adjusted == 2


@pytest.mark.behaviour("START-11")
async def test_a_task_that_raises_is_logged_and_keeps_its_schedule(instance, clock, caplog):
    broken = Consumer("broken")
    broken.fails = True
    healthy = Consumer("healthy")
    instance.register_consumer(broken)
    instance.register_consumer(healthy)
    await instance.start()
    await clock.advance(21)
    assert len(broken.persisted) == len(healthy.persisted) == 3
    assert caplog.text.count("consumer group broken could not persist its offsets") == 3
    assert "the store is broken" in caplog.text

    runs = 0

    async def raises() -> None:
        nonlocal runs
        runs += 1
        raise ValueError("no good")

    instance.timers.every("fragile", 1, 2, raises)
    await clock.advance(5)
    assert runs == 3
    assert caplog.text.count("the periodic task fragile failed; it runs again in 2 s") == 3


@pytest.mark.behaviour("START-11")
async def test_a_task_that_is_still_running_skips_its_turn(instance, clock):
    release = asyncio.Event()
    runs = 0

    async def slow() -> None:
        nonlocal runs
        runs += 1
        await release.wait()

    task = instance.timers.every("slow", 1, 1, slow)
    await clock.advance(5)
    assert runs == 1
    assert "running" in repr(task)
    release.set()
    await clock.advance(1)
    assert runs == 2
    assert repr(task) == "<PeriodicTask slow each 1 s, 2 runs, next in 1 s>"


async def test_offline_brokers_are_cleaned_before_the_heartbeat(instance, clock, name_server, broker, slave):
    name_server.set_route("t", {"a": {0: broker.address}, "b": {0: slave.address}})
    instance.register_consumer(Consumer("g", "t"))
    await instance.start()
    await clock.advance(0.01)
    await eventually(lambda: len(instance.brokers) == 2)
    await clock.advance(1)
    await eventually(lambda: slave.count(HEART_BEAT) == 1)
    name_server.set_route("t", {"a": {0: broker.address}})
    await clock.advance(29.5)
    await eventually(lambda: len(instance.routes.cached("t").brokers) == 1)
    await clock.advance(1)
    await eventually(lambda: broker.count(HEART_BEAT) == 2)
    assert slave.count(HEART_BEAT) == 1
    await eventually(lambda: slave.peers == [])


@pytest.mark.behaviour("START-15")
async def test_a_heartbeat_tells_all_of_the_client(instance, name_server, broker, slave):
    name_server.set_route("t", {"a": {0: broker.address, 1: slave.address}})
    instance.register_consumer(Consumer("consumers", "t"))
    instance.register_producer(Producer("producers", "t"))
    await instance.start()
    await instance.refresh_routes()
    assert await instance.heartbeat() == 2, "consumers are known to slaves too"
    heartbeat = HeartbeatData.decode(broker.received[-1].body)
    assert heartbeat.client_id == "127.0.0.1@test"
    assert [producer.group_name for producer in heartbeat.producer_data_set] == ["producers"]
    (consumer,) = heartbeat.consumer_data_set
    assert consumer == Consumer("consumers", "t").heartbeat()
    assert consumer.unit_mode
    (wanted,) = consumer.subscription_data_set
    assert (wanted.topic, wanted.tags_set, wanted.sub_version) == ("t", {"a", "b"}, 7)
    assert instance.brokers.master("a").version == broker.VERSION


@pytest.mark.behaviour("START-15")
async def test_producers_alone_are_told_to_masters_only_and_nobody_to_no_one(instance, name_server, broker, slave):
    name_server.set_route("t", {"a": {0: broker.address, 1: slave.address}})
    await instance.start()
    await instance.routes.get("t")
    assert await instance.heartbeat() == 0
    instance.register_producer(Producer("producers", "t"))
    assert await instance.heartbeat() == 1
    assert slave.received == []


async def test_a_broker_that_takes_no_heartbeat_is_logged_and_the_others_get_theirs(
    instance, name_server, broker, slave, caplog
):
    name_server.set_route("t", {"a": {0: broker.address}, "b": {0: slave.address}})
    instance.register_consumer(Consumer("g", "t"))
    await instance.start()
    await instance.refresh_routes()
    await slave.stop()
    assert await instance.heartbeat() == 1
    assert "broker b took no heartbeat" in caplog.text


async def test_leaving_a_group_is_told_to_all_brokers(instance, name_server, broker, slave):
    name_server.set_route("t", {"a": {0: broker.address, 1: slave.address}})
    consumer = Consumer("g", "t")
    instance.register_consumer(consumer)
    await instance.start()
    await instance.refresh_routes()
    await instance.unregister_consumer("g")
    await instance.unregister_consumer("g")
    for peer in (broker, slave):
        (told,) = (command for command in peer.received if command.code == RequestCode.UNREGISTER_CLIENT)
        assert told.fields["clientID"] == "127.0.0.1@test"
        assert told.fields["consumerGroup"] == "g"
        assert "producerGroup" not in told.fields
    assert instance.consumers == ()


async def test_a_second_member_of_a_group_is_refused(instance):
    instance.register_consumer(Consumer("g"))
    instance.register_producer(Producer("g"))
    with pytest.raises(ClientStateError, match="already has a consumer of group 'g'"):
        instance.register_consumer(Consumer("g"))
    with pytest.raises(ClientStateError, match="already has a producer of group 'g'"):
        instance.register_producer(Producer("g"))


class Recorded:
    def __init__(self, name: str, log: list[str], instance: ClientInstance, fails: bool = False) -> None:
        self.name = name
        self.log = log
        self.instance = instance
        self.fails = fails

    async def start(self) -> None:
        remoting_runs = "running" in repr(self.instance.remoting)
        timers_run = "refresh routes" in repr(self.instance.timers)
        assert remoting_runs
        assert timers_run
        if self.fails:
            raise RuntimeError(f"{self.name} cannot start")
        self.log.append(f"+{self.name}")

    async def stop(self) -> None:
        self.log.append(f"-{self.name}")


async def test_services_start_after_remoting_and_timers_in_order_and_stop_in_reverse(instance):
    log: list[str] = []
    instance.add_service(ServiceOrder.INNER_PRODUCER, Recorded("producer", log, instance))
    instance.add_service(ServiceOrder.REBALANCE, Recorded("rebalance", log, instance))
    instance.add_service(ServiceOrder.PULL, Recorded("pull", log, instance))
    await asyncio.gather(instance.start(), instance.start())
    assert log == ["+pull", "+rebalance", "+producer"]
    with pytest.raises(ClientStateError, match="too late for a service"):
        instance.add_service(ServiceOrder.PULL, Recorded("late", log, instance))
    await instance.stop()
    await instance.stop()
    assert log[3:] == ["-producer", "-rebalance", "-pull"]
    with pytest.raises(ClientStateError, match="cannot start: it is stopped"):
        await instance.start()


async def test_stopping_in_the_middle_of_a_start_ends_both(instance, clock):
    class Slow:
        async def start(self) -> None:
            await asyncio.Event().wait()

        async def stop(self) -> None:
            raise AssertionError("it never started")

    instance.add_service(ServiceOrder.PULL, Slow())
    starting = asyncio.ensure_future(instance.start())
    await clock.settle()
    await instance.stop()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert instance.state is InstanceState.STOPPED
    assert clock.pending == []


async def test_a_start_that_fails_leaves_nothing_running(instance, clock):
    log: list[str] = []
    instance.add_service(ServiceOrder.PULL, Recorded("pull", log, instance))
    instance.add_service(ServiceOrder.REBALANCE, Recorded("rebalance", log, instance, fails=True))
    with pytest.raises(RuntimeError, match="rebalance cannot start"):
        await instance.start()
    assert log == ["+pull", "-pull"]
    assert instance.state is InstanceState.START_FAILED
    assert clock.pending == []
    assert "closed" in repr(instance.remoting)


@pytest.mark.behaviour("START-05")
async def test_clients_with_one_id_share_one_instance_until_the_last_leaves(clock, name_server):
    instances = ClientInstances(clock)
    settings = ClientSettings(name_servers=(name_server.address,))
    one = instances.acquire("id", settings)
    other = instances.acquire("id", replace(settings))
    stranger = instances.acquire("another", settings)
    assert one is other
    assert one is not stranger
    await one.start()
    await other.start()
    await instances.release(one)
    assert one.state is InstanceState.RUNNING
    await instances.release(other)
    assert one.state is InstanceState.STOPPED
    again = instances.acquire("id", settings)
    assert again is not one
    await instances.release(again)
    await instances.release(stranger)


@pytest.mark.behaviour("START-05")
async def test_one_id_with_other_settings_is_refused(clock, name_server):
    instances = ClientInstances(clock)
    settings = ClientSettings(name_servers=(name_server.address,))
    instance = instances.acquire("id", settings)
    for other in (
        replace(settings, name_servers=("127.0.0.1:1",)),
        replace(settings, credentials=Credentials("key", "secret")),
        replace(settings, heartbeat_interval=1),
    ):
        with pytest.raises(ConfigurationError, match="client id id is in use with other settings"):
            instances.acquire("id", other)
    await instances.release(instance)
    assert instance.state is InstanceState.STOPPED


@pytest.mark.behaviour("START-05")
def test_each_io_thread_has_its_own_instances():
    one, other = IoThread("one"), IoThread("other")
    assert instances_of(one) is instances_of(one)
    assert instances_of(one) is not instances_of(other)
    one.stop()
    other.stop()


class AddressPage:
    """An HTTP server whose answer a test sets."""

    def __init__(self) -> None:
        page = self
        self.text = ""
        self.status = 200
        self.paths: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.paths.append(self.path)
                self.send_response(page.status)
                self.end_headers()
                self.wfile.write(page.text.encode())

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/rocketmq/nsaddr"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def page():
    page = AddressPage()
    yield page
    page.close()


@pytest.mark.behaviour("START-10")
async def test_without_name_servers_their_list_comes_from_the_address_server(clock, page, caplog):
    page.text = "127.0.0.1:1;127.0.0.1:2\r\nignored"
    settings = ClientSettings(name_servers=None, address_server=page.url, unit_name="unit")
    instance = ClientInstance("id", settings, clock=clock)
    await instance.start()
    assert instance.name_servers.addresses == ("127.0.0.1:1", "127.0.0.1:2")
    assert page.paths == ["/rocketmq/nsaddr-unit?nofix=1"]
    page.text = "127.0.0.1:3"
    await clock.advance(9.9)
    assert len(page.paths) == 1
    await clock.advance(0.1)
    await eventually(lambda: instance.name_servers.addresses == ("127.0.0.1:3",))  # after 10 s
    page.status = 500
    await clock.advance(119)
    assert len(page.paths) == 2
    await clock.advance(1)
    await eventually(lambda: "the list of name servers stays as it is" in caplog.text)  # and each 2 min
    assert instance.name_servers.addresses == ("127.0.0.1:3",)
    page.status, page.text = 200, "nonsense"
    await clock.advance(120)
    await eventually(lambda: "named no usable name server" in caplog.text)
    assert instance.name_servers.addresses == ("127.0.0.1:3",)
    page.text = "127.0.0.1:4"
    await clock.advance(120)
    await eventually(lambda: instance.name_servers.addresses == ("127.0.0.1:4",))
    await instance.stop()


@pytest.mark.behaviour("START-10")
async def test_an_address_server_that_does_not_answer_fails_the_start_with_what_to_do(clock, page):
    page.close()
    instance = ClientInstance("id", ClientSettings(name_servers=None, address_server=page.url), clock=clock)
    with pytest.raises(NameServerError, match=r"could not be asked for name servers: .*Pass name_servers= or set"):
        await instance.start()
    assert clock.pending == []
    page.__init__()


@pytest.mark.behaviour("START-10")
async def test_configured_name_servers_need_no_address_server(clock, page):
    settings = ClientSettings.make("127.0.0.1:9876", address_server=page.url)
    instance = ClientInstance("id", settings, clock=clock)
    await instance.start()
    await clock.advance(300)
    await instance.stop()
    assert page.paths == []
    assert instance.name_servers.addresses == ("127.0.0.1:9876",)


@pytest.mark.parametrize("name", ["heartbeat_interval", "poll_name_server_interval", "persist_offset_interval"])
def test_intervals_that_cannot_work_are_refused_by_name(name):
    with pytest.raises(ConfigurationError, match=f"{name}=0 must be greater than 0 seconds"):
        ClientSettings(name_servers=("a:1",), **{name: 0})


def test_client_ids_are_built_as_java_builds_them_and_instance_names_are_unique():
    assert client_id("i", ip="10.0.0.1") == "10.0.0.1@i"
    assert client_id("i", "unit", ip="10.0.0.1") == "10.0.0.1@i@unit"
    assert client_id("i").endswith("@i")
    assert len({unique_instance_name() for _ in range(1000)}) == 1000
