"""Finding messages: by where they are, by key, by unique key; and what a queue's index holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.members import Members
from rocketstream.broker.records import read_record
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.store.values import MessageStore, Stored
from rocketstream.property_names import PropertyName
from rocketstream.wire.bodies.stats import ConsumeQueueData, QueryConsumeQueueResponseBody
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.admin import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rocketstream.wire.java import java_string_hash
from rocketstream.wire.properties import decode_properties

#: RocketMQ's defaultQueryMaxNum and maxMsgsNumBatch.
_UNIQUE_KEY_LIMIT: Final = 32
_KEY_LIMIT: Final = 64


class Queries:
    """Answers who looks for messages."""

    def __init__(self, *, store: MessageStore, members: Members) -> None:
        self._store = store
        self._members = members
        self._last: Stored | None = None

    def start(self) -> None:
        """Begin to note how far the index is."""
        self._store.appended.append(self._note)

    def stop(self) -> None:
        """End that."""
        self._store.appended.remove(self._note)

    def _note(self, stored: Stored) -> None:
        self._last = stored

    def handlers(self) -> Mapping[int, Handler]:
        """The requests about messages."""
        return {
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.QUERY_MESSAGE: self._by_key,
            RequestCode.QUERY_CONSUME_QUEUE: self._index,
        }

    def _view(self, connection: ClientConnection, command: Command) -> Command:
        position = ViewMessageRequestHeader.from_fields(command.fields).offset
        record = self._store.record(position)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {position}")
        return response(command, ResponseCode.SUCCESS, body=record)

    def _by_key(self, connection: ClientConnection, command: Command) -> Command:
        wanted = QueryMessageRequestHeader.from_fields(command.fields)
        limit = _UNIQUE_KEY_LIMIT if wanted.unique_key_query else min(wanted.max_num, _KEY_LIMIT)
        found = self._store.find(wanted.topic, wanted.key, limit, wanted.begin_timestamp, wanted.end_timestamp)
        last = self._last
        how_far = QueryMessageResponseHeader(
            index_last_update_timestamp=0 if last is None else last.timestamp,
            index_last_update_phyoffset=0 if last is None else last.position,
        )
        if not found:
            return response(
                command,
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                header=how_far,
            )
        return response(command, ResponseCode.SUCCESS, header=how_far, body=b"".join(found))

    def _index(self, connection: ClientConnection, command: Command) -> Command:
        wanted = QueryConsumeQueueRequestHeader.from_fields(command.fields)
        topic, queue_id = wanted.topic, wanted.queue_id
        first, end = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not first <= wanted.index < end:
            remark = f"Index {wanted.index} of {queue_id}@{topic} is not exist!"
            return response(command, ResponseCode.SUCCESS, remark)
        subscription = None
        filter_data = None
        if wanted.consumer_group is not None:
            subscription = self._members.subscription(wanted.consumer_group, topic)
            filter_data = f"{wanted.consumer_group}@{topic} is not online!" if subscription is None else "null"
        last = min(end, wanted.index + wanted.count)
        entries = (self._entry(topic, queue_id, offset) for offset in range(wanted.index, last))
        body = QueryConsumeQueueResponseBody(
            subscription_data=subscription,
            filter_data=filter_data,
            queue_data=tuple(entry for entry in entries if entry is not None),
            max_queue_index=end,
            min_queue_index=first,
        )
        return response(command, ResponseCode.SUCCESS, body=body.encode())

    def _entry(self, topic: str, queue_id: int, offset: int) -> ConsumeQueueData | None:
        raw = self._store.record_at(topic, queue_id, offset)
        if raw is None:
            return None
        record = read_record(raw)
        tag = decode_properties(record.properties).get(PropertyName.TAGS)
        return ConsumeQueueData(
            physic_offset=record.position,
            physic_size=len(raw),
            tags_code=0 if tag is None else java_string_hash(tag),
        )
