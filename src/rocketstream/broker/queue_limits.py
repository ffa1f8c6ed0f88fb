"""What is asked about queues themselves: their first and last offsets, and the offset of a moment."""

from __future__ import annotations

from collections.abc import Mapping

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.store.values import MessageStore
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.offsets import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    SearchOffsetRequestHeader,
)


class QueueLimits:
    """Answers by the store alone."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def handlers(self) -> Mapping[int, Handler]:
        """The requests about queues."""
        return {
            RequestCode.GET_MIN_OFFSET: self._min,
            RequestCode.GET_MAX_OFFSET: self._max,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
        }

    def _min(self, connection: ClientConnection, command: Command) -> Command:
        wanted = GetMinOffsetRequestHeader.from_fields(command.fields)
        return _offset(command, self._store.min_offset(wanted.topic, wanted.queue_id))

    def _max(self, connection: ClientConnection, command: Command) -> Command:
        wanted = GetMaxOffsetRequestHeader.from_fields(command.fields)
        return _offset(command, self._store.max_offset(wanted.topic, wanted.queue_id))

    def _search(self, connection: ClientConnection, command: Command) -> Command:
        wanted = SearchOffsetRequestHeader.from_fields(command.fields)
        upper = (wanted.boundary_type or "").upper() == "UPPER"
        return _offset(
            command, self._store.offset_by_time(wanted.topic, wanted.queue_id, wanted.timestamp, upper=upper)
        )

    def _earliest(self, connection: ClientConnection, command: Command) -> Command:
        wanted = GetEarliestMsgStoretimeRequestHeader.from_fields(command.fields)
        first = self._store.min_offset(wanted.topic, wanted.queue_id)
        timestamp = self._store.timestamp_at(wanted.topic, wanted.queue_id, first)
        return response(
            command, ResponseCode.SUCCESS, header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp)
        )


def _offset(command: Command, offset: int) -> Command:
    return response(command, ResponseCode.SUCCESS, header=OffsetResponseHeader(offset=offset))
