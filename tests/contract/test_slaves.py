"""A master and its slave: reads move there when the master says so or dies, and back; nothing is lost or skipped.

One life of one cluster, told in one test, because a slave takes long to get going.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from rocketstream import Message, OrderlyResult, Producer, PushConsumer
from rocketstream.consumer.pull_request import COMMIT_OFFSET
from rocketstream.errors import BrokerError, RocketStreamError
from rocketstream.producer.receipt import SendStatus
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.io_thread import IoThread
from rocketstream.testing import RocketMQCluster
from rocketstream.testing.plugin import VERSIONS
from rocketstream.wire.bodies.topic import TopicConfigSerializeWrapper
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command
from rocketstream.wire.headers.offsets import (
    GetMaxOffsetRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
)
from tests.bare_client import BareClient, eventually
from tests.contract.clusters import require_target
from tests.contract.consuming import Heard, new_consumer, persist

TOPIC, GROUP = "watched", "readers"
LONG = 6000  # tries of `eventually`


class Pulls(RpcHook):
    """Which broker each pull of the topic went to, and to which of them the group's offset travelled along."""

    inline = True

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.committing: set[str] = set()

    def before_request(self, address: str, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE and request.fields["topic"] == TOPIC:
            self.addresses.append(address)
            if int(request.fields["sysFlag"]) & COMMIT_OFFSET:
                self.committing.add(address)


class Pair:
    """A master that calls itself busy as soon as anything is unread, and its slave."""

    def __init__(self, version: str, stack: ExitStack) -> None:
        busy = {"slaveReadEnable": True, "accessMessageInMemoryMaxRatio": 0}
        self.cluster = stack.enter_context(
            RocketMQCluster(version, slaves=1, broker_config=busy, broker_heap="256m", name_server_heap="96m")
        )
        self.address = self.cluster.name_server_address
        self.master, self.slave = self.cluster.brokers[0], self.cluster.slaves[0]
        self.client = BareClient(self.address, IoThread.shared())
        stack.callback(self.client.close)
        self.client.create_topic(self.master.address, TOPIC)
        if version.startswith("5."):  # whose slaves ask for new topics once a minute
            self.client.create_topic(self.slave.address, TOPIC)
        eventually(self._slave_knows_the_topic, LONG)
        settings = {"send_timeout": 10.0, "poll_name_server_interval": 1.0}
        self.producer = stack.enter_context(Producer("writers", self.address, **settings))
        self._stack = stack

    def _slave_knows_the_topic(self) -> bool:
        answer = self.client.ask(self.slave.address, RequestCode.GET_ALL_TOPIC_CONFIG)
        return TOPIC in TopicConfigSerializeWrapper.decode(answer.body).topic_config_table

    def send(self, *bodies: bytes) -> None:
        """Store messages, on the slave too."""
        for some in batched(bodies, 20):
            eventually(lambda some=some: self._status(some) is SendStatus.OK, LONG)

    def send_to_master(self, *bodies: bytes) -> None:
        """Store messages; whether the slave gets them, and when, is not asked."""
        eventually(lambda: self._status(bodies) is not None, LONG)

    def _status(self, bodies: Sequence[bytes]) -> SendStatus | None:
        """What the slave has not got is sent twice; all that is asked is that nothing is missing."""
        try:
            (receipt,) = self.producer.send_batch([Message(TOPIC, body) for body in bodies])
        except RocketStreamError:
            return None
        return receipt.status

    def consume(self, group: str, listener: Heard, hook: RpcHook, **settings: Any) -> PushConsumer:
        consumer = new_consumer(group, self.address, listener, TOPIC, rpc_hooks=[hook], **settings)
        return self._stack.enter_context(consumer)

    def offset_at(self, address: str) -> int:
        """What a broker says of the group; -1 if it knows nothing of it yet."""
        header = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0, bname="broker-a")
        try:
            answer = self.client.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return -1
            raise
        return OffsetResponseHeader.from_fields(answer.fields).offset

    def max_offset_at(self, address: str) -> int:
        """How many messages a broker has."""
        header = GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=0)
        answer = self.client.ask(address, RequestCode.GET_MAX_OFFSET, header)
        return OffsetResponseHeader.from_fields(answer.fields).offset


@pytest.fixture(scope="module", params=VERSIONS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    require_target(request, request.param)
    with ExitStack() as stack:
        yield Pair(request.param, stack)


def batched(bodies: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    return [bodies[begin : begin + size] for begin in range(0, len(bodies), size)]


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%03d" % number for number in range(first, last)]


def last_pull_at(hook: Pulls, address: str) -> Callable[[], bool]:
    return lambda: bool(hook.addresses) and hook.addresses[-1] == address


@pytest.mark.feature("slaves/suggested", "slaves/master-down", "slaves/offsets", "slaves/locks", "slaves/master-back")
@pytest.mark.feature("slaves/chosen")
@pytest.mark.behaviour("PULL-16", "PULL-17", "RES-01", "REB-07")
@pytest.mark.long(60, "kills a master, and waits for its slave and for its return")
def test_reads_move_to_the_slave_and_back(pair: Pair) -> None:
    master, slave = pair.master, pair.slave
    pair.send(*numbered(0, 60))

    # A busy master sends its readers away; caught up, they come back.
    heard, pulls = Heard(), Pulls()
    # Once the master is back, it is found by a regular look at the routes: not in half a minute, please.
    often = {"poll_name_server_interval": 5.0, "broker_suspend_max_time": 1.0, "heartbeat_interval": 2.0}
    # Its offsets are written when the test says so: in between only pulls bring them.
    seldom = {"persist_offset_interval": 3600.0}
    consumer = pair.consume(GROUP, heard, pulls, pull_batch_size=8, **often, **seldom)
    heard.until_heard(*numbered(0, 60))
    assert pulls.addresses[0] == master.address
    assert slave.address in pulls.addresses
    eventually(last_pull_at(pulls, master.address), LONG)

    # One who wants the slave gets it.
    at_slave, its_pulls = Heard(), Pulls()
    chooser = pair.consume("choosers", at_slave, its_pulls, connect_broker_by_user=slave.broker_id)
    at_slave.until_heard(*numbered(0, 60))
    chooser.shutdown()
    assert set(its_pulls.addresses) == {slave.address}

    # The master dies with messages that nobody has read.
    consumer.suspend()
    pair.send(*numbered(60, 80))
    master.kill()
    pulls.addresses.clear()
    consumer.resume()
    heard.until_heard(*numbered(60, 80))
    eventually(last_pull_at(pulls, slave.address), LONG)
    consumed = pair.max_offset_at(slave.address)
    eventually(lambda: (persist(consumer), pair.offset_at(slave.address))[1] == consumed, LONG)
    with pytest.raises(RocketStreamError, match=f"topic '{TOPIC}'"):
        pair.producer.send(Message(TOPIC, b"nowhere to go"), timeout=1.0)

    # Locks are the master's: who wants order has no queue until it is back.
    ordered, ordered_pulls = Heard(lambda messages, context: OrderlyResult.SUCCESS), Pulls()
    in_order = pair.consume("in-order", ordered, ordered_pulls, orderly=True, rebalance_interval=1.0, **often)
    assert (in_order.assignment, ordered_pulls.addresses) == ((), [])

    master.start()
    pair.send_to_master(*numbered(80, 84))
    heard.until_heard(*numbered(80, 84))
    eventually(last_pull_at(pulls, master.address), LONG)
    eventually(lambda: (persist(consumer), pair.offset_at(master.address))[1] >= consumed, LONG)
    for body in numbered(84, 86):  # one by one: who comes back to the master carries what was consumed meanwhile
        pair.send_to_master(body)
        heard.until_heard(body)
        eventually(last_pull_at(pulls, master.address), LONG)
    ordered.until_heard(*numbered(0, 86))
    assert first_times(ordered.bodies) == numbered(0, 86)
    assert set(heard.bodies) == set(numbered(0, 86)), "nothing is lost"
    assert pulls.committing == {master.address}, "a pull from a slave commits nothing"
    consumer.shutdown()
    assert pair.offset_at(master.address) == pair.max_offset_at(master.address)


def first_times(bodies: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(bodies))
