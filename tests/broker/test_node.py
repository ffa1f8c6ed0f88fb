"""A node put together: what it changes while it runs, how it starts and ends, who is turned away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl

import pytest
import trustme

from rocketstream.broker import BrokerSettings, EmbeddedBroker
from rocketstream.broker.faults import Faults
from rocketstream.broker.java_settings import change, properties
from rocketstream.broker.node import BrokerNode, NameServerNode
from rocketstream.broker.periodic import Periodic
from rocketstream.clock import ManualClock, SystemClock
from rocketstream.errors import ConfigurationError
from rocketstream.testing._ask import exchange, registered_brokers
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import request
from rocketstream.wire.frame import encode_frame


def test_no_timer_is_left_after_stop_or_kill():
    for end in ("stop", "kill"):
        clock = ManualClock()
        broker = EmbeddedBroker(clock=clock)
        broker.start()
        assert clock.pending
        getattr(broker, end)()
        assert clock.pending == []


def test_what_is_no_request_of_rocketmqs_is_answered_so(embedded_broker):
    for address in (embedded_broker.address, embedded_broker.broker_address):
        answer = exchange(address, request(4711), timeout=10.0)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 4711 not supported"


def test_bytes_that_are_not_rocketmqs_end_the_connection(embedded_broker, caplog):
    async def send_garbage() -> bytes:
        host, _, port = embedded_broker.broker_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        try:
            return await asyncio.wait_for(reader.read(), 30)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    with caplog.at_level(logging.WARNING, "rocketstream.broker"):
        assert asyncio.run(send_garbage()) == b""
    assert "sent bytes that are not RocketMQ's protocol" in caplog.text


# --- TLS ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The context of a server, and of clients that trust it."""
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


def test_tls_for_both_doors_and_who_does_not_shake_hands_holds_up_nobody(tls, caplog):
    server, client = tls
    broker = EmbeddedBroker(tls=server)
    with broker, contextlib.ExitStack() as strangers:
        for address in (broker.address, broker.broker_address):
            host, _, port = address.rpartition(":")
            strangers.enter_context(socket.create_connection((host, int(port))))
            plain = strangers.enter_context(socket.create_connection((host, int(port))))
            plain.sendall(b"".join(encode_frame(request(RequestCode.GET_BROKER_CONFIG))))
            assert exchange(address, request(4711), timeout=10.0, tls=client).code == 3
            assert plain.recv(1000) == b"", "it is shown the door"
        broker.stop()
    assert "the TLS handshake with ('127.0.0.1', " in caplog.text


async def test_tls_on_a_loop_of_ones_own_and_to_another_name_server(tls):
    server, client = tls
    async with EmbeddedBroker(tls=server) as first:
        second = EmbeddedBroker(tls=server, name_servers=first.address, broker_name="broker-b")
        async with second:
            known = await asyncio.to_thread(registered_brokers, first.address, tls=client)
            assert known == {f"broker-a/0@{first.broker_address}", f"broker-b/0@{second.broker_address}"}


async def test_a_name_server_without_a_broker():
    node = await NameServerNode.started(BrokerSettings(), SystemClock(), Faults())
    assert await asyncio.to_thread(registered_brokers, node.address) == set()
    broker = await BrokerNode.started(BrokerSettings(name_servers=node.address), SystemClock(), Faults())
    assert broker.name_server_address == node.address
    assert await asyncio.to_thread(registered_brokers, node.address) == {f"broker-a/0@{broker.address}"}
    await broker.kill()
    await node.stop()


async def test_a_broker_whose_name_server_is_away_runs_and_registers_when_it_is_back(caplog):
    clock = ManualClock()
    node = await NameServerNode.started(BrokerSettings(), SystemClock(), Faults())
    port = int(node.address.rpartition(":")[2])
    await node.stop()
    broker = await BrokerNode.started(BrokerSettings(name_servers=node.address), clock, Faults())
    assert f"name server {node.address} did not take REGISTER_BROKER" in caplog.text
    node = await NameServerNode.started(BrokerSettings(port=port), SystemClock(), Faults())
    await clock.advance(30)
    await broker.registration.registered()
    assert set(node.service.routes.brokers) == {"broker-a"}
    await broker.stop()
    assert node.service.routes.brokers == {}
    await node.stop()


@pytest.mark.parametrize("text", ["nowhere", "host:port", ":1"])
def test_name_servers_that_are_no_addresses(text):
    with pytest.raises(ConfigurationError, match="is not host:port"):
        EmbeddedBroker(name_servers=text).start()


# --- settings in RocketMQ's names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("java_name", "text", "name", "value"),
    [
        ("transactionTimeOut", "1500", "transaction_timeout", 1.5),
        ("fileReservedTime", "48", "retention_time", 48 * 3600),
        ("messageDelayLevel", "1s 2m 3h", "delay_levels", (1, 120, 10800)),
        ("enablePropertyFilter", "false", "sql_filter", False),
        ("autoCreateTopicEnable", "false", "auto_create_topics", False),
        ("brokerPermission", "4", "permission", 4),
        ("flushDiskType", "ASYNC_FLUSH", "flush", "async"),
        ("maxMessageSize", "1024", "max_message_size", 1024),
    ],
)
def test_settings_are_changed_and_told_by_rocketmqs_names(java_name, text, name, value):
    settings = BrokerSettings()
    change(settings, java_name, text)
    assert getattr(settings, name) == value
    assert properties(settings)[java_name] == text


def test_what_means_nothing_here_is_told_again():
    settings = BrokerSettings()
    change(settings, "sendMessageThreadPoolNums", "16")
    change(settings, "accessMessageInMemoryMaxRatio", "0")
    told = properties(settings)
    assert (told["sendMessageThreadPoolNums"], told["accessMessageInMemoryMaxRatio"]) == ("16", "0")
    assert told["messageDelayLevel"] == "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@pytest.mark.parametrize(
    ("java_name", "text"), [("maxMessageSize", "big"), ("maxMessageSize", "0"), ("messageDelayLevel", "1x")]
)
def test_values_that_can_not_be_change_nothing(java_name, text):
    settings = BrokerSettings()
    with pytest.raises(ConfigurationError):
        change(settings, java_name, text)
    assert settings == BrokerSettings()


def test_what_is_changed_in_a_running_broker_ends_with_it():
    broker = EmbeddedBroker()
    with broker:
        exchange(
            broker.broker_address,
            request(RequestCode.UPDATE_BROKER_CONFIG, None, b"maxMessageSize=1024\nodd=1\n"),
            timeout=10.0,
        )
        assert broker.run(lambda node: (node.settings.max_message_size, node.settings.more)) == (1024, {"odd": "1"})
    with broker:
        assert broker.run(lambda node: (node.settings.max_message_size, node.settings.more)) == (4 * 1024 * 1024, {})


async def test_an_interval_that_changes_counts_from_the_next_turn():
    clock = ManualClock()
    seconds, turns = [10.0], []
    work = Periodic(clock, lambda: seconds[0], lambda: turns.append(clock.monotonic()))
    work.start()
    seconds[0] = 1.0
    await clock.advance(12)
    assert turns == [1010.0, 1011.0, 1012.0]
    work.stop()
    await clock.advance(12)
    assert len(turns) == 3
