"""Static topics of RocketMQ 5: a fixed number of logical queues, which an operator moves from broker to broker.

Made and moved by RocketMQ's own `mqadmin`; sent to, consumed, committed and looked at by us.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstream import AdminClient, ConsumeResult, Message, OrderlyResult, Producer
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.spark.link import Link, LinkSettings
from rocketstream.testing import RocketMQCluster
from rocketstream.testing.plugin import FOLLOWED
from tests.bare_client import eventually
from tests.contract.clusters import require_target
from tests.contract.consuming import Heard, new_consumer
from tests.interop.mqadmin import mqadmin

TOPIC, QUEUES = "static", 4
LOGICAL = [MessageQueue(TOPIC, "__syslo__global__", queue_id) for queue_id in range(QUEUES)]


class Moved:
    """A topic that was made on broker-a and, after the first messages, moved to broker-b."""

    def __init__(self, cluster: RocketMQCluster, home: Path) -> None:
        self.address = cluster.name_server_address
        self._version, self._home = cluster.version, home

    def operate(self, *command: str) -> None:
        mqadmin(self._version, self._home, self.address, command)


@pytest.fixture(scope="module")
def moved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moved]:
    require_target(request, FOLLOWED)
    heaps = {"broker_heap": "256m", "name_server_heap": "96m"}
    with RocketMQCluster(FOLLOWED, brokers=2, **heaps) as cluster:
        yield Moved(cluster, tmp_path_factory.mktemp("mqadmin"))


@pytest.mark.rocketmq_real
@pytest.mark.feature("names/static", "names/static-order", "names/static-admin", on=FOLLOWED)
@pytest.mark.long(45, "moves queues between two brokers")
def test_logical_queues_are_followed_from_broker_to_broker(moved: Moved) -> None:
    address = moved.address
    moved.operate("updateStaticTopic", "-t", TOPIC, "-qn", str(QUEUES), "-b", "broker-a")

    def fail_once(messages, context):
        if messages[0].body == b"fails" and not messages[0].reconsume_times:
            context.delay_level_when_next_consume = 1
            return ConsumeResult.RECONSUME_LATER
        return ConsumeResult.SUCCESS

    heard, late = Heard(fail_once), Heard()
    ordered = Heard(lambda messages, context: OrderlyResult.SUCCESS)
    with Producer("p", address, send_timeout=10.0) as producer, AdminClient(address) as admin:
        eventually(lambda: len(admin.route(TOPIC).brokers) == 2)
        assert producer.queues(TOPIC) == tuple(LOGICAL)
        before = [producer.send(Message(TOPIC, b"%d" % n), queue=LOGICAL[n % QUEUES]) for n in range(8)]
        assert [(one.queue, one.queue_offset) for one in before] == [(LOGICAL[n % 4], n // 4) for n in range(8)]
        by_key = producer.send(Message(TOPIC, b"fails"), sharding_key="same")
        consumer = new_consumer("g", address, heard, TOPIC, heartbeat_interval=2.0)
        follower = new_consumer("in-order", address, ordered, TOPIC, orderly=True, rebalance_interval=1.0)
        with consumer, follower:
            assert consumer.assignment == tuple(LOGICAL)
            heard.until(10)
            ordered.until(9)
            assert {(d.body, d.topic, d.reconsume_times) for d in heard.of(b"fails")} == {
                (b"fails", TOPIC, 0),
                (b"fails", TOPIC, 1),
            }
            # Each message shows its logical queue, and its offset there.
            for receipt in before:
                (delivery,) = heard.of(b"%d" % before.index(receipt))
                message = delivery.message
                assert (message.queue, message.queue_offset) == (receipt.queue, receipt.queue_offset)

            moved.operate("remappingStaticTopic", "-t", TOPIC, "-b", "broker-b")
            # The old leader refuses; the new one is found at once, and keys stay with their queues.
            after = [producer.send(Message(TOPIC, b"after-%d" % n), queue=LOGICAL[n]) for n in range(QUEUES)]
            assert producer.send(Message(TOPIC, b"after-key"), sharding_key="same").queue == by_key.queue
            heard.until_heard(*(b"after-%d" % n for n in range(QUEUES)), b"after-key")
            ordered.until_heard(*(b"after-%d" % n for n in range(QUEUES)), b"after-key")
            for n, receipt in enumerate(after):
                (delivery,) = heard.of(b"after-%d" % n)
                assert delivery.message.queue_offset == receipt.queue_offset > before[-1].queue_offset
            for queue in LOGICAL:
                offsets = [d.message.queue_offset for d in ordered.deliveries if d.message.queue == queue]
                assert offsets == sorted(set(offsets)), "in order, and nothing twice"

        # A group that comes later reads both parts; one that was there goes on where it was.
        with new_consumer("late", address, late, TOPIC, client_rebalance=False) as newcomer:
            assert newcomer.assignment == tuple(LOGICAL), "brokers would assign the queues that they have"
            late.until(14)
        assert len(set(late.bodies)) == 14
        again = Heard()
        with new_consumer("g", address, again, TOPIC):
            producer.send(Message(TOPIC, b"last"))
            again.until_heard(b"last")
        assert again.bodies == [b"last"]
        assert sum(one.max_offset - one.min_offset for one in admin.queue_ranges(TOPIC)) == 15
        assert {one.topic for one in admin.consumer_progress("g").queues} >= {TOPIC}
        assert b"last" in {message.body for message in admin.peek(TOPIC, 100)}
    spark = Link(LinkSettings((address,)))
    with pytest.raises(ConfigurationError, match="is a static topic, whose logical queues this source cannot read"):
        spark.queues([TOPIC])
    spark.close()
