"""The topics of a broker: their settings, and which come into being by themselves (RocketMQ's `TopicConfigManager`)."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from rocketstream.broker import names
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.topic_attributes import altered
from rocketstream.clock import Clock
from rocketstream.wire.bodies.data_version import DataVersion
from rocketstream.wire.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from rocketstream.wire.codes import Permission, ResponseCode

log = logging.getLogger("rocketstream.broker")

READ_WRITE = int(Permission.READ | Permission.WRITE)
_INHERIT = int(Permission.INHERIT)
_STATE = "topics"
#: RocketMQ's reviveQueueNum: how many queues pop spreads its check points over.
REVIVE_QUEUES = 8
_SCHEDULE_QUEUES = 18


class Topics:
    """Every topic's settings, kept over restarts.

    `changed` is called with the name of a topic that was made, changed or deleted.
    """

    def __init__(self, *, settings: BrokerSettings, clock: Clock, state: StateFiles) -> None:
        self.changed: list[Callable[[str], None]] = []
        self.announced: Callable[[], Awaitable[None] | None] = lambda: None
        """What to wait for until name servers know of the last change; None when they do."""
        self._settings = settings
        self._clock = clock
        self._state = state
        self._table: dict[str, TopicConfig] = {one.topic_name: one for one in _from_the_start(settings)}
        self._system = names.SYSTEM_TOPICS | set(self._table)
        self.version = DataVersion(timestamp=clock.wall_ms())
        self._load()

    def __repr__(self) -> str:
        return f"<Topics {len(self._table) - len(self._system & self._table.keys())} of users>"

    def _load(self) -> None:
        saved = self._state.load(_STATE)
        if saved is None:
            return
        wrapper = TopicConfigSerializeWrapper.from_json(saved)
        self._table |= wrapper.topic_config_table
        if wrapper.data_version is not None:
            self.version = wrapper.data_version
        if not self._settings.auto_create_topics:
            self._table.pop(names.AUTO_CREATE_TOPIC, None)

    # --- asking --------------------------------------------------------------------------------------------------

    def get(self, topic: str) -> TopicConfig | None:
        """A topic's settings."""
        return self._table.get(topic)

    def all(self) -> dict[str, TopicConfig]:
        """Every topic's settings by name, RocketMQ's own topics too."""
        return dict(self._table)

    def is_system(self, topic: str) -> bool:
        """Whether the topic is RocketMQ's own."""
        return topic in self._system or topic.startswith(names.SYSTEM_PREFIX)

    def system_topics(self) -> frozenset[str]:
        """RocketMQ's own topics, those of them too that are not there yet."""
        return frozenset(self._system)

    # --- what comes into being by itself -------------------------------------------------------------------------

    def for_send(
        self, topic: str, default_topic: str, default_queues: int, sys_flag: int = 0, address: str = ""
    ) -> TopicConfig:
        """The topic that somebody sends to, made after the model of `default_topic` if that may be inherited."""
        config = self._table.get(topic)
        if config is not None:
            return config
        model = self._table.get(default_topic)
        if model is not None and self._may_be_inherited(model):
            queues = max(0, min(default_queues, model.write_queue_nums))
            made = TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=model.perm & ~_INHERIT,
                topic_filter_type=model.topic_filter_type,
                topic_sys_flag=sys_flag,
                attributes={},
            )
            log.info("%s created topic %s with %d queues by sending to it", address or "a client", topic, queues)
            return self.put(made)
        if topic.startswith(names.RETRY_PREFIX):
            return self.for_send_back(topic, 1, READ_WRITE, sys_flag)
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")

    def _may_be_inherited(self, model: TopicConfig) -> bool:
        if model.topic_name == names.AUTO_CREATE_TOPIC and not self._settings.auto_create_topics:
            return False
        return bool(model.perm & _INHERIT)

    def for_send_back(
        self, topic: str, queues: int, perm: int, sys_flag: int = 0, *, order: bool = False
    ) -> TopicConfig:
        """A retry or dead-letter topic, made if it is not there."""
        config = self._table.get(topic)
        if config is None:
            return self.put(
                TopicConfig(
                    topic_name=topic,
                    read_queue_nums=queues,
                    write_queue_nums=queues,
                    perm=perm,
                    topic_sys_flag=sys_flag,
                    order=order,
                    attributes={},
                )
            )
        return config if config.order == order else self.put(dataclasses.replace(config, order=order))

    # --- changing ------------------------------------------------------------------------------------------------

    def update(self, config: TopicConfig) -> TopicConfig:
        """Put a topic whose attributes are modifications ("+name" or "-name") of those that it has."""
        had = self._table.get(config.topic_name)
        attributes = altered(None if had is None else had.attributes or {}, config.attributes or {})
        return self.put(dataclasses.replace(config, attributes=attributes))

    def put(self, config: TopicConfig) -> TopicConfig:
        """Make a topic, or replace its settings."""
        self._table[config.topic_name] = config
        self._save()
        self._tell(config.topic_name)
        return config

    def delete(self, topic: str) -> bool:
        """Forget a topic's settings; its messages and offsets are others' matter. False if there was none."""
        if self._table.pop(topic, None) is None:
            return False
        self._save()
        self._tell(topic)
        return True

    def _tell(self, topic: str) -> None:
        for callback in self.changed:
            callback(topic)

    def _save(self) -> None:
        self.version = DataVersion(timestamp=self._clock.wall_ms(), counter=self.version.counter + 1)
        self._state.save(_STATE, self.wrapper().to_json())

    def wrapper(self, topics: Iterable[str] | None = None) -> TopicConfigSerializeWrapper:
        """The settings of these topics, or of all, with their version: what a name server is told."""
        table: Mapping[str, TopicConfig] = self._table
        if topics is not None:
            table = {topic: self._table[topic] for topic in topics if topic in self._table}
        return TopicConfigSerializeWrapper(topic_config_table=table, data_version=self.version)


def _from_the_start(settings: BrokerSettings) -> list[TopicConfig]:
    """RocketMQ's own topics."""

    def own(topic: str, queues: int = 1, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm, attributes={})

    everything = _INHERIT | READ_WRITE
    topics = [
        own(names.SELF_TEST_TOPIC),
        own(names.BENCHMARK_TOPIC, 1024),
        own(settings.cluster_name, 16, everything),
        own(settings.broker_name, 1, everything),
        own(names.OFFSET_MOVED_TOPIC),
        own(names.SCHEDULE_TOPIC, _SCHEDULE_QUEUES),
        own(settings.cluster_name + names.REPLY_SUFFIX),
        own(names.REVIVE_PREFIX + settings.cluster_name, REVIVE_QUEUES),
        own(names.MEMBER_GROUP_PREFIX + settings.broker_name, 1, _INHERIT),
        own(names.HALF_TOPIC),
        own(names.OP_HALF_TOPIC),
        own(names.TIMER_TOPIC),
    ]
    if settings.auto_create_topics:
        topics.append(own(names.AUTO_CREATE_TOPIC, settings.default_queue_count, everything))
    return topics
