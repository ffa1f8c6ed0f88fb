"""Broker-side assignment of queues, and whether they are pulled or popped (5.x, REB-11)."""

from __future__ import annotations

from collections.abc import Mapping

from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.base import Body, body, mapping
from rocketstream.wire.codes import MessageModel, MessageRequestMode
from rocketstream.wire.java import Int32


@body
class QueryAssignmentRequestBody(Body):
    """QUERY_ASSIGNMENT."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str
    message_model: MessageModel = MessageModel.CLUSTERING


@body
class MessageQueueAssignment(Body):
    """One queue given to the client; queue id -1 is all queues of that broker, shared by pop."""

    message_queue: MessageQueue
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: Mapping[str, str] | None = None


@body
class QueryAssignmentResponseBody(Body):
    """The queues given to the client; none at all (not: no queues) where the broker cannot say."""

    message_queue_assignments: tuple[MessageQueueAssignment, ...] | None = None


@body
class SetMessageRequestModeRequestBody(Body):
    """SET_MESSAGE_REQUEST_MODE: how a group gets a topic's messages."""

    topic: str
    consumer_group: str
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int32 = 0


@body
class MessageRequestModeSerializeWrapper(Body):
    """GET_ALL_MESSAGE_REQUEST_MODE's answer: topic -> group -> mode."""

    message_request_mode_map: Mapping[str, Mapping[str, SetMessageRequestModeRequestBody]] = mapping()
