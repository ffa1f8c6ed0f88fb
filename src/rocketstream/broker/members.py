"""Who is connected: the producers and consumers that heartbeats tell of, by group and by connection.

The rules are RocketMQ's: a client belongs to a group from its heartbeat until it says so, its connection ends or it is
silent for too long; whenever the members of a group or its topics change, every member is told at once and rebalances.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.consumer_group import ConsumerGroup, Member, language_name
from rocketstream.broker.dispatch import Dispatcher, Handler
from rocketstream.broker.groups import Groups
from rocketstream.broker.names import retry_topic
from rocketstream.broker.periodic import Periodic
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.sql92 import SqlError, compile_expression
from rocketstream.broker.topics import Topics
from rocketstream.clock import Clock
from rocketstream.wire.bodies.group import SubscriptionGroupConfig
from rocketstream.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketstream.wire.bodies.members import (
    ConsumerConnection,
    ConsumerListByGroup,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketstream.wire.bodies.subscription import CheckClientRequestBody, SubscriptionData
from rocketstream.wire.codes import ExpressionType, MessageModel, Permission, RequestCode, ResponseCode, RpcFlag
from rocketstream.wire.command import Command, request, response
from rocketstream.wire.headers.group import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetProducerConnectionListRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)

log = logging.getLogger("rocketstream.broker")

_SCAN_INTERVAL: Final = 10.0
_READ_WRITE: Final = int(Permission.READ | Permission.WRITE)
#: A topic's system flag: units subscribe to it (`TopicSysFlag.java`).
_HAS_UNIT_SUBSCRIPTION: Final = 2


class Members:
    """Every client that is in a group."""

    def __init__(
        self, *, settings: BrokerSettings, clock: Clock, dispatcher: Dispatcher, topics: Topics, groups: Groups
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[ClientConnection, Member]] = {}
        self._fingerprints: dict[str, int] = {}
        self._pulled: set[tuple[str, str]] = set()
        self._scan = Periodic(clock, _SCAN_INTERVAL, self._expire)
        dispatcher.when_closed.append(self._on_closed)

    def __repr__(self) -> str:
        return f"<Members consumer groups={len(self._consumers)} producer groups={len(self._producers)}>"

    # --- what others ask ----------------------------------------------------------------------------------------

    def consumers(self, group: str) -> ConsumerGroup | None:
        """A consumer group that has members."""
        return self._consumers.get(group)

    def consumer_groups(self) -> list[ConsumerGroup]:
        """All of them."""
        return list(self._consumers.values())

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the members of a group want of a topic."""
        found = self._consumers.get(group)
        return None if found is None else found.subscription(topic)

    def has_other_subscriptions(self, group: str, topic: str) -> bool:
        """Whether members of the group say what they want, and it is not this topic; nor was it ever pulled."""
        if (group, topic) in self._pulled:
            return False
        found = self._consumers.get(group)
        return found is not None and bool(found.subscriptions()) and found.subscription(topic) is None

    def note_pull(self, group: str, topic: str) -> None:
        """A pull brought its own subscription: the group wants the topic, too (RocketMQ's compensation table)."""
        self._pulled.add((group, topic))

    def groups_of(self, topic: str) -> list[str]:
        """The groups whose members want something of a topic."""
        return [group.name for group in self._consumers.values() if group.subscription(topic) is not None]

    def producers(self, group: str) -> list[ClientConnection]:
        """The connections of a producer group."""
        return [connection for connection in self._producers.get(group, ()) if not connection.closed]

    def connection_of(self, client_id: str) -> ClientConnection | None:
        """The connection of a producer's client: where replies to its requests go."""
        for members in self._producers.values():
            for member in members.values():
                if member.client_id == client_id and not member.connection.closed:
                    return member.connection
        return None

    # --- as a service -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for clients that have fallen silent."""
        self._scan.start()

    def stop(self) -> None:
        """End that."""
        self._scan.stop()

    def handlers(self) -> Mapping[int, Handler]:
        """What clients tell of themselves, and what is asked about them."""
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_client,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._client_ids,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
        }

    # --- coming -------------------------------------------------------------------------------------------------

    def _heartbeat(self, connection: ClientConnection, command: Command) -> Command:
        data = HeartbeatData.decode(command.body)
        member = Member(
            connection,
            data.client_id,
            command.language,
            command.version,
            self._clock.monotonic(),
            self._clock.wall_ms(),
        )
        # Without a fingerprint (4.9, and the first of 5.x) everything counts as new.
        is_changed = not data.heartbeat_fingerprint
        for consumer in data.consumer_data_set:
            seen = self._fingerprints.get(consumer.group_name, data.heartbeat_fingerprint)
            is_changed = is_changed or seen != data.heartbeat_fingerprint
            self._fingerprints[consumer.group_name] = data.heartbeat_fingerprint
            self._register(member, consumer, without_subscriptions=data.without_sub and data.heartbeat_fingerprint != 0)
        for producer in data.producer_data_set:
            members = self._producers.setdefault(producer.group_name, {})
            if connection not in members:
                log.info("%s joined producer group %s", data.client_id, producer.group_name)
            members[connection] = member
        told = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if is_changed else "false"}
        return response(command, ResponseCode.SUCCESS, header=told)

    def _register(self, member: Member, data: ConsumerData, *, without_subscriptions: bool) -> None:
        config = self._groups.get(data.group_name)
        if config is None:
            return
        sys_flag = _HAS_UNIT_SUBSCRIPTION if data.unit_mode else 0
        self._topics.for_send_back(
            retry_topic(data.group_name),
            config.retry_queue_nums,
            _READ_WRITE,
            sys_flag,
            order=self._wants_order(data),
        )
        group = self._consumers.get(data.group_name)
        if group is None:
            group = self._consumers[data.group_name] = ConsumerGroup(data)
        is_new = group.join(member, data)
        is_changed = False if without_subscriptions else group.subscribe(data.subscription_data_set)
        if is_new:
            log.info("%s joined group %s", member.client_id, data.group_name)
        if (is_new or is_changed) and config.notify_consumer_ids_changed_enable:
            self._notify(group)

    def _wants_order(self, data: ConsumerData) -> bool:
        configs = (self._topics.get(wanted.topic) for wanted in data.subscription_data_set)
        return any(config.order for config in configs if config is not None)

    # --- going --------------------------------------------------------------------------------------------------

    def _unregister(self, connection: ClientConnection, command: Command) -> Command:
        wanted = UnregisterClientRequestHeader.from_fields(command.fields)
        if wanted.producer_group is not None:
            self._remove_producer(wanted.producer_group, connection)
        if wanted.consumer_group is not None:
            # Asked for whoever leaves, member or not: that makes the group, as in RocketMQ.
            config: SubscriptionGroupConfig | None = self._groups.get(wanted.consumer_group)
            group = self._consumers.get(wanted.consumer_group)
            if group is not None:
                self._remove_consumer(group, connection)
                if config is None or config.notify_consumer_ids_changed_enable:
                    self._notify(group)
        return response(command, ResponseCode.SUCCESS)

    def _on_closed(self, connection: ClientConnection) -> None:
        for producer_group in list(self._producers):
            self._remove_producer(producer_group, connection)
        for group in list(self._consumers.values()):
            if self._remove_consumer(group, connection):
                self._notify(group)

    def _expire(self) -> None:
        """Cut off whoever was silent for too long."""
        limit = self._clock.monotonic() - self._settings.client_expiry
        members = [member for group in self._consumers.values() for member in group.members()]
        members += [member for group in self._producers.values() for member in group.values()]
        for connection in {member.connection: None for member in members if member.last_heartbeat < limit}:
            log.warning("%s sent no heartbeat for %g s: forgotten", connection.address, self._settings.client_expiry)
            self._on_closed(connection)
            connection.cut()

    def _remove_consumer(self, group: ConsumerGroup, connection: ClientConnection) -> bool:
        if not group.leave(connection):
            return False
        log.info("%s left group %s", connection.address, group.name)
        if not group.members():
            del self._consumers[group.name]
        return True

    def _remove_producer(self, group: str, connection: ClientConnection) -> None:
        members = self._producers.get(group, {})
        if members.pop(connection, None) is not None and not members:
            del self._producers[group]

    def _notify(self, group: ConsumerGroup) -> None:
        """Tell every member that it has to rebalance; in a broadcasting group nobody has to."""
        if group.message_model == MessageModel.BROADCASTING or not self._settings.notify_members:
            return
        told = NotifyConsumerIdsChangedRequestHeader(consumer_group=group.name)
        for member in group.members():
            notice = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, told)
            notice.flag |= RpcFlag.ONE_WAY
            member.connection.send(notice)

    # --- being asked --------------------------------------------------------------------------------------------

    def _check_client(self, connection: ClientConnection, command: Command) -> Command:
        if command.body:
            wanted = CheckClientRequestBody.decode(command.body).subscription_data
            if wanted.expression_type not in ("", ExpressionType.TAG):
                self._check_expression(wanted)
        return response(command, ResponseCode.SUCCESS)

    def _check_expression(self, wanted: SubscriptionData) -> None:
        if not self._settings.sql_filter:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {wanted.expression_type}",
            )
        if wanted.expression_type != ExpressionType.SQL92:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"there is no filter of the kind {wanted.expression_type}"
            )
        try:
            compile_expression(wanted.sub_string)
        except SqlError as error:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None

    def _client_ids(self, connection: ClientConnection, command: Command) -> Command:
        name = GetConsumerListByGroupRequestHeader.from_fields(command.fields).consumer_group
        group = self._consumers.get(name)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        ids = ConsumerListByGroup(consumer_id_list=tuple(group.client_ids()))
        return response(command, ResponseCode.SUCCESS, body=ids.encode())

    def _consumer_connections(self, connection: ClientConnection, command: Command) -> Command:
        name = GetConsumerConnectionListRequestHeader.from_fields(command.fields).consumer_group
        group = self._consumers.get(name)
        if group is None:
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        answer = ConsumerConnection(
            connection_set=tuple(member.to_connection() for member in group.members()),
            subscription_table=group.subscriptions(),
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from,
        )
        return response(command, ResponseCode.SUCCESS, body=answer.encode())

    def _producer_connections(self, connection: ClientConnection, command: Command) -> Command:
        name = GetProducerConnectionListRequestHeader.from_fields(command.fields).producer_group
        members = self._producers.get(name)
        if members is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        answer = ProducerConnection(connection_set=tuple(member.to_connection() for member in members.values()))
        return response(command, ResponseCode.SUCCESS, body=answer.encode())

    def _all_producers(self, connection: ClientConnection, command: Command) -> Command:
        table = {
            group: tuple(
                ProducerInfo(
                    client_id=member.client_id,
                    remote_ip=f"/{member.connection.address}",
                    language=language_name(member.language),
                    version=member.version,
                    last_update_timestamp=member.last_update_ms,
                )
                for member in members.values()
            )
            for group, members in self._producers.items()
        }
        return response(command, ResponseCode.SUCCESS, body=ProducerTableInfo(data=table).encode())
