"""What is refused before anything is sent, with the argument, its value and what is allowed. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rocketstream.cluster.names import check_sendable, check_topic, check_wrapped_topic
from rocketstream.errors import ConfigurationError
from rocketstream.message import Message
from rocketstream.producer.settings import ProducerSettings
from rocketstream.property_names import RESERVED_PROPERTIES

_SEPARATORS = ("\x01", "\x02")
_NO_PROPERTIES: dict[str, str] = {}
_ONLY_BYTES = {bytes}
_ZERO = 0  # `is` tells it from False, which equals it
MAX_PROPERTIES_SIZE = 32_767
MAX_DELAY = 10**9
# What this client adds to every message: UNIQ_KEY (56 digits with IPv6), WAIT, and a time of delivery.
_OWN_PROPERTIES = (8 + 56 + 2) + (4 + 4 + 2) + (16 + 19 + 2)


def check_message(message: Message, settings: ProducerSettings) -> None:
    """Refuse a message that no broker would take or that would arrive as something else."""
    if not isinstance(message, Message):
        raise ConfigurationError(f"expected a Message to send, got {type(message).__name__}")
    if type(message.topic) is str:
        _check_name(message.topic, settings.namespace)
    else:
        check_topic(message.topic)
    # The constructor has checked the types, but attributes can be set to anything later.
    if type(message.body) is not bytes:
        raise ConfigurationError(
            f"the body of the message for topic {message.topic!r} is {type(message.body).__name__}: it must be bytes"
        )
    size = len(message.body)
    if not size:
        raise ConfigurationError(f"the message for topic {message.topic!r} has an empty body: brokers refuse those")
    if size > settings.max_message_size:
        raise ConfigurationError(
            f"the message for topic {message.topic!r} has {size} bytes, more than max_message_size"
            f" ({settings.max_message_size}); brokers refuse more than their own maxMessageSize too (4 MiB by default)"
        )
    flag = message.flag
    if type(flag) is not int or not -(1 << 31) <= flag < 1 << 31:
        raise ConfigurationError(f"flag={flag!r} must be a whole number of 32 bits ({-(1 << 31)} to {(1 << 31) - 1})")
    if message.delay_level or message.delay is not None or message.deliver_at is not None:
        _check_delay(message, settings)
    _check_properties(message, settings)


@lru_cache(maxsize=1024)
def _check_name(topic: str, namespace: str | None) -> None:
    """Refuse a topic; a good one is remembered, a bad one is refused each time anew."""
    check_topic(topic)
    check_sendable(topic)
    if namespace:
        check_wrapped_topic(namespace, topic)


def check_batch(messages: Sequence[Message], settings: ProducerSettings) -> list[bytes] | None:
    """Refuse messages that cannot share a request; the bodies, where the messages are nothing else."""
    if isinstance(messages, Message | str | bytes) or not isinstance(messages, Sequence):
        raise ConfigurationError(f"send_batch takes a list of messages, not {type(messages).__name__}")
    if not messages:
        raise ConfigurationError("send_batch was given no message")
    bodies = _bare_bodies(messages)
    if bodies is not None and max(map(len, bodies)) <= settings.max_message_size and min(map(len, bodies)):
        _check_name(messages[0].topic, settings.namespace)
        _check_batch_topic(messages[0].topic)
        return bodies
    for index, message in enumerate(messages):
        if not isinstance(message, Message):
            raise ConfigurationError(f"expected a Message to send, got {type(message).__name__} at index {index}")
        check_message(message, settings)
        if message.topic != messages[0].topic:
            raise ConfigurationError(
                f"a batch has one topic, but this one has {messages[0].topic!r} and {message.topic!r}"
            )
        if message.delay_level or message.delay is not None or message.deliver_at is not None:
            raise ConfigurationError("a delayed message cannot be part of a batch: send it by itself")
        if message.sharding_key != messages[0].sharding_key:
            raise ConfigurationError(
                "a batch goes to one queue, but the messages of this one have the sharding keys"
                f" {messages[0].sharding_key!r} and {message.sharding_key!r}: send a batch per key"
            )
    _check_batch_topic(messages[0].topic)
    return None


def _check_batch_topic(topic: str) -> None:
    if topic.startswith("%RETRY%"):
        raise ConfigurationError("messages of a retry topic cannot be sent as a batch")


def _bare_bodies(messages: Sequence[Message]) -> list[bytes] | None:
    """The bodies of messages that are of one topic and have nothing else that could be wrong; else None."""
    topic = messages[0].topic if type(messages[0]) is Message else None
    if type(topic) is not str:
        return None
    bodies: list[bytes] = []
    for message in messages:
        if (
            type(message) is not Message
            or message.topic is not topic
            or message.properties != _NO_PROPERTIES
            or message.tags is not None
            or message.keys is not None
            or message.sharding_key is not None
            or message.flag is not _ZERO
            or message.delay_level is not _ZERO
            or message.delay is not None
            or message.deliver_at is not None
        ):
            return None
        bodies.append(message.body)
    return bodies if set(map(type, bodies)) == _ONLY_BYTES else None


def check_timeout(timeout: float | None) -> None:
    """Refuse a time-out that is no time."""
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < float("inf")
    ):
        raise ConfigurationError(f"timeout={timeout!r} must be a number of seconds greater than 0")


def _check_delay(message: Message, settings: ProducerSettings) -> None:
    level, delay, deliver_at = message.delay_level, message.delay, message.deliver_at
    if type(level) is not int or not 0 <= level <= settings.max_delay_level:
        raise ConfigurationError(
            f"delay_level={level!r} must be a whole number from 0 (none) to {settings.max_delay_level}"
            " (max_delay_level)"
        )
    if delay is not None and (type(delay) not in (int, float) or not 0 < delay <= MAX_DELAY):
        raise ConfigurationError(f"delay={delay!r} must be a number of seconds, greater than 0 and at most {MAX_DELAY}")
    if deliver_at is not None and (type(deliver_at) is not int or not 0 < deliver_at < 1 << 63):
        raise ConfigurationError(f"deliver_at={deliver_at!r} must be milliseconds since the epoch")


def _check_properties(message: Message, settings: ProducerSettings) -> None:
    if (
        message.properties == _NO_PROPERTIES
        and message.tags is None
        and message.keys is None
        and message.sharding_key is None
    ):
        return
    total = _OWN_PROPERTIES + (len("INSTANCE_ID") + len(settings.namespace) + 2 if settings.namespace else 0)
    if not isinstance(message.properties, dict):
        raise ConfigurationError(f"properties={message.properties!r} must be a dict of texts")
    for name, value in message.properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigurationError(f"property {name!r}={value!r}: names and values of properties are texts")
        if not name or not value:
            raise ConfigurationError(f"property {name!r}={value!r}: neither name nor value of a property may be empty")
        if name in RESERVED_PROPERTIES:
            raise ConfigurationError(f"property {name!r} is RocketMQ's own: {_instead(name)}")
        total += _size(f"property {name!r}", name + value) + 2
    for what, name, text in (
        ("tags", "TAGS", message.tags),
        ("keys", "KEYS", message.keys),
        ("sharding_key", "__SHARDINGKEY", message.sharding_key),
    ):
        if text is not None:
            if not isinstance(text, str):
                raise ConfigurationError(f"{what}={text!r} must be a text or None")
            total += _size(f"{what}={text!r}", text) + len(name) + 2
    if message.tags is not None and "||" in message.tags:
        raise ConfigurationError(f"tags={message.tags!r}: a message has one tag; '||' joins them in subscriptions only")
    if message.sharding_key == "":
        raise ConfigurationError("sharding_key='' must be a text that is not empty, or None")
    if total > MAX_PROPERTIES_SIZE:
        raise ConfigurationError(
            f"the properties take {total} bytes, the client's own included: at most {MAX_PROPERTIES_SIZE} are allowed"
        )


def _size(what: str, text: str) -> int:
    """The bytes of a text, refused where RocketMQ could not carry it."""
    if any(separator in text for separator in _SEPARATORS):
        raise ConfigurationError(f"{what} contains \\x01 or \\x02, which separate properties on the wire")
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} contains half of a surrogate pair, which UTF-8 cannot carry") from None


def _instead(name: str) -> str:
    if name.startswith("TIMER_"):
        return "use delay= or deliver_at="
    arguments = {"TAGS": "tags=", "KEYS": "keys=", "DELAY": "delay_level="}
    return f"use {arguments[name]}" if name in arguments else "it cannot be set"
