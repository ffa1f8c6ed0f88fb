"""A message made ready for the wire: once, on the caller's thread, outside the retries.

Checking, the unique id, the properties' text and compression are work of the caller; the I/O thread only chooses a
queue, fills in its number and writes.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rocketstream.clock import Clock
from rocketstream.cluster.client_id import local_ip
from rocketstream.cluster.names import AUTO_CREATE_TOPIC, with_namespace
from rocketstream.message import Message
from rocketstream.producer.introduction import BrokerCheck
from rocketstream.producer.settings import ProducerSettings
from rocketstream.producer.spans import SendSpan, SendSpans, with_headers
from rocketstream.producer.timer import check_timer_broker, is_timer
from rocketstream.property_names import PropertyName
from rocketstream.wire.batch import MIN_ITEM_SIZE, BatchItem, encode_batch, encode_similar
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.compression import compress
from rocketstream.wire.headers.send import SendMessageRequestHeaderV2
from rocketstream.wire.message_id import UniqueIds
from rocketstream.wire.properties import (
    BARE_END,
    BARE_START,
    encode_properties,
    message_properties,
    message_text,
)
from rocketstream.wire.sysflag import TransactionType, with_codec, with_transaction_type

_SEND = int(RequestCode.SEND_MESSAGE_V2)
_SEND_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)


_MAX_TEMPLATES = 10_000
# Far fewer than there are ids in a millisecond.
_MAX_TOGETHER = 10_000


class ProcessIds:
    """The unique ids of this process; a forked child makes its own, so that no two processes share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: UniqueIds | None = None  # made when first needed: it asks for this machine's address
        os.register_at_fork(after_in_child=self._forget)

    def next(self, now_ms: int) -> str:
        """The next id; may be called from any thread."""
        ids = self._ids
        if ids is None:
            ids = self._first(now_ms)
        return ids.next(now_ms)

    def several(self, now_ms: int, count: int) -> tuple[bytes, list[bytes]]:
        """The next ids in two parts: how all of them begin, and how each ends; may be called from any thread."""
        return (self._ids or self._first(now_ms)).several(now_ms, count)

    def _first(self, now_ms: int) -> UniqueIds:
        with self._lock:
            ids = self._ids = self._ids or self._make(now_ms)
        return ids

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._ids = None

    @staticmethod
    def _make(now_ms: int) -> UniqueIds:
        # An id tells the time since the month began where it was made.
        offset = datetime.fromtimestamp(now_ms / 1000).astimezone().utcoffset()
        return UniqueIds(
            local_ip(),
            os.getpid(),
            random.getrandbits(32),
            utc_offset=round(offset.total_seconds() * 1000) if offset else 0,
        )


process_ids = ProcessIds()


@dataclass(slots=True)
class Outgoing:
    """What is sent, but for the queue."""

    message: Message
    topic: str
    """With the namespace, as brokers know it."""
    code: int
    fields: dict[str, str]
    """The header of the request; the queue's number ("e") and the broker's name ("n") are filled in per attempt."""
    body: bytes
    message_id: str
    count: int = 1
    check: BrokerCheck | None = None
    """What has to hold of a broker before this goes there; None for ordinary messages, which any broker takes."""
    spans: tuple[SendSpan, ...] = ()
    """With OpenTelemetry: those of the sends whose messages it has."""

    @property
    def size(self) -> int:
        """What it holds in memory, for bounds."""
        return len(self.body)

    @property
    def batch_size(self) -> int:
        """About what it takes as a part of a batch."""
        return len(self.body) + len(self.fields["i"]) + MIN_ITEM_SIZE


class Preparation:
    """Makes messages ready as a producer's settings say."""

    __slots__ = ("_batch_properties", "_clock", "_settings", "_templates", "spans")

    def __init__(self, settings: ProducerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.spans: SendSpans | None = None
        """Who makes spans of what is made ready, from the start of the producer on."""
        # What the header of a topic's messages has in common: to fill in four fields is cheaper than to make fourteen.
        self._templates: dict[tuple[str, bool], dict[str, str]] = {}
        # No unique id: a 4.9 broker gives what stands here to every message of the batch, over its own.
        own = {PropertyName.WAIT_STORE_OK: "true"}
        if settings.namespace:
            own[PropertyName.INSTANCE_ID] = settings.namespace
        self._batch_properties = encode_properties(own)

    def single(
        self,
        message: Message,
        extra: Mapping[str, str] | None = None,
        *,
        transaction: TransactionType = TransactionType.NOT,
    ) -> Outgoing:
        """One message; `extra` are properties of our own (transactions, replies)."""
        settings = self._settings
        now = self._clock.wall_ms()
        message_id = process_ids.next(now)
        topic = message.topic
        span = None if self.spans is None else self.spans.begin(message, message_id, transaction)
        if span is not None:
            extra = {**(extra or {}), **span.headers}
        if extra or settings.namespace:
            topic = with_namespace(settings.namespace, topic)
            properties = message_properties(message, unique_id=message_id)
            if extra:
                properties.update(extra)
            if settings.namespace:
                properties[PropertyName.INSTANCE_ID] = settings.namespace
            text = encode_properties(properties)
        else:
            text = message_text(message, message_id)
        body, sys_flag = message.body, 0
        if len(body) >= settings.compress_over:
            body, sys_flag = self._compressed(body)
        if transaction is not TransactionType.NOT:
            sys_flag = with_transaction_type(sys_flag, transaction)
        fields = self._fields(topic, sys_flag, now, message.flag, text, batch=False)
        check = check_timer_broker if is_timer(message) else None
        out = Outgoing(message, topic, _SEND, fields, body, message_id, check=check)
        if span is not None:
            out.spans = (span,)
        return out

    def batches(self, messages: Sequence[Message], bodies: Sequence[bytes] | None = None) -> list[Outgoing]:
        """Checked messages of one topic in as few requests as the size limit allows, in order.

        `bodies` are given where the messages are nothing but bodies: then they are encoded together.
        """
        span = None if self.spans is None else self.spans.begin_batch(messages)
        if span is not None:
            messages, bodies = [with_headers(message, span.headers) for message in messages], None
        made = self._batches(messages, bodies)
        if span is not None:
            span.of_requests(len(made))
            for out in made:
                out.spans = (span,)
        return made

    def _batches(self, messages: Sequence[Message], bodies: Sequence[bytes] | None) -> list[Outgoing]:
        if bodies is not None and len(bodies) <= _MAX_TOGETHER:
            together = self._bare_batch(messages[0], bodies)
            if together is not None:
                return [together]
        limit = self._settings.max_message_size
        result: list[Outgoing] = []
        items: list[BatchItem] = []
        ids: list[str] = []
        size = 0
        first = messages[0]
        for message in messages:
            now = self._clock.wall_ms()  # each time: more than 65,536 ids of one millisecond would not be unique
            message_id = process_ids.next(now)
            properties = message_text(message, message_id)
            item = BatchItem(message.body, properties, message.flag)
            needed = len(message.body) + _byte_length(properties) + MIN_ITEM_SIZE
            if items and size + needed > limit:
                result.append(self._batch(first, encode_batch(items), ids))
                items, ids, size = [], [], 0
            items.append(item)
            ids.append(message_id)
            size += needed
        result.append(self._batch(first, encode_batch(items), ids))
        return result

    def _bare_batch(self, first: Message, bodies: Sequence[bytes]) -> Outgoing | None:
        """Messages that are nothing but bodies in one request; None if they do not fit."""
        count = len(bodies)
        start, ends = process_ids.several(self._clock.wall_ms(), count)
        needed = MIN_ITEM_SIZE + len(BARE_START) + len(start) + len(ends[0]) + len(BARE_END)
        if sum(map(len, bodies)) + count * needed > self._settings.max_message_size:
            return None
        body = encode_similar(bodies, BARE_START + start, ends, BARE_END)
        ids = start + (b"," + start).join(ends)
        return self._batch(first, body, (ids.decode(),), count)

    def _batch(self, first: Message, body: bytes, ids: Sequence[str], count: int | None = None) -> Outgoing:
        topic = with_namespace(self._settings.namespace, first.topic)
        fields = self._fields(topic, 0, self._clock.wall_ms(), 0, self._batch_properties, batch=True)
        return Outgoing(first, topic, _SEND_BATCH, fields, body, ",".join(ids), len(ids) if count is None else count)

    def encoded_batch(self, topic: str, body: bytes, first_id: str, count: int) -> Outgoing:
        """Messages of one topic that somebody else has checked and encoded, in one request."""
        return self._batch(Message(topic, body), body, (first_id,), count)

    def joined(self, outs: Sequence[Outgoing]) -> Outgoing:
        """Messages of one topic that were made ready one by one, in one request."""
        items = [BatchItem(out.body, out.fields["i"], out.message.flag) for out in outs]
        joined = self._batch(outs[0].message, encode_batch(items), [out.message_id for out in outs])
        joined.spans = tuple(span for out in outs for span in out.spans)
        return joined

    def _compressed(self, body: bytes) -> tuple[bytes, int]:
        codec = self._settings.codec
        return compress(body, codec, level=self._settings.compression_level), with_codec(0, codec)

    def _fields(
        self, topic: str, sys_flag: int, now: int, flag: int, properties: str, *, batch: bool
    ) -> dict[str, str]:
        template = self._templates.get((topic, batch))
        if template is None:
            if len(self._templates) > _MAX_TEMPLATES:
                self._templates.clear()
            template = self._templates[topic, batch] = self._template(topic, batch)
        fields = template.copy()
        fields["f"] = str(sys_flag)
        fields["g"] = str(now)
        fields["h"] = str(flag)
        fields["i"] = properties
        return fields

    def _template(self, topic: str, batch: bool) -> dict[str, str]:
        return SendMessageRequestHeaderV2(
            producer_group=with_namespace(self._settings.namespace, self._settings.group),
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=self._settings.default_topic_queue_nums,
            queue_id=0,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            properties="",
            reconsume_times=0,
            unit_mode=self._settings.unit_mode,
            batch=batch,
        ).to_fields()


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
