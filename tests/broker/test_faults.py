"""Faults on order: each kind, which requests meet them, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketstream.broker import EmbeddedBroker
from rocketstream.broker.dispatch import Dispatcher
from rocketstream.broker.faults import Faults
from rocketstream.clock import ManualClock
from rocketstream.errors import ConfigurationError, ConnectionLostError, RequestTimeoutError
from rocketstream.remoting.io_thread import IoThread
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from tests.bare_client import BareClient
from tests.broker.parts import FakeConnection, request


class Peer:
    """A dispatcher that answers pulls and sends, behind the gate of faults."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.dispatcher = Dispatcher()
        self.dispatcher.gates.append(self.faults.gate(self.dispatcher))
        self.carried_out: list[Command] = []
        codes = (RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        self.dispatcher.add(dict.fromkeys(codes, self._carry_out))
        self.connection = FakeConnection(self.dispatcher, ManualClock())

    def _carry_out(self, connection: FakeConnection, command: Command) -> Command:
        self.carried_out.append(command)
        return response(command, ResponseCode.SUCCESS, "done")

    def ask(self, code: RequestCode = RequestCode.PULL_MESSAGE, fields: dict[str, str] | None = None) -> list[int]:
        """The codes of the answers that a request got at once."""
        self.connection.sent.clear()
        self.dispatcher.on_command(self.connection, request(code, fields))
        return [answer.code for answer in self.connection.sent]


@pytest.fixture
def peer() -> Peer:
    return Peer()


def test_an_answer_with_a_code(peer):
    fault = peer.faults.answer("PULL_MESSAGE", ResponseCode.SYSTEM_BUSY, "slow down", times=2, after=1)
    assert [peer.ask() for _ in range(4)] == [[0], [2], [2], [0]]
    assert fault.caught == 2
    assert len(peer.carried_out) == 2
    assert repr(fault) == "<Fault answer LITE_PULL_MESSAGE/PULL_MESSAGE, met 2, 0 more times, holding 0>"


def test_by_topic_and_group_in_long_and_short_headers(peer):
    peer.faults.answer("send_message", 1, times=None, topic="orders", group="shop")
    v2 = RequestCode.SEND_MESSAGE_V2
    assert peer.ask(v2, {"a": "shop", "b": "orders"}) == [1]
    assert peer.ask(RequestCode.SEND_BATCH_MESSAGE, {"producerGroup": "shop", "topic": "orders"}) == [1]
    assert peer.ask(v2, {"a": "shop", "b": "other"}) == [0]
    assert peer.ask(v2, {"a": "other", "b": "orders"}) == [0]
    assert peer.ask() == [0]


def test_a_drop_is_never_answered(peer):
    peer.faults.drop(RequestCode.PULL_MESSAGE)
    assert peer.ask() == []
    assert peer.carried_out == []
    peer.faults.drop(11, carried_out=True)
    assert peer.ask() == []
    assert len(peer.carried_out) == 1
    assert peer.ask() == [0]


def test_a_cut(peer):
    peer.faults.cut("*", carried_out=True)
    assert peer.ask() == []
    assert peer.connection.was_cut
    assert len(peer.carried_out) == 1


async def test_a_hold_lets_go_in_order(peer):
    peer.faults.attach(asyncio.get_running_loop())
    with peer.faults.hold("PULL_MESSAGE", times=2) as held:
        assert [peer.ask(), peer.ask(), peer.ask()] == [[], [], [0]]
        assert held.caught == 2
        peer.connection.sent.clear()
        held.release()
        await asyncio.sleep(0)
        assert [answer.code for answer in peer.connection.sent] == [0, 0]
    with peer.faults.hold("PULL_MESSAGE"):
        assert peer.ask() == []
    await asyncio.sleep(0)
    assert len(peer.carried_out) == 4
    assert peer.ask() == [0]


async def test_clear_ends_everything(peer):
    peer.faults.attach(asyncio.get_running_loop())
    peer.faults.hold("PULL_MESSAGE")
    peer.faults.answer("*", 1, times=None)
    assert peer.ask() == []
    peer.faults.clear()
    await asyncio.sleep(0)
    assert len(peer.carried_out) == 1
    assert peer.ask() == [0]


def test_what_is_no_request_is_named_with_what_is_like_it(peer):
    with pytest.raises(ConfigurationError, match=r"'PUL_MESSAGE' is no request.*did you mean PULL_MESSAGE"):
        peer.faults.drop("PUL_MESSAGE")
    with pytest.raises(ConfigurationError, match='"\\*" is every request'):
        peer.faults.drop("xyzxyz")


# --- on a whole broker, from another thread ----------------------------------------------------------------------


@pytest.fixture
def client(embedded_broker: EmbeddedBroker) -> Iterator[BareClient]:
    client = BareClient(embedded_broker.address, IoThread.shared())
    yield client
    client.close()


def test_a_client_meets_them(embedded_broker, client):
    broker = embedded_broker.broker_address
    faults = embedded_broker.faults
    with faults.hold("GET_BROKER_CONFIG") as held, ThreadPoolExecutor(1) as other:
        asked = other.submit(client.ask, broker, RequestCode.GET_BROKER_CONFIG)
        held.wait_for(1)
        assert not asked.done()
        held.release()
        asked.result(30)
    with faults.cut("GET_BROKER_CONFIG"), pytest.raises(ConnectionLostError):
        client.ask(broker, RequestCode.GET_BROKER_CONFIG)
    with faults.drop("GET_BROKER_CLUSTER_INFO"), pytest.raises(RequestTimeoutError):
        client.ask(embedded_broker.address, RequestCode.GET_BROKER_CLUSTER_INFO, timeout=0.05)
    client.ask(broker, RequestCode.GET_BROKER_CONFIG)
    with faults.hold("*") as nothing, pytest.raises(TimeoutError, match="has not met 1 requests within 0 s"):
        nothing.wait_for(1, timeout=0.0)
