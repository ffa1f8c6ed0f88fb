"""Who is connected: members of groups, as ids for rebalancing and as connections for operators."""

from __future__ import annotations

from collections.abc import Mapping

from rocketstream.wire.bodies.base import Body, body, mapping, named
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import ConsumeFromWhere, ConsumeType, MessageModel
from rocketstream.wire.java import Int32, Int64


@body
class ConsumerListByGroup(Body):
    """GET_CONSUMER_LIST_BY_GROUP's answer: the client ids of a group."""

    consumer_id_list: tuple[str, ...] = ()


@body
class Connection(Body):
    """One client's connection. `language` is a text: a name that we do not know is no reason to fail."""

    client_id: str
    client_addr: str | None = None
    language: str | None = None
    version: Int32 = 0


@body
class ConsumerConnection(Body):
    """GET_CONSUMER_CONNECTION_LIST's answer."""

    connection_set: tuple[Connection, ...] = ()
    subscription_table: Mapping[str, SubscriptionData] = mapping()
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


@body
class ProducerConnection(Body):
    """GET_PRODUCER_CONNECTION_LIST's answer."""

    connection_set: tuple[Connection, ...] = ()


@body
class ProducerInfo(Body):
    """One producer as the broker knows it."""

    client_id: str
    remote_ip: str | None = named("remoteIP", default=None)
    language: str | None = None
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


@body
class ProducerTableInfo(Body):
    """GET_ALL_PRODUCER_INFO's answer: producers by group."""

    data: Mapping[str, tuple[ProducerInfo, ...]] = mapping()
