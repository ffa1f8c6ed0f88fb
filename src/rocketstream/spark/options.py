"""The options of a read: what a user wrote, checked, as a value that travels to executors.

The rule of this file: pure. Whatever is wrong in the options alone is a `ConfigurationError` of one sentence that
names the option, what it was and what is allowed; what only a cluster can tell is asked later, by the planner.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from rocketstream.cluster.names import check_group, check_wrapped_group
from rocketstream.consumer.expressions import Sql, Tag, subscription_to
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.spark.link import OUTAGE, READERS_GROUP, LinkSettings
from rocketstream.spark.offsets import Offsets, parse_offsets
from rocketstream.spark.option_values import (
    CONNECTION_OPTIONS,
    check_names,
    count_option,
    flag_option,
    link_option,
    seconds_option,
    shorten,
    text_option,
    topics_option,
)
from rocketstream.spark.pull_settings import PullSettings

READ_OPTIONS: Final = (
    "nameServers",
    "topic",
    "topics",
    "topicPattern",
    "group",
    "tags",
    "sql",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "commitOffsets",
    "pullBatchSize",
    "outageTimeout",
    *CONNECTION_OPTIONS[1:],
)

_MAX_COUNT: Final = 2**63 - 1
_MAX_MILLIS: Final = 253_402_300_799_999
_MAX_PARTITIONS: Final = 100_000
_MAX_PULL: Final = 65_535

Named = Literal["earliest", "latest", "committed"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a read begins or ends: at a name, at a time, or at given offsets (queues that are not named: `name`)."""

    name: Named = "earliest"
    millis: int | None = None
    offsets: tuple[tuple[MessageQueue, int], ...] = ()

    def __str__(self) -> str:
        """For logs."""
        if self.millis is not None:
            return f"time {self.millis}"
        return f"{len(self.offsets)} given offsets" if self.offsets else self.name


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read as its user described it."""

    link: LinkSettings
    topics: tuple[str, ...]
    topic_pattern: str | None
    group: str | None
    expression: Tag | Sql
    starting: Place | None
    """None: the default of a batch (earliest) or a stream (latest)."""
    ending: Place | None
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    commit_offsets: bool
    pull_batch_size: int
    outage: float

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read the options of `spark.read` or `spark.readStream`."""
        check_names(options, READ_OPTIONS, "the rocketmq source")
        link = link_option(options)
        topics, pattern = _topics(options, link.namespace)
        group = _group(options, link.namespace)
        commit = flag_option(options, "commitOffsets", group is not None)
        if commit and group is None:
            raise ConfigurationError("commitOffsets=true needs option group: offsets are written for a group")
        starting = _place(options, "startingOffsets", "startingTimestamp", link.namespace, topics, "earliest")
        ending = _place(options, "endingOffsets", "endingTimestamp", link.namespace, topics, "latest")
        for name, place in (("startingOffsets", starting), ("endingOffsets", ending)):
            if place is not None and place.name == "committed" and group is None:
                raise ConfigurationError(f"{name}=committed needs option group: whose offsets are meant?")
        if starting and ending and None not in (starting.millis, ending.millis) and starting.millis > ending.millis:  # type: ignore[operator]
            raise ConfigurationError("startingTimestamp is later than endingTimestamp")
        return cls(
            link=link,
            topics=topics,
            topic_pattern=pattern,
            group=group,
            expression=_expression(options),
            starting=starting,
            ending=ending,
            max_offsets_per_trigger=count_option(options, "maxOffsetsPerTrigger", 1, _MAX_COUNT),
            min_partitions=count_option(options, "minPartitions", 1, _MAX_PARTITIONS),
            fail_on_data_loss=flag_option(options, "failOnDataLoss", True),
            commit_offsets=commit,
            pull_batch_size=count_option(options, "pullBatchSize", 1, _MAX_PULL) or PullSettings().pull_batch_size,
            outage=seconds_option(options, "outageTimeout", OUTAGE, 86_400.0),
        )

    def pull_settings(self) -> PullSettings:
        """The same for who pulls."""
        return PullSettings(
            group=self.group or READERS_GROUP,
            expression=self.expression,
            pull_batch_size=self.pull_batch_size,
            fail_on_data_loss=self.fail_on_data_loss,
            outage=self.outage,
        )

    def given_offsets(self, place: Place) -> Offsets:
        """The offsets of a place, by queue."""
        return dict(place.offsets)


def _topics(options: Mapping[str, str], namespace: str | None) -> tuple[tuple[str, ...], str | None]:
    topics, pattern = topics_option(options, namespace), text_option(options, "topicPattern")
    if topics and pattern is not None:
        raise ConfigurationError("options topic and topicPattern are two ways to say what to read: give one")
    if not topics and pattern is None:
        raise ConfigurationError("option topic (or topics, or topicPattern) is missing: what is to be read?")
    if pattern is not None:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigurationError(f"topicPattern={shorten(pattern)!r} is no regular expression: {error}") from None
    return topics, pattern


def _group(options: Mapping[str, str], namespace: str | None) -> str | None:
    group = text_option(options, "group")
    if group is not None:
        try:
            check_group(group)
            check_wrapped_group(namespace, group)
        except ConfigurationError as error:
            raise ConfigurationError(shorten(str(error), 400)) from None
    return group


def _expression(options: Mapping[str, str]) -> Tag | Sql:
    tags, sql = text_option(options, "tags"), text_option(options, "sql")
    if tags is not None and sql is not None:
        raise ConfigurationError("options tags and sql are two filters: give one")
    if sql is not None:
        return Sql(sql)
    if tags is None:
        return Tag()
    try:
        subscription_to("any", tags, 1)
    except ConfigurationError:
        raise ConfigurationError(
            f"tags={shorten(tags)!r} names no tag: expected for example 'paid || shipped'"
        ) from None
    return Tag(tags)


def _place(
    options: Mapping[str, str],
    offsets_name: str,
    time_name: str,
    namespace: str | None,
    topics: tuple[str, ...],
    others: Named,
) -> Place | None:
    text, time = text_option(options, offsets_name), text_option(options, time_name)
    if text is not None and time is not None:
        raise ConfigurationError(f"options {offsets_name} and {time_name} are two ways to say the same: give one")
    if time is not None:
        return Place(others, millis=_millis(time_name, time))
    if text is None:
        return None
    match text.lower():
        case "earliest" | "latest" | "committed" as name:
            if name == "earliest" and others == "latest":
                raise ConfigurationError(f"{offsets_name}=earliest leaves nothing to read")
            return Place(name)
    if not text.startswith("{"):
        raise ConfigurationError(
            f"{offsets_name}={shorten(text)!r} must be earliest, latest, committed"
            ' or JSON such as {"orders": {"broker-a": {"0": 5}}}'
        )
    offsets = parse_offsets(text, namespace, offsets_name)
    shown = parse_offsets(text, None, offsets_name)
    for queue in shown:
        if topics and queue.topic not in topics:
            raise ConfigurationError(
                f"{offsets_name} names topic {shorten(queue.topic)!r}, which is not read: option topic has"
                f" {shorten(', '.join(topics))}"
            )
    return Place(others, offsets=tuple(sorted(offsets.items())))


def _millis(name: str, text: str) -> int:
    """Milliseconds since the epoch, or an ISO time (UTC unless it says which zone)."""
    wrong = ConfigurationError(
        f"{name}={shorten(text)!r} must be milliseconds since the epoch or an ISO time such as 2026-03-01T12:00:00Z"
    )
    if text.isascii() and text.isdigit():
        if len(text) > 15 or int(text) > _MAX_MILLIS:
            raise wrong
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        millis = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise wrong from None
    if not 0 <= millis <= _MAX_MILLIS:
        raise wrong
    return millis
