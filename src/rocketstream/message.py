"""The values users touch: `Message` goes out, `ReceivedMessage` comes in, `MessageQueue` says where it lay.

The rule of this file: values and nothing else. It knows no byte of the protocol; what a received message reads
late (body, properties, header) it asks of its `MessageSource`, which `wire/` implements over the buffer of a pull
response. So a message that nobody looks into costs one small object and no parsing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import UnionType
from typing import Final, NamedTuple

from rocketstream.errors import ConfigurationError
from rocketstream.property_names import KEY_SEPARATOR, PropertyName

# The one bit of the system flag that this file has to know; wire/sysflag.py has them all.
_COMPRESSED: Final = 0x1


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker.

    A tuple, because queues are keys of every table of the client: hashing and Java's order (topic, broker name,
    queue id) then run in C.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """For logs and errors: `orders@broker-a:3`."""
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


class Message:
    """A message to send. `delay` is in seconds, `deliver_at` in milliseconds since the epoch or a `datetime`."""

    __slots__ = (
        "body",
        "delay",
        "delay_level",
        "deliver_at",
        "flag",
        "keys",
        "properties",
        "sharding_key",
        "tags",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        delay: float | None = None,
        deliver_at: int | datetime | None = None,
        flag: int = 0,
        sharding_key: str | None = None,
    ) -> None:
        # One quick test each, and the check with its words only where that fails: a sender of batches spends a good
        # part of its time here. `type(...) is` lets no bool pass for an int.
        if type(topic) is not str:
            _check_type("topic", topic, str)
        if tags is not None and type(tags) is not str:
            _check_type("tags", tags, str | None)
        if type(delay_level) is not int:
            _check_type("delay_level", delay_level, int)
        if delay is not None:
            _check_type("delay", delay, int | float | None)
        if deliver_at is not None:
            _check_type("deliver_at", deliver_at, int | datetime | None)
        if type(flag) is not int:
            _check_type("flag", flag, int)
        if sharding_key is not None and type(sharding_key) is not str:
            _check_type("sharding_key", sharding_key, str | None)
        self.topic = topic
        self.body = body if type(body) is bytes else _body_bytes(body)
        self.tags = tags
        self.keys = None if keys is None else _joined_keys(keys)
        self.properties = {} if properties is None else _property_dict(properties)
        self.delay_level = delay_level
        self.delay = delay
        self.deliver_at = round(deliver_at.timestamp() * 1000) if isinstance(deliver_at, datetime) else deliver_at
        self.flag = flag
        self.sharding_key = sharding_key
        if (delay_level != 0) + (delay is not None) + (deliver_at is not None) > 1:
            raise ConfigurationError(
                "delay_level, delay and deliver_at are three ways to say when a message is delivered: give one, got"
                f" delay_level={delay_level!r}, delay={delay!r}, deliver_at={deliver_at!r}"
            )

    def __eq__(self, other: object) -> bool:
        if type(other) is not Message:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Message.__slots__)

    # Equal by value and changeable, so no hash, like a list.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [f"topic={self.topic!r}", f"body_size={len(self.body)}"]
        shown += [f"{name}={value!r}" for name in ("tags", "keys") if (value := getattr(self, name)) is not None]
        return f"Message({', '.join(shown)})"


class MessageHeader(NamedTuple):
    """The fixed fields of a stored message that few callers ask for; unpacked together, at the first question."""

    body_crc: int = 0
    queue_id: int = 0
    flag: int = 0
    commit_log_offset: int = 0
    born_timestamp: int = 0
    born_host: str = ""
    store_timestamp: int = 0
    store_host: str = ""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    offset_message_id: str = ""


class MessageSource:
    """What the messages of one response have in common, and where each reads what it has not read yet.

    This base has nothing to read: it serves messages made from plain values, whose fields are all filled.
    """

    __slots__ = ("broker_name", "max_offset", "min_offset", "queue")

    #: True when body, header and properties can be read again, so that a pickle need not carry them twice.
    rereads = False

    def __init__(
        self,
        *,
        broker_name: str = "",
        queue: MessageQueue | None = None,
        min_offset: int | None = None,
        max_offset: int | None = None,
    ) -> None:
        self.broker_name = broker_name if queue is None else queue.broker_name
        self.queue = queue
        self.min_offset = min_offset
        self.max_offset = max_offset

    def read_body(self, message: ReceivedMessage) -> bytes:
        raise self._nothing_to_read()

    def read_header(self, message: ReceivedMessage) -> MessageHeader:
        raise self._nothing_to_read()

    def read_properties(self, message: ReceivedMessage) -> dict[str, str]:
        raise self._nothing_to_read()

    def read_property(self, message: ReceivedMessage, name: str) -> str | None:
        raise self._nothing_to_read()

    def _nothing_to_read(self) -> Exception:
        return AssertionError("a message made from plain values has all its fields")

    def detached(self, message: ReceivedMessage) -> MessageSource:
        """The same for this one message, holding on to no other's bytes."""
        return self


class ReceivedMessage:
    """A message that came from a broker.

    It is a view: `topic`, `queue_offset`, `body_size` and `store_size` are at hand, everything else is decoded when
    asked. So an unreadable body (`CorruptMessageError`, `MissingCodecError`) is that message's problem at `.body`
    and nobody else's. Made from plain values, as here, it needs no broker: for tests, traces, the embedded broker.
    """

    __slots__ = (
        "_body",
        "_header",
        "_position",
        "_properties",
        "_properties_at",
        "_source",
        "_stored_sys_flag",
        "body_size",
        "consume_started",
        "queue_offset",
        "store_size",
        "topic",
    )

    topic: str
    queue_offset: int
    consume_started: float | None
    """When a consumer's listener was given it, in seconds of the monotonic clock; None before that."""
    body_size: int
    store_size: int
    _source: MessageSource
    _position: int
    _properties_at: int
    _stored_sys_flag: int
    _body: bytes | None
    _header: MessageHeader | None
    _properties: dict[str, str] | None

    # wire/record_decoder.py fills the slots of a new object itself: this constructor would halve its rate.
    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        broker_name: str = "",
        queue_id: int | None = None,
        queue_offset: int = 0,
        message_id: str | None = None,
        sys_flag: int = 0,
        store_size: int = 0,
        header: MessageHeader | None = None,
    ) -> None:
        self.topic = topic
        self.queue_offset = queue_offset
        self.store_size = store_size
        self.consume_started = None
        self._source = MessageSource(broker_name=broker_name)
        self._position = self._properties_at = 0
        self._stored_sys_flag = sys_flag
        self._body = _body_bytes(body)
        self.body_size = len(self._body)
        self._header = header or MessageHeader()
        if queue_id is not None:
            self._header = self._header._replace(queue_id=queue_id)
        given = {
            PropertyName.TAGS: tags,
            PropertyName.KEYS: _joined_keys(keys),
            PropertyName.UNIQUE_KEY: message_id,
        }
        self._properties = _property_dict(properties)
        self._properties.update({name: value for name, value in given.items() if value is not None})

    @property
    def body(self) -> bytes:
        """The body as it was sent: checked against its checksum and inflated, once."""
        body = self._body
        if body is None:
            body = self._body = self._source.read_body(self)
        return body

    @property
    def properties(self) -> dict[str, str]:
        """All properties, decoded at the first question; what is changed in this dict stays changed."""
        properties = self._properties
        if properties is None:
            properties = self._properties = self._source.read_properties(self)
        return properties

    def _property(self, name: str) -> str | None:
        # A look for one name in the undecoded bytes is several times cheaper than decoding all properties, and a
        # tag filter looks at every message.
        if self._properties is None:
            return self._source.read_property(self, name)
        return self._properties.get(name)

    def _head(self) -> MessageHeader:
        header = self._header
        if header is None:
            header = self._header = self._source.read_header(self)
        return header

    @property
    def tags(self) -> str | None:
        return self._property(PropertyName.TAGS)

    @property
    def keys(self) -> str | None:
        """The keys, joined by a space as RocketMQ stores them."""
        return self._property(PropertyName.KEYS)

    @property
    def message_id(self) -> str:
        """The id that the producer gave it, which stays the same when it is retried; else its offset id."""
        return self._property(PropertyName.UNIQUE_KEY) or self._head().offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Store host and commit-log offset: the id by which a broker finds it."""
        return self._head().offset_message_id

    @property
    def sys_flag(self) -> int:
        """The system flag, without the bit for compression: `body` is not compressed any more (as in Java)."""
        return self._stored_sys_flag & ~_COMPRESSED

    @property
    def broker_name(self) -> str:
        return self._source.broker_name

    @broker_name.setter
    def broker_name(self, name: str) -> None:
        # The source is shared by the messages of a response; this is about one of them.
        source = copy.copy(self._source)
        source.broker_name = name
        source.queue = None if source.queue is None else source.queue._replace(broker_name=name)
        self._source = source

    @property
    def queue(self) -> MessageQueue:
        """The queue it was pulled from; for a retried message that is the retry topic's, whatever `topic` shows."""
        return self._source.queue or MessageQueue(self.topic, self._source.broker_name, self._head().queue_id)

    @property
    def queue_id(self) -> int:
        # The queue asked wins over the stored id: with static topics the two differ (as Java's PullAPIWrapper).
        queue = self._source.queue
        return self._head().queue_id if queue is None else queue.queue_id

    @property
    def flag(self) -> int:
        """The flag that the sender set; RocketMQ gives it no meaning."""
        return self._head().flag

    @property
    def body_crc(self) -> int:
        """The checksum of the stored body, compressed if it was; 0 when the broker computed none."""
        return self._head().body_crc

    @property
    def commit_log_offset(self) -> int:
        return self._head().commit_log_offset

    @property
    def born_timestamp(self) -> int:
        return self._head().born_timestamp

    @property
    def born_host(self) -> str:
        """The producer's address, `host:port`."""
        return self._head().born_host

    @property
    def store_timestamp(self) -> int:
        return self._head().store_timestamp

    @property
    def store_host(self) -> str:
        """The broker's address, `host:port`."""
        return self._head().store_host

    @property
    def reconsume_times(self) -> int:
        return self._head().reconsume_times

    @reconsume_times.setter
    def reconsume_times(self, times: int) -> None:
        self._header = self._head()._replace(reconsume_times=times)

    @property
    def prepared_transaction_offset(self) -> int:
        return self._head().prepared_transaction_offset

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, queue_id={self.queue_id}, queue_offset={self.queue_offset},"
            f" message_id={self.message_id!r}, tags={self.tags!r}, body_size={self.body_size})"
        )

    def __reduce__(self) -> tuple[object, tuple[dict[str, object]]]:
        # A copy carries its own record only: one message must not drag the whole response to a Spark executor.
        slots = {name: getattr(self, name) for name in ReceivedMessage.__slots__}
        slots["consume_started"] = None  # this process's clock means nothing elsewhere
        slots["_source"] = self._source.detached(self)
        slots["_properties_at"] = self._properties_at - self._position
        slots["_position"] = 0
        slots["_body"] = None if self._source.rereads else self._body
        slots["_properties"] = None if self._properties is None else dict(self._properties)
        return _restored, (slots,)


def _restored(slots: dict[str, object]) -> ReceivedMessage:
    message = ReceivedMessage.__new__(ReceivedMessage)
    for name, value in slots.items():
        setattr(message, name, value)
    return message


def _check_type(name: str, value: object, kinds: type | UnionType) -> None:
    # bool is an int to Python, but delay_level=True is a slip.
    if not isinstance(value, kinds) or isinstance(value, bool):
        expected = kinds.__name__ if isinstance(kinds, type) else str(kinds)
        raise TypeError(f"{name} must be {expected}, got {type(value).__name__}: {value!r}")


def _body_bytes(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    hint = ": encode it first, e.g. body.encode()" if isinstance(body, str) else ""
    raise TypeError(f"body must be bytes, bytearray or memoryview, got {type(body).__name__}{hint}")


def _joined_keys(keys: str | Iterable[str] | None) -> str | None:
    if keys is None or isinstance(keys, str):
        return keys
    given: object = keys
    if not isinstance(given, Iterable) or isinstance(given, bytes | bytearray):
        raise TypeError(f"keys must be a str or an iterable of str, got {type(keys).__name__}: {keys!r}")
    several = list(keys)
    for key in several:
        _check_type("each of keys", key, str)
    return KEY_SEPARATOR.join(several)


def _property_dict(properties: Mapping[str, str] | None) -> dict[str, str]:
    if properties is None:
        return {}
    _check_type("properties", properties, Mapping)
    for name, value in properties.items():
        _check_type("a property's name", name, str)
        _check_type(f"property {name!r}", value, str)
    return dict(properties)
