"""Recall: a timer message is taken back before it is due (5.x's RecallMessageProcessor).

The handle that a send was answered with names topic, broker, time and unique id. A recall stores a message for the same
second that says which one is not to be delivered.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Mapping

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.intake import Intake
from rocketstream.broker.records import encoded
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import NewMessage
from rocketstream.broker.topics import Topics
from rocketstream.clock import Clock
from rocketstream.property_names import PropertyName
from rocketstream.wire.codes import Permission, RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.send import RecallMessageRequestHeader

_TAG = "_RECALL_TAG_"


class Recall:
    """RECALL_MESSAGE."""

    def __init__(self, *, settings: BrokerSettings, clock: Clock, topics: Topics, intake: Intake) -> None:
        self._settings = settings
        self._clock = clock
        self._topics = topics
        self._intake = intake

    def start(self) -> None:
        """Nothing runs by itself."""

    def stop(self) -> None:
        """Nothing is kept here."""

    def handlers(self) -> Mapping[int, Handler]:
        """The one request."""
        return {RequestCode.RECALL_MESSAGE: self._recall}

    @property
    def _region(self) -> dict[str, str]:
        return {PropertyName.REGION: self._settings.region}

    def _recall(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        header = RecallMessageRequestHeader.from_fields(command.fields)
        try:
            due, message_id = self._checked(header)
        except Refusal as refusal:
            return response(command, refusal.code, refusal.remark, self._region)
        now = self._clock.wall_ms()
        properties = {
            PropertyName.TAGS: _TAG,
            PropertyName.TIMER_DELETE_UNIQUE_KEY: f"{header.topic}+{message_id}",
            PropertyName.UNIQUE_KEY: message_id,
            PropertyName.TIMER_DELIVER_MS: str(due),
            PropertyName.BORN_TIMESTAMP: str(now),
            PropertyName.PRODUCER_GROUP: header.producer_group or "",
        }
        message = NewMessage(
            topic=header.topic,
            queue_id=0,
            body=b"0",
            properties=encoded(properties),
            born_timestamp=now,
            born_host=connection.address,
        )
        try:
            stored = self._intake.put(message)
        except Refusal:
            return response(command, ResponseCode.SYSTEM_ERROR, "recall failed, execute error", self._region)
        return self._intake.answer(
            stored, response(command, ResponseCode.SUCCESS, None, {**self._region, "msgId": message_id})
        )

    def _checked(self, header: RecallMessageRequestHeader) -> tuple[int, str]:
        """When the message is due, and its unique id."""
        settings = self._settings
        if not settings.recall_enabled:
            raise Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if not settings.permission & Permission.WRITE:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
        if self._topics.get(header.topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        topic, broker_name, text, message_id = _read_handle(header.recall_handle)
        if header.topic != topic:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if broker_name != settings.broker_name:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        due = int(text) if text.isdecimal() else -1
        left = due - self._clock.wall_ms()
        if left <= 0 or left >= settings.max_timer_delay * 1000:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return due, message_id


def _read_handle(handle: str) -> tuple[str, str, str, str]:
    try:
        items = (
            base64.b64decode(handle + "=" * (-len(handle) % 4), b"-_", validate=True)
            .decode("utf-8", "replace")
            .split(" ")
        )
    except (binascii.Error, ValueError):
        items = []
    if len(items) < 5 or items[0] != "v1":
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
    return items[1], items[2], items[3], items[4]
