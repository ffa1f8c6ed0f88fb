"""The VIP channel: which requests take the port two below, and what is said when nobody listens there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketstream import AdminClient, Producer, PushConsumer
from rocketstream.clock import ManualClock
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.settings import ClientSettings
from rocketstream.cluster.vip import VIP_CODES, vip_address
from rocketstream.errors import ConfigurationError, ConnectError
from rocketstream.testing.scripted_server import ScriptedServer
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response

ASKED = (RequestCode.GET_MAX_OFFSET, RequestCode.LOCK_BATCH_MQ, RequestCode.QUERY_CONSUMER_OFFSET)


def test_the_channel_is_two_ports_below():
    assert vip_address("127.0.0.1:10911") == "127.0.0.1:10909"
    assert vip_address("[::1]:10911") == "[::1]:10909"
    with pytest.raises(ConfigurationError, match="broker host:2 has no port 2 below its own; use vip_channel=False"):
        vip_address("host:2")


@pytest.mark.parametrize(
    "code", ["PULL_MESSAGE", "LITE_PULL_MESSAGE", "POP_MESSAGE", "ACK_MESSAGE", "HEART_BEAT", "END_TRANSACTION"]
)
def test_what_stays_with_the_brokers_own_port(code):
    assert int(RequestCode[code]) not in VIP_CODES


@pytest.mark.parametrize("make", [Producer, PushConsumer, lambda group, **settings: AdminClient(**settings)])
def test_it_is_a_switch(make):
    with pytest.raises(ConfigurationError, match="vip_channel='yes' must be True or False"):
        make("g", name_servers="127.0.0.1:9876", vip_channel="yes")


class Saying(ScriptedServer):
    """Says yes to everything."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        for code in (*ASKED, RequestCode.HEART_BEAT):
            self.on(code, self._yes)

    def _yes(self, command: Command) -> Command:
        return response(command, ResponseCode.SUCCESS)


@pytest.fixture
async def channel() -> AsyncIterator[Saying]:
    async with Saying() as server:
        yield server


def broker_of(channel: Saying) -> str:
    host, _, port = channel.address.rpartition(":")
    return f"{host}:{int(port) + 2}"


async def instance_with(*, vip_channel: bool) -> ClientInstance:
    instance = ClientInstance("me", ClientSettings.make("127.0.0.1:1", vip_channel=vip_channel), clock=ManualClock())
    await instance.start()
    return instance


async def test_requests_are_sorted_by_their_code(channel):
    broker = broker_of(channel)
    instance = await instance_with(vip_channel=True)
    try:
        for code in ASKED:
            await instance.ask(broker, code)
        assert [command.code for command in channel.received] == list(ASKED)
        assert instance.address_for(RequestCode.HEART_BEAT, broker) == broker
        assert instance.address_for(RequestCode.PULL_MESSAGE, broker) == broker
    finally:
        await instance.stop()
    off = await instance_with(vip_channel=False)
    assert off.address_for(RequestCode.GET_MAX_OFFSET, broker) == broker
    await off.stop()


async def test_a_broker_that_does_not_listen_there_is_told_with_the_setting(channel):
    broker = broker_of(channel)
    await channel.stop()
    instance = await instance_with(vip_channel=True)
    try:
        with pytest.raises(ConnectError) as raised:
            await instance.ask(broker, RequestCode.GET_MAX_OFFSET)
    finally:
        await instance.stop()
    text = str(raised.value)
    assert text.startswith(f"{vip_address(broker)}: ")
    assert f"this is the VIP channel of broker {broker}; with vip_channel=False its own port is used" in text
