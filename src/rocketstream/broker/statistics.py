"""How far topics and groups are, and how fast: what `mqadmin`, the dashboard and our own admin client show.

What is put is counted as it is stored; what groups get is told by how their offsets move, which costs pulls nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.counters import SAMPLE_INTERVAL, Counter
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.groups import Groups
from rocketstream.broker.members import Members
from rocketstream.broker.offsets import Offsets
from rocketstream.broker.periodic import Periodic
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.runtime_info import RuntimeInfo
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import MessageStore, Stored
from rocketstream.broker.topics import Topics
from rocketstream.clock import Clock
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.group import GroupList
from rocketstream.wire.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    KVTable,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from rocketstream.wire.bodies.subscription import QuerySubscriptionResponseBody
from rocketstream.wire.bodies.topic import TopicConfig, TopicList
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.admin import ViewBrokerStatsDataRequestHeader
from rocketstream.wire.headers.group import (
    GetBrokerConsumeStatsRequestHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from rocketstream.wire.headers.topic import GetTopicStatsInfoRequestHeader

_PUT_COUNT: Final = "TOPIC_PUT_NUMS"
_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
_GET_COUNT: Final = "GROUP_GET_NUMS"
_ALL_PUT: Final = "BROKER_PUT_NUMS"
_ALL_GET: Final = "BROKER_GET_NUMS"


class Statistics:
    """Answers how far and how fast."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        members: Members,
        offsets: Offsets,
        address: str,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._topics = topics
        self._groups = groups
        self._members = members
        self._offsets = offsets
        self._address = address
        self._puts: dict[str, Counter] = {}
        self._sizes: dict[str, Counter] = {}
        self._gets: dict[str, Counter] = {}
        self._all_puts = Counter()
        self._all_gets = Counter()
        self._runtime = RuntimeInfo(settings, clock, store, self._all_puts, self._all_gets)
        self._sampling = Periodic(clock, SAMPLE_INTERVAL, self._sample)

    def start(self) -> None:
        """Begin to count."""
        self._store.appended.append(self._count)
        self._sample()
        self._sampling.start()

    def stop(self) -> None:
        """End that."""
        self._store.appended.remove(self._count)
        self._sampling.stop()

    def handlers(self) -> Mapping[int, Handler]:
        """The questions."""
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self._topic,
            RequestCode.GET_CONSUME_STATS: self._group,
            RequestCode.GET_BROKER_CONSUME_STATS: self._all_groups,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self._counter,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_span,
        }

    # --- counting -----------------------------------------------------------------------------------------------

    def _count(self, stored: Stored) -> None:
        topic = stored.topic
        counter = self._puts.get(topic)
        if counter is None:
            counter = self._puts[topic] = Counter()
            self._sizes[topic] = Counter()
        counter.total += 1
        self._sizes[topic].total += stored.size
        self._all_puts.total += 1

    def _sample(self) -> None:
        moved = 0
        for group, topic, queues in self._offsets.all():
            name, total = f"{topic}@{group}", sum(queues.values())
            counter = self._gets.get(name)
            if counter is None:
                counter = self._gets[name] = Counter()
                counter.total = total
            moved += max(0, total - counter.total)
            counter.total = total
        self._all_gets.total += moved
        now = self._clock.monotonic()
        for table in (self._puts, self._sizes, self._gets):
            for counter in table.values():
                counter.sample(now)
        self._all_puts.sample(now)
        self._all_gets.sample(now)
        self._runtime.sample(now)

    def _counter(self, connection: ClientConnection, command: Command) -> Command:
        wanted = ViewBrokerStatsDataRequestHeader.from_fields(command.fields)
        name, key = wanted.stats_name, wanted.stats_key
        tables: Mapping[str, Mapping[str, Counter]] = {
            _PUT_COUNT: self._puts,
            _PUT_SIZE: self._sizes,
            _GET_COUNT: self._gets,
            _ALL_PUT: {self._settings.cluster_name: self._all_puts},
            _ALL_GET: {self._settings.cluster_name: self._all_gets},
        }
        counter = tables.get(name, {}).get(key)
        if counter is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        return response(command, ResponseCode.SUCCESS, body=counter.data().encode())

    def _runtime_info(self, connection: ClientConnection, command: Command) -> Command:
        return response(command, ResponseCode.SUCCESS, body=KVTable(table=self._runtime.table()).encode())

    # --- topics -------------------------------------------------------------------------------------------------

    def _config(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._settings.broker_name, queue_id)

    def _topic(self, connection: ClientConnection, command: Command) -> Command:
        topic = GetTopicStatsInfoRequestHeader.from_fields(command.fields).topic
        config = self._config(topic)
        table = {}
        for queue_id in range(max(config.write_queue_nums, config.read_queue_nums)):
            end = self._store.max_offset(topic, queue_id)
            table[self._queue(topic, queue_id)] = TopicOffset(
                min_offset=self._store.min_offset(topic, queue_id),
                max_offset=end,
                last_update_timestamp=self._store.timestamp_at(topic, queue_id, end - 1) if end > 0 else 0,
            )
        counter = self._puts.get(topic)
        body = TopicStatsTable(offset_table=table, topic_put_tps=0.0 if counter is None else counter.per_second)
        return response(command, ResponseCode.SUCCESS, body=body.encode())

    def _groups_of_topic(self, connection: ClientConnection, command: Command) -> Command:
        topic = QueryTopicConsumeByWhoRequestHeader.from_fields(command.fields).topic
        groups = frozenset(self._members.groups_of(topic)) | frozenset(self._offsets.groups_of(topic))
        return response(command, ResponseCode.SUCCESS, body=GroupList(group_list=groups).encode())

    # --- groups -------------------------------------------------------------------------------------------------

    def _group(self, connection: ClientConnection, command: Command) -> Command:
        wanted = GetConsumeStatsRequestHeader.from_fields(command.fields)
        group = wanted.consumer_group
        if wanted.topic_list and wanted.topic_list.strip():
            topics = [topic for topic in wanted.topic_list.split(";") if topic]
        else:
            one = wanted.topic
            asked = [one] if one and one.strip() else self._offsets.topics_of(group)
            topics = [topic for topic in asked if not self._members.has_other_subscriptions(group, topic)]
        table: dict[MessageQueue, OffsetWrapper] = {}
        speed = 0.0
        for topic in topics:
            config = self._topics.get(topic)
            if config is not None:
                table |= self._progress_in(group, topic, config.read_queue_nums)
                speed += self._speed(group, topic)
        return response(
            command, ResponseCode.SUCCESS, body=ConsumeStats(offset_table=table, consume_tps=speed).encode()
        )

    def _speed(self, group: str, topic: str) -> float:
        counter = self._gets.get(f"{topic}@{group}")
        return 0.0 if counter is None else counter.per_second

    def _progress_in(self, group: str, topic: str, queues: int) -> dict[MessageQueue, OffsetWrapper]:
        table = {}
        for queue_id in range(queues):
            at = max(0, self._offsets.get(group, topic, queue_id))
            last = self._store.timestamp_at(topic, queue_id, at - 1) if at > 0 else 0
            table[self._queue(topic, queue_id)] = OffsetWrapper(
                broker_offset=self._store.max_offset(topic, queue_id),
                consumer_offset=at,
                pull_offset=max(at, self._offsets.pulled(group, topic, queue_id)),
                last_timestamp=max(0, last),
            )
        return table

    def _all_groups(self, connection: ClientConnection, command: Command) -> Command:
        only_ordered = GetBrokerConsumeStatsRequestHeader.from_fields(command.fields).is_order
        listed = []
        behind = in_flight = 0
        for group in list(self._groups.all()):
            stats = []
            for topic in self._offsets.topics_of(group):
                config = self._topics.get(topic)
                if config is None or (only_ordered and not config.order):
                    continue
                if self._members.has_other_subscriptions(group, topic):
                    continue
                table = self._progress_in(group, topic, config.write_queue_nums)
                behind += sum(one.broker_offset - one.consumer_offset for one in table.values())
                in_flight += sum((one.pull_offset or 0) - one.consumer_offset for one in table.values())
                stats.append(ConsumeStats(offset_table=table, consume_tps=self._speed(group, topic)))
            listed.append({group: tuple(stats)})
        body = ConsumeStatsList(
            consume_stats_list=tuple(listed),
            broker_addr=self._address,
            total_diff=behind,
            total_inflight_diff=in_flight,
        )
        return response(command, ResponseCode.SUCCESS, body=body.encode())

    def _topics_of_group(self, connection: ClientConnection, command: Command) -> Command:
        group = QueryTopicsByConsumerRequestHeader.from_fields(command.fields).group
        body = TopicList(topic_list=frozenset(self._offsets.topics_of(group)), broker_addr=self._address)
        return response(command, ResponseCode.SUCCESS, body=body.encode())

    def _subscription(self, connection: ClientConnection, command: Command) -> Command:
        wanted = QuerySubscriptionByConsumerRequestHeader.from_fields(command.fields)
        found = self._members.subscription(wanted.group, wanted.topic or "")
        body = QuerySubscriptionResponseBody(group=wanted.group, topic=wanted.topic, subscription_data=found)
        return response(command, ResponseCode.SUCCESS, body=body.encode())

    def _time_span(self, connection: ClientConnection, command: Command) -> Command:
        wanted = QueryConsumeTimeSpanRequestHeader.from_fields(command.fields)
        config = self._config(wanted.topic)
        spans = tuple(
            self._span_of(wanted.group, wanted.topic, queue_id) for queue_id in range(config.write_queue_nums)
        )
        body = QueryConsumeTimeSpanBody(consume_time_span_set=spans)
        return response(command, ResponseCode.SUCCESS, body=body.encode())

    def _span_of(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        end = self._store.max_offset(topic, queue_id)
        first = self._store.timestamp_at(topic, queue_id, self._store.min_offset(topic, queue_id))
        at = self._offsets.get(group, topic, queue_id)
        delay = 0
        if at < end:
            delay = self._clock.wall_ms() - self._store.timestamp_at(topic, queue_id, at)
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=first,
            max_time_stamp=self._store.timestamp_at(topic, queue_id, end - 1),
            consume_time_stamp=self._store.timestamp_at(topic, queue_id, at - 1) if at > 0 else first,
            delay_time=delay,
        )
