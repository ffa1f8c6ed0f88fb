"""The embedded broker as a user meets it: plain, on a loop, again, with a clock, and when it can't start."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from rocketstream import AdminClient, ConsumeResult, Message, Producer, PushConsumer, StartFrom, aio
from rocketstream.broker import EmbeddedBroker
from rocketstream.clock import ManualClock
from rocketstream.errors import ClientStateError, ConfigurationError, RocketStreamError
from tests.bare_client import eventually


def consumed(address: str, topic: str, count: int, group: str = "g") -> list[bytes]:
    """What a push consumer gets."""
    bodies: list[bytes] = []
    enough = threading.Event()

    def listen(messages, context):
        bodies.extend(message.body for message in messages)
        if len(bodies) >= count:
            enough.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(group, address, listener=listen, start_from=StartFrom.FIRST)
    consumer.subscribe(topic)
    with consumer:
        assert enough.wait(60), bodies
    return sorted(bodies)


def test_from_a_producer_to_a_consumer():
    with EmbeddedBroker() as broker:
        assert repr(broker) == f"<EmbeddedBroker {broker.address}, broker {broker.broker_address}, in memory>"
        with Producer("p", broker.address) as producer:
            for number in range(3):
                producer.send(Message("orders", b"%d" % number))
        assert consumed(broker.address, "orders", 3) == [b"0", b"1", b"2"]
    assert not broker.running
    assert repr(broker) == "<EmbeddedBroker in memory, not running>"


async def test_on_the_callers_loop():
    async with EmbeddedBroker() as broker:
        async with aio.Producer("p", broker.address) as producer:
            assert (await producer.send(Message("orders", b"x"))).queue_offset == 0
        with pytest.raises(ClientStateError, match="runs on a loop of yours"):
            broker.stop()
        assert broker.run(lambda node: node.topics.get("orders")) is not None
    assert not broker.running


def test_start_and_stop_again_and_what_is_kept(tmp_path):
    broker = EmbeddedBroker(tmp_path / "data")
    assert f"data='{tmp_path / 'data'}'" in repr(broker)
    broker.stop()
    broker.start()
    with pytest.raises(ClientStateError, match="already running"):
        broker.start()
    with Producer("p", broker.address) as producer:
        producer.send(Message("orders", b"kept"))
    assert consumed(broker.address, "orders", 1) == [b"kept"]
    broker.stop()
    broker.stop()
    with broker, AdminClient(broker.address) as admin:
        assert [message.body for message in admin.peek("orders")] == [b"kept"]
        assert [queue.lag for queue in admin.consumer_progress("g").queues if queue.topic == "orders"] == [0] * 4


def test_what_was_acknowledged_is_there_after_a_crash(tmp_path):
    broker = EmbeddedBroker(tmp_path)
    broker.start()
    with Producer("p", broker.address) as producer:
        producer.send(Message("orders", b"kept"))
    broker.kill()
    with broker, AdminClient(broker.address) as admin:
        assert [message.body for message in admin.peek("orders")] == [b"kept"]


def test_nothing_is_known_of_one_that_does_not_run():
    with pytest.raises(ClientStateError, match="is not running"):
        EmbeddedBroker().address  # noqa: B018


def test_two_masters_under_one_name_server():
    with (
        EmbeddedBroker() as first,
        EmbeddedBroker(name_servers=first.address, broker_name="broker-b") as second,
        AdminClient(first.address) as admin,
        Producer("p", first.address) as producer,
    ):
        assert second.address == first.address
        admin.create_topic("orders", queues=1)
        receipts = [producer.send(Message("orders", b"x"), queue=queue) for queue in producer.queues("orders")]
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-a", "broker-b"}
        second.stop()
        assert [broker.broker_name for broker in admin.cluster().brokers] == ["broker-a"]


# --- time ---------------------------------------------------------------------------------------------------------


def test_a_day_passes_at_once(manual_embedded_broker):
    broker = manual_embedded_broker
    with Producer("p", broker.address) as producer, AdminClient(broker.address) as admin:
        admin.create_topic("orders", queues=1)
        producer.send(Message("orders", b"later", delay=24 * 3600))
        broker.advance(24 * 3600 - 10)
        assert admin.peek("orders") == []
        broker.advance(20)
        eventually(lambda: [message.body for message in admin.peek("orders")] == [b"later"])


def test_only_time_that_is_given_can_be_moved(embedded_broker):
    with pytest.raises(ClientStateError, match=r"only EmbeddedBroker\(clock=ManualClock\(\)\) can be advanced"):
        embedded_broker.advance(1)


async def test_on_a_loop_of_ones_own_the_clock_is_awaited():
    async with EmbeddedBroker(clock=ManualClock()) as broker:
        with pytest.raises(ClientStateError, match=r"await broker.clock.advance"):
            broker.advance(1)
        await asyncio.wait_for(broker.clock.advance(100), 30)


# --- when it can't start ------------------------------------------------------------------------------------------


def test_an_unknown_setting_is_named_with_what_is_like_it():
    with pytest.raises(ConfigurationError, match=r"no setting 'max_mesage_size': did you mean max_message_size"):
        EmbeddedBroker(max_mesage_size=1)
    with pytest.raises(ConfigurationError, match=r"no setting 'xyzxyz': there are .*default_queue_count"):
        EmbeddedBroker(xyzxyz=1)


@pytest.mark.parametrize("setting", ["port", "broker_port"])
def test_a_port_that_is_taken_is_one_clear_sentence_and_nothing_is_left(setting, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = EmbeddedBroker(tmp_path, **{setting: port})
        with pytest.raises(RocketStreamError, match=rf"^port {port} of 127.0.0.1 is taken, so the .* cannot listen"):
            broker.start()
        assert not broker.running
    with broker:
        assert str(port) in broker.address + broker.broker_address


def test_a_directory_that_somebody_has_is_refused(tmp_path):
    with EmbeddedBroker(tmp_path), pytest.raises(RocketStreamError, match=str(tmp_path)):
        EmbeddedBroker(tmp_path).start()
    with EmbeddedBroker(tmp_path):
        pass


def test_the_usual_ports_are_preferred_where_the_usual_one_is_asked_for(monkeypatch):
    from rocketstream.broker import server

    with socket.create_server(("127.0.0.1", 0)) as free:
        usual = free.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as names:
        own = names.getsockname()[1]
    monkeypatch.setattr(server, "NAME_SERVER_PORT", own)
    monkeypatch.setattr(server, "BROKER_PORT", usual)
    with EmbeddedBroker(port=own) as broker:
        assert broker.broker_address == f"127.0.0.1:{usual}"
    with socket.create_server(("127.0.0.1", usual)), EmbeddedBroker(port=own) as broker:
        assert broker.broker_address != f"127.0.0.1:{usual}"


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0"])
def test_clients_are_told_an_address_that_they_can_reach(host):
    with (
        EmbeddedBroker(host=host) as broker,
        Producer("p", f"127.0.0.1:{broker.address.rpartition(':')[2]}") as producer,
    ):
        assert not broker.broker_address.startswith(("0.0.0.0", "localhost"))
        producer.send(Message("orders", b"x"))


def test_its_own_thread_does_not_wait_for_itself(embedded_broker):
    with pytest.raises(ClientStateError, match="would wait for itself"):
        embedded_broker.run(lambda node: embedded_broker.run(lambda node: None))
