"""Locks on queues, for orderly consumption (ORD-01)."""

from __future__ import annotations

from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.base import Body, body, named


@body
class LockBatchRequestBody(Body):
    """LOCK_BATCH_MQ; `only_this_broker` (5.x) is for brokers that ask each other."""

    consumer_group: str
    client_id: str
    mq_set: frozenset[MessageQueue] = frozenset()
    only_this_broker: bool = False


@body
class LockBatchResponseBody(Body):
    """The queues that are locked now."""

    lock_ok_mq_set: frozenset[MessageQueue] = named("lockOKMQSet", default=frozenset())


@body
class UnlockBatchRequestBody(Body):
    """UNLOCK_BATCH_MQ."""

    consumer_group: str
    client_id: str
    mq_set: frozenset[MessageQueue] = frozenset()
    only_this_broker: bool = False
