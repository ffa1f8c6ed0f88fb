"""The options of a write: what a user wrote, checked, as a value that travels to executors.

The rule of this file: pure. Whatever is wrong in the options alone is a `ConfigurationError` of one sentence that
names the option, what it was and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketstream.cluster.names import (
    check_group,
    check_sendable,
    check_topic,
    check_wrapped_group,
    check_wrapped_topic,
)
from rocketstream.errors import ConfigurationError, MissingCodecError
from rocketstream.producer.settings import ProducerSettings
from rocketstream.spark.link import LinkSettings
from rocketstream.spark.option_values import (
    CONNECTION_OPTIONS,
    check_names,
    count_option,
    flag_option,
    link_option,
    seconds_option,
    shorten,
    text_option,
)
from rocketstream.spark.row_ids import check_write_id

WRITE_OPTIONS: Final = (
    "nameServers",
    "topic",
    "group",
    "batchSize",
    "batchBytes",
    "maxInFlight",
    "maxInFlightBytes",
    "sendTimeout",
    "compression",
    "compressOver",
    "maxMessageSize",
    "dropReservedProperties",
    "writeId",
    *CONNECTION_OPTIONS[1:],
)
# What Spark itself puts among the options of a stream's sink.
_OF_SPARK: Final = ("checkpointLocation", "queryName")

DEFAULT_GROUP: Final = "rocketstream-spark-sink"
BATCH_SIZE: Final = 1_000
BATCH_BYTES: Final = 256 * 1024
MAX_IN_FLIGHT: Final = 32
MAX_IN_FLIGHT_BYTES: Final = 8 * 1024 * 1024
SEND_TIMEOUT: Final = 60.0
COMPRESS_OVER: Final = 4096
MAX_MESSAGE_SIZE: Final = 4 * 1024 * 1024

_CODECS: Final = ("zlib", "lz4", "zstd", "none")
_MOST_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A write as its user described it; can be pickled, shows no secret, and is the key of a producer."""

    link: LinkSettings
    topic: str | None
    """None: there is a column `topic`."""
    group: str
    batch_size: int
    batch_bytes: int
    max_in_flight: int
    max_in_flight_bytes: int
    send_timeout: float
    compression: str
    compress_over: int
    max_message_size: int
    drop_reserved: bool
    """Whether RocketMQ's own names in column `properties` are left out instead of refused."""
    write_id: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read the options of `df.write` or `df.writeStream`."""
        check_names(options, [*WRITE_OPTIONS, *_OF_SPARK], "the rocketmq sink")
        link = link_option(options)
        compression = (text_option(options, "compression") or "zlib").lower()
        if compression not in _CODECS:
            raise ConfigurationError(f"compression={shorten(compression)!r} must be one of {', '.join(_CODECS)}")
        write_id = text_option(options, "writeId")
        if write_id is not None:
            check_write_id(write_id)
        parsed = cls(
            link=link,
            topic=_topic(options, link.namespace),
            group=_group(options, link.namespace),
            batch_size=count_option(options, "batchSize", 1, 100_000) or BATCH_SIZE,
            batch_bytes=count_option(options, "batchBytes", 1, _MOST_BYTES) or BATCH_BYTES,
            max_in_flight=count_option(options, "maxInFlight", 1, 10_000) or MAX_IN_FLIGHT,
            max_in_flight_bytes=count_option(options, "maxInFlightBytes", 1, _MOST_BYTES) or MAX_IN_FLIGHT_BYTES,
            send_timeout=seconds_option(options, "sendTimeout", SEND_TIMEOUT, 86_400.0),
            compression=compression,
            compress_over=_or(count_option(options, "compressOver", 0, _MOST_BYTES), COMPRESS_OVER),
            max_message_size=count_option(options, "maxMessageSize", 1, _MOST_BYTES) or MAX_MESSAGE_SIZE,
            drop_reserved=flag_option(options, "dropReservedProperties", False),
            write_id=write_id,
        )
        if parsed.batch_bytes > parsed.max_message_size:
            raise ConfigurationError(
                f"batchBytes={parsed.batch_bytes} is more than maxMessageSize={parsed.max_message_size}:"
                " to a broker a batch is one message"
            )
        try:
            parsed.producer_settings()
        except MissingCodecError:
            raise ConfigurationError(
                f"compression={compression} needs a package that is not installed: pip install rocketstream[speed]"
            ) from None
        return parsed

    @property
    def single_from(self) -> int:
        """From how many bytes on a body is sent by itself: compressed, or because it is a batch's worth."""
        return self.batch_bytes if self.compression == "none" else min(self.batch_bytes, self.compress_over)

    def producer_settings(self) -> ProducerSettings:
        """The same for the producer that sends."""
        compresses = self.compression != "none"
        return ProducerSettings(
            group=self.group,
            namespace=self.link.namespace,
            max_message_size=self.max_message_size,
            compression=self.compression if compresses else "zlib",
            compress_over=self.compress_over if compresses else _MOST_BYTES,
        )


def _topic(options: Mapping[str, str], namespace: str | None) -> str | None:
    topic = text_option(options, "topic")
    if topic is not None:
        if "," in topic:
            raise ConfigurationError(f"topic={shorten(topic)!r}: rows for several topics need a column topic")
        check_target(topic, namespace)
    return topic


def check_target(topic: str, namespace: str | None) -> None:
    """Refuse a topic that rows cannot be sent to."""
    try:
        check_topic(topic)
        check_sendable(topic)
        if namespace:
            check_wrapped_topic(namespace, topic)
        if topic.startswith("%RETRY%"):
            raise ConfigurationError(f"topic={topic!r} is a consumer group's retry topic: rows cannot be sent to it")
    except ConfigurationError as error:
        raise ConfigurationError(shorten(str(error), 400)) from None


def _group(options: Mapping[str, str], namespace: str | None) -> str:
    group = text_option(options, "group")
    if group is None:
        return DEFAULT_GROUP
    try:
        check_group(group)
        check_wrapped_group(namespace, group)
    except ConfigurationError as error:
        raise ConfigurationError(shorten(str(error), 400)) from None
    return group


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
