"""An embedded broker whose time a test moves, and Java's client on it.

The broker's time stands still unless `advance` is called, so it is known to the millisecond when something was stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rocketstream.broker.embedded import EmbeddedBroker
from rocketstream.broker.members import Members
from rocketstream.broker.names import HALF_TOPIC, SCHEDULE_TOPIC
from rocketstream.broker.offsets import Offsets
from rocketstream.broker.pop import Pop
from rocketstream.broker.settings import DELAY_LEVELS
from rocketstream.broker.transactions import Transactions
from rocketstream.clock import ManualClock, SystemClock
from rocketstream.message import ReceivedMessage
from rocketstream.wire.record_decoder import decode_record
from tests.bare_client import eventually
from tests.interop.java_peer import JavaPeer

TRIES = 3000  # of `eventually`: a minute, for a busy machine
FOREVER = 10.0**9
#: Java's time passes while the broker's stands still: without this, what Java says was born now would come to lie in
#: the broker's future, the sooner the busier the machine is.
AHEAD = 24 * 3600
#: Java looks at its queues every 20 s, and not again within a second; here it is quicker. (Not too quick: Java of 5.5.0
#: takes three seconds to shut down when it happens to be looking.)
REBALANCE = {"rocketmq.client.rebalance.waitInterval": "250", "rocketmq.client.rebalance.minInterval": "100"}


class Stage:
    """A broker, Java's client, and a look behind the curtain."""

    def __init__(self, broker: EmbeddedBroker, java: JavaPeer) -> None:
        self.broker = broker
        self.java = java

    @property
    def now(self) -> int:
        """The broker's time in milliseconds."""
        return self.broker.clock.wall_ms()

    def advance(self, seconds: float) -> int:
        """Let the broker's time pass; returns what it is then."""
        self.broker.advance(seconds)
        return self.now

    def stored(self, topic: str) -> list[ReceivedMessage]:
        """What the broker keeps of a topic, queue by queue."""

        def read(node):
            return [
                node.store.record_at(topic, queue_id, offset)
                for queue_id in node.store.queues(topic)
                for offset in range(node.store.max_offset(topic, queue_id))
            ]

        return [decode_record(record) for record in self.broker.run(read)]

    def count(self, topic: str, queue_id: int = 0) -> int:
        """How many messages a queue had."""
        return self.broker.run(lambda node: node.store.max_offset(topic, queue_id))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """How far a group is, by queue."""
        return self.broker.run(lambda node: dict(_one(node, Offsets).of_group(group).get(topic, {})))

    def leases(self) -> list[tuple[int, int]]:
        """What is popped and not acknowledged: how many messages of a lease, and when its time is over."""
        return self.broker.run(lambda node: [(len(lease.open), lease.ends_at) for lease in _one(node, Pop).leases])

    def open_transactions(self) -> int:
        """How many half messages have no end."""
        return self.broker.run(lambda node: len(_one(node, Transactions)._open))

    def wait_for_producer(self, group: str) -> None:
        """Return once the broker knows a producer of the group: before, it has nobody to ask about transactions."""
        eventually(lambda: self.broker.run(lambda node: _one(node, Members).producers(group)))

    def check_transactions(self) -> tuple[int, int]:
        """Let pass what lies between two looks at open transactions, so that there is one.

        Returns when that was, and the time then. Java may answer before all that time has passed.
        """
        before = self.count(HALF_TOPIC)
        now = self.advance(self.broker.settings.transaction_check_interval)
        (again,) = self.stored(HALF_TOPIC)[before:]  # whoever is asked about is stored anew
        return again.store_timestamp, now

    def after_delay(self, level: int, count: int, waiting: int) -> int:
        """Once `count` messages more than those `waiting` have come to a delay level, let exactly its time pass."""
        eventually(lambda: self.count(SCHEDULE_TOPIC, level - 1) >= waiting + count, TRIES)
        assert self.count(SCHEDULE_TOPIC, level - 1) == waiting + count
        return self.advance(DELAY_LEVELS[level - 1])

    def delayed(self, level: int) -> int:
        """How many messages have been at a delay level so far."""
        return self.count(SCHEDULE_TOPIC, level - 1)


@contextmanager
def staged(version: str) -> Iterator[Stage]:
    """Java's client of a version on an embedded broker of its own."""
    clock = ManualClock(wall=round(SystemClock().wall()) + AHEAD + 0.25)
    # Time that a test makes pass is no silence of Java's.
    with (
        EmbeddedBroker(clock=clock, client_expiry=FOREVER, lock_expiry=FOREVER) as broker,
        JavaPeer(version, broker.address, jvm_properties=REBALANCE) as java,
    ):
        yield Stage(broker, java)


def _one(node, kind):
    (service,) = (service for service in node.services if isinstance(service, kind))
    return service
