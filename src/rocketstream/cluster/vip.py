"""The VIP channel: a second door of every broker, two ports below its own, that pulls cannot crowd.

The rule of this file: which requests take that door is RocketMQ's own choice (Java's `MixAll.brokerVIPChannel` and its
callers): sends, offsets, locks and operators' questions do; pulls, pops, acknowledgements, heartbeats and the ends of
transactions stay with the first. A broker in a container often shows its first port only, so the channel is off unless
`vip_channel=True`.
"""

from __future__ import annotations

from typing import Final

from rocketstream.errors import ConfigurationError, ConnectError
from rocketstream.wire.codes import RequestCode

_PORTS_BELOW: Final = 2

VIP_CODES: Final = frozenset(
    map(
        int,
        (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.QUERY_CONSUMER_OFFSET,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.GET_MAX_OFFSET,
            RequestCode.GET_MIN_OFFSET,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            RequestCode.LOCK_BATCH_MQ,
            RequestCode.UNLOCK_BATCH_MQ,
            RequestCode.CHECK_CLIENT_CONFIG,
            RequestCode.QUERY_ASSIGNMENT,
            RequestCode.SET_MESSAGE_REQUEST_MODE,
            RequestCode.QUERY_MESSAGE,
            RequestCode.VIEW_MESSAGE_BY_ID,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_TOPIC_CONFIG,
            RequestCode.DELETE_TOPIC_IN_BROKER,
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
            RequestCode.GET_TOPIC_STATS_INFO,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            RequestCode.GET_CONSUME_STATS,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            RequestCode.QUERY_TOPICS_BY_CONSUMER,
            RequestCode.QUERY_CORRECTION_OFFSET,
            RequestCode.QUERY_CONSUME_QUEUE,
            RequestCode.UPDATE_BROKER_CONFIG,
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.VIEW_BROKER_STATS_DATA,
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
        ),
    )
)


def vip_address(address: str) -> str:
    """The VIP channel of the broker at an address."""
    host, _, port = address.rpartition(":")
    number = int(port) - _PORTS_BELOW
    if number < 1:
        raise ConfigurationError(
            f"vip_channel=True: broker {address} has no port {_PORTS_BELOW} below its own; use vip_channel=False"
        )
    return f"{host}:{number}"


def explained(error: ConnectError, address: str) -> ConnectError:
    """The same error, with what it has to do with the broker at that address."""
    return ConnectError(
        error.address,
        f"{error.reason} (this is the VIP channel of broker {address}; with vip_channel=False its own port is used)",
    )
