"""Heartbeats: who a client is and what its groups want (START-15)."""

from __future__ import annotations

from rocketstream.wire.bodies.base import Body, body, named
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import ConsumeFromWhere, ConsumeType, MessageModel
from rocketstream.wire.java import Int32


@body
class ProducerData(Body):
    """One producer group of the client."""

    group_name: str


@body
class ConsumerData(Body):
    """One consumer group of the client."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


@body
class HeartbeatData(Body):
    """HEART_BEAT.

    5.x: with a fingerprint other than 0 a heartbeat may leave out its subscriptions (`without_sub`) as long as they
    have not changed since the broker last saw that fingerprint.
    """

    client_id: str = named("clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False
