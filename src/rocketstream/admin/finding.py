"""Finding stored messages: by key and by either of their ids."""

from __future__ import annotations

from itertools import chain
from typing import Final

from rocketstream.admin.asking import AdminAsking, Node
from rocketstream.admin.errors import NotFoundError
from rocketstream.admin.moments import EARLIEST, LATEST, Moment, resolve_moment
from rocketstream.admin.reading import sorted_messages
from rocketstream.errors import BrokerError, ConfigurationError, ProtocolError
from rocketstream.message import ReceivedMessage
from rocketstream.property_names import KEY_SEPARATOR
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.admin import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketstream.wire.message_id import OffsetMessageId, decode_offset_id
from rocketstream.wire.record_decoder import decode_record, decode_records

_END_OF_TIME: Final = (1 << 63) - 1
_MAX_FOUND: Final = 1024


class FindingOperations(AdminAsking):
    """What an operator looks for."""

    async def messages_by_key(
        self, topic: str, key: str, *, limit: int = 64, start: Moment = EARLIEST, until: Moment = LATEST
    ) -> list[ReceivedMessage]:
        """The messages of a topic that have a key, oldest first; at most `limit` of each broker.

        A broker's index forgets with its messages; the newest are found first.
        """
        if not isinstance(key, str) or not key.strip():
            raise ConfigurationError(f"key={key!r}: a key is a text that is not empty")
        if not 1 <= limit <= _MAX_FOUND:
            raise ConfigurationError(f"limit={limit!r} must be from 1 to {_MAX_FOUND}")
        since, end = resolve_moment("start", start), resolve_moment("until", until)
        begin_ms = 0 if since == EARLIEST else _END_OF_TIME if since == LATEST else int(since)
        end_ms = _END_OF_TIME if end == LATEST else 0 if end == EARLIEST else int(end)
        found = await self._query(topic, key, limit, begin_ms, end_ms)
        # The index knows hash codes only.
        return [message for message in found if key in (message.keys or "").split(KEY_SEPARATOR)]

    async def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """The message with an id: the producer's unique id, which needs the topic, or the offset id of a broker."""
        if topic is not None:
            found = await self._query(topic, message_id, 32, 0, _END_OF_TIME)
            for message in found:
                if message.message_id == message_id:
                    return message
        place = await self._place(message_id)
        if place is not None:
            node, offset = place
            return await self._at(node, offset)
        if topic is None:
            raise NotFoundError(
                f"{message_id!r} is not the offset id of a broker here; to find a message by its unique id, give its"
                " topic too"
            )
        raise NotFoundError(f"no message of topic {topic!r} has the id {message_id!r}")

    async def _place(self, message_id: str) -> tuple[Node, int] | None:
        """Where an offset id points to, if that is a broker of this cluster: nobody else is connected to."""
        try:
            place: OffsetMessageId = decode_offset_id(message_id)
        except ProtocolError as error:
            raise ConfigurationError(str(error)) from None
        for node in await self.nodes():
            if node.address == place.store_host:
                return node, place.commit_log_offset
        return None

    async def _at(self, node: Node, offset: int) -> ReceivedMessage:
        answer = await self.ask(node, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
        return self._named(decode_record(answer.body, broker_name=node.name))

    async def copies(self, topic: str, unique_id: str, since: int, nodes: list[Node]) -> list[ReceivedMessage]:
        """The messages of a topic with a unique id that were stored since a time, at these brokers."""
        found = await self._query(topic, unique_id, 64, since, _END_OF_TIME, nodes)
        return [message for message in found if message.message_id == unique_id]

    async def _query(
        self, topic: str, key: str, limit: int, begin: int, end: int, nodes: list[Node] | None = None
    ) -> list[ReceivedMessage]:
        full = self.full_topic(topic)
        header = QueryMessageRequestHeader(
            topic=full,
            key=key,
            max_num=limit,
            begin_timestamp=begin,
            end_timestamp=end,
            # Not `_UNIQUE_KEY_QUERY`: all it does is to set the limit, and 4.9 leaves it out of the signature that it
            # checks.
        )

        async def at(node: Node) -> list[ReceivedMessage]:
            try:
                answer = await self.ask(node, RequestCode.QUERY_MESSAGE, header)
            except BrokerError as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    return []
                raise
            decoded = decode_records(answer.body, broker_name=node.name)
            return [message for message in decoded.messages if message.topic == full]

        found = await self.for_all(nodes or await self.readable_of(full), at)
        return [self._named(message) for message in sorted_messages(chain.from_iterable(found))]

    def _named(self, message: ReceivedMessage) -> ReceivedMessage:
        message.topic = self.short(message.topic)
        return message
