"""One stored message: its layout, how to write it, how a `ReceivedMessage` reads its fields out of it.

The rule of this file: it trusts the boundaries it is given. `record_decoder` has checked that a record's lengths
add up before any message looks into it.

     0 total size 4      28 commit-log offset 8    56 store timestamp 8                88 body
     4 magic 4           36 system flag 4          64 store host 8 (20)                   topic size 1 (2)
     8 body crc 4        40 born timestamp 8       72 reconsume times 4                   topic
    12 queue id 4        48 born host 8 (20)       76 prepared transaction offset 8       properties size 2
    16 flag 4                                      84 body size 4                         properties
    20 queue offset 8

Bits of the system flag say that a host has 20 bytes (IPv6) instead of 8, which moves all that follows; the magic
says whether the topic's size takes one byte (all brokers) or two (version 2, from 5.0, for topics over 127 bytes).
"""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

from rocketstream.errors import ConfigurationError, CorruptMessageError, MissingCodecError
from rocketstream.message import MessageHeader, MessageQueue, MessageSource, ReceivedMessage
from rocketstream.property_names import PropertyName
from rocketstream.wire.compression import DEFAULT_MAX_BODY_SIZE, decompress
from rocketstream.wire.host import IPV6_SIZE, decode_host, encode_host
from rocketstream.wire.message_id import offset_id_of
from rocketstream.wire.properties import decode_properties, find_property, properties_bytes
from rocketstream.wire.sysflag import BORN_HOST_V6, COMPRESSED, INNER_BATCH, STORE_HOST_V6, codec_of, is_inner_batch

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
#: Fills the end of a commit-log file; its size may be more than what follows.
MAGIC_BLANK: Final = 0xCBD43194

#: How many bytes the size of the topic takes.
TOPIC_SIZE_BYTES: Final = {MAGIC_V1: 1, MAGIC_V2: 2}

#: Where the body starts, by the two host bits of the system flag: (flag >> 4) & 3.
HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6
BODY_AT: Final = (88, 100, 100, 112)

#: The record of an empty body, topic and property string with two IPv4 hosts.
MIN_RECORD_SIZE: Final = BODY_AT[0] + 1 + 2

_HOST_FORMATS: Final = ("8s q 8s", "20s q 8s", "8s q 20s", "20s q 20s")
_FULL_HEADS: Final = tuple(struct.Struct(f">IIIiiqqiq{hosts}iqI".replace(" ", "")) for hosts in _HOST_FORMATS)
_CRC_AT: Final = 8
_U32: Final = struct.Struct(">I")
_U16: Final = struct.Struct(">H")


def body_crc_of(body: bytes) -> int:
    """Java's checksum: the top bit is masked, because Java has no unsigned int."""
    return crc32(body) & 0x7FFFFFFF


def encode_record(
    *,
    topic: str,
    body: bytes,
    properties: str = "",
    queue_id: int = 0,
    queue_offset: int = 0,
    commit_log_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: str = "127.0.0.1:0",
    store_timestamp: int = 0,
    store_host: str = "127.0.0.1:0",
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    body_crc: int | None = None,
    magic: int | None = None,
) -> bytes:
    """The bytes of a stored message. `body` is written as it is: compressed, if the flag says so.

    The flag's bits for IPv6 follow from the hosts, the version from the topic's length, the checksum from the body,
    unless given.
    """
    raw_topic = topic.encode()
    if magic is None:
        magic = MAGIC_V1 if len(raw_topic) <= 127 else MAGIC_V2
    # Java reads the size as a signed number.
    longest = 127 if TOPIC_SIZE_BYTES[magic] == 1 else 32767
    if len(raw_topic) > longest:
        raise ConfigurationError(f"topic {topic!r} takes {len(raw_topic)} bytes, this record has room for {longest}")
    raw_properties = properties_bytes(properties)
    raw_born_host, raw_store_host = encode_host(born_host), encode_host(store_host)
    sys_flag = sys_flag & ~HOST_BITS
    sys_flag |= BORN_HOST_V6 if len(raw_born_host) == IPV6_SIZE else 0
    sys_flag |= STORE_HOST_V6 if len(raw_store_host) == IPV6_SIZE else 0
    raw_topic = len(raw_topic).to_bytes(TOPIC_SIZE_BYTES[magic], "big") + raw_topic
    bits = (sys_flag & HOST_BITS) >> 4
    head = _FULL_HEADS[bits].pack(
        BODY_AT[bits] + len(body) + len(raw_topic) + _U16.size + len(raw_properties),
        magic,
        body_crc_of(body) if body_crc is None else body_crc,
        queue_id,
        flag,
        queue_offset,
        commit_log_offset,
        sys_flag,
        born_timestamp,
        raw_born_host,
        store_timestamp,
        raw_store_host,
        reconsume_times,
        prepared_transaction_offset,
        len(body),
    )
    return b"".join((head, body, raw_topic, _U16.pack(len(raw_properties)), raw_properties))


class RecordSource(MessageSource):
    """A buffer of records, read by the messages that were found in it."""

    __slots__ = ("buffer", "max_body_size", "unwrap")

    rereads = True

    def __init__(
        self,
        buffer: bytes,
        *,
        broker_name: str = "",
        queue: MessageQueue | None = None,
        min_offset: int | None = None,
        max_offset: int | None = None,
        max_body_size: int = DEFAULT_MAX_BODY_SIZE,
        unwrap: bool = True,
    ) -> None:
        super().__init__(broker_name=broker_name, queue=queue, min_offset=min_offset, max_offset=max_offset)
        self.buffer = buffer
        self.max_body_size = max_body_size
        self.unwrap = unwrap

    def read_body(self, message: ReceivedMessage) -> bytes:
        """The body of a message for its user; an error names the message."""
        try:
            body = self.stored_body(message)
        except CorruptMessageError as error:
            raise CorruptMessageError(f"{self._name(message)}: {error.reason}", position=message._position) from error
        except MissingCodecError as error:
            raise MissingCodecError(f"{self._name(message)}: {error}") from error
        if message._stored_sys_flag & INNER_BATCH and self.unwrap and is_inner_batch(message._stored_sys_flag):
            # A readable inner batch is unpacked when the response is decoded: nobody sees it as one message.
            raise CorruptMessageError(
                f"{self._name(message)}: its body is an inner batch that cannot be unpacked",
                position=message._position,
            )
        return body

    def stored_body(self, message: ReceivedMessage) -> bytes:
        """The body: cut out, checked, inflated."""
        size, sys_flag, position = message.body_size, message._stored_sys_flag, message._position
        if not size:
            return b""
        buffer = self.buffer
        start = position + BODY_AT[(sys_flag & HOST_BITS) >> 4]
        body = buffer[start : start + size]
        (stored_crc,) = _U32.unpack_from(buffer, position + _CRC_AT)
        # 0 is what a broker that computes no checksum leaves there.
        if stored_crc and (crc32(body) ^ stored_crc) & 0x7FFFFFFF:
            raise CorruptMessageError(
                f"its body has the checksum {body_crc_of(body):#010x}, stored is {stored_crc:#010x}"
            )
        if sys_flag & COMPRESSED:
            return decompress(body, codec_of(sys_flag), max_size=self.max_body_size)
        return body

    def read_header(self, message: ReceivedMessage) -> MessageHeader:
        layout = _FULL_HEADS[(message._stored_sys_flag & HOST_BITS) >> 4]
        (
            _,
            _,
            body_crc,
            queue_id,
            flag,
            _,
            commit_log_offset,
            _,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            _,
        ) = layout.unpack_from(self.buffer, message._position)
        return MessageHeader(
            body_crc,
            queue_id,
            flag,
            commit_log_offset,
            born_timestamp,
            decode_host(born_host),
            store_timestamp,
            decode_host(store_host),
            reconsume_times,
            prepared_transaction_offset,
            offset_id_of(store_host, commit_log_offset),
        )

    def read_properties(self, message: ReceivedMessage) -> dict[str, str]:
        end = message._position + message.store_size
        properties = decode_properties(self.buffer[message._properties_at : end].decode("utf-8", "replace"))
        self.add_offsets(properties)
        return properties

    def add_offsets(self, properties: dict[str, str]) -> None:
        """RES-05: the queue's offsets at the time of the response are properties of every message."""
        if self.min_offset is not None:
            properties[PropertyName.MIN_OFFSET] = str(self.min_offset)
        if self.max_offset is not None:
            properties[PropertyName.MAX_OFFSET] = str(self.max_offset)

    def read_property(self, message: ReceivedMessage, name: str) -> str | None:
        end = message._position + message.store_size
        return find_property(self.buffer, message._properties_at, end, name)

    def detached(self, message: ReceivedMessage) -> RecordSource:
        record = self.buffer[message._position : message._position + message.store_size]
        return RecordSource(
            record,
            broker_name=self.broker_name,
            queue=self.queue,
            min_offset=self.min_offset,
            max_offset=self.max_offset,
            max_body_size=self.max_body_size,
            unwrap=self.unwrap,
        )

    @staticmethod
    def _name(message: ReceivedMessage) -> str:
        return f"message {message.message_id} of {message.topic} at queue offset {message.queue_offset}"
