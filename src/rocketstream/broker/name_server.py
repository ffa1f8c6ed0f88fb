"""The name server: brokers register, clients ask for routes, operators keep settings by key in it."""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Mapping

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.periodic import Periodic
from rocketstream.broker.properties_file import format_properties, parse_properties
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.route_table import RouteTable
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.clock import Clock
from rocketstream.errors import ProtocolError
from rocketstream.wire.bodies.data_version import DataVersion
from rocketstream.wire.bodies.route import TopicRouteData
from rocketstream.wire.bodies.stats import KVTable
from rocketstream.wire.bodies.topic import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper, TopicList
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.name_server import (
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
    WritePermOfBrokerRequestHeader,
)
from rocketstream.wire.headers.topic import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
)
from rocketstream.wire.lenient_json import dumps

log = logging.getLogger("rocketstream.broker")

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""The namespace under which operators keep the queues of ordered topics."""

_STATE = "kv"
_SCAN_INTERVAL = 5.0
_UNIT, _UNIT_SUB = 1, 2
_LOCKED_SETTINGS = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})


class NameServer:
    """Answers what RocketMQ's name server answers."""

    def __init__(self, *, settings: BrokerSettings, clock: Clock, state: StateFiles) -> None:
        self.routes = RouteTable()
        self._settings = settings
        self._clock = clock
        self._state = state
        self._keys: dict[str, dict[str, str]] = state.load(_STATE) or {}
        self._own = {"orderMessageEnable": "false", "enableAllTopicList": "true", "enableTopicList": "true"}
        self._scan = Periodic(clock, _SCAN_INTERVAL, self._forget_silent_brokers)

    def __repr__(self) -> str:
        return f"<NameServer {len(self.routes.brokers)} brokers, {len(self.routes.topics)} topics>"

    def handlers(self) -> Mapping[int, Handler]:
        """The requests that it answers."""
        code = RequestCode
        return {
            code.REGISTER_BROKER: self._register,
            code.UNREGISTER_BROKER: self._unregister,
            code.BROKER_HEARTBEAT: self._heartbeat,
            code.QUERY_DATA_VERSION: self._query_version,
            code.GET_ROUTEINFO_BY_TOPIC: self._route,
            code.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            code.GET_BROKER_MEMBER_GROUP: self._member_group,
            code.PUT_KV_CONFIG: self._put_key,
            code.GET_KV_CONFIG: self._get_key,
            code.DELETE_KV_CONFIG: self._delete_key,
            code.GET_KVLIST_BY_NAMESPACE: self._list_keys,
            code.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write,
            code.ADD_WRITE_PERM_OF_BROKER: self._add_write,
            code.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            code.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            code.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            code.GET_UNIT_TOPIC_LIST: self._unit_topics,
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_sub_topics,
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_sub_not_unit_topics,
            code.GET_NAMESRV_CONFIG: self._get_settings,
            code.UPDATE_NAMESRV_CONFIG: self._update_settings,
        }

    def start(self) -> None:
        """Begin to look for brokers that have fallen silent."""
        self._scan.start()

    def stop(self) -> None:
        """End it."""
        self._scan.stop()

    def on_closed(self, connection: ClientConnection) -> None:
        """A connection is gone: if it was a broker's, so is the broker."""
        self.routes.lost(lambda alive: alive.connection is connection)

    def _forget_silent_brokers(self) -> None:
        now = self._clock.monotonic()
        silent = self.routes.lost(lambda one: one.connection is not None and one.last_seen + one.expiry < now)
        for connection in silent:
            connection.cut()

    # --- brokers -------------------------------------------------------------------------------------------------

    def register(
        self,
        header: RegisterBrokerRequestHeader,
        wrapper: TopicConfigSerializeWrapper,
        connection: ClientConnection | None = None,
        zone: str | None = None,
    ) -> bool:
        """Take a broker's registration; the broker of this process calls it without a connection."""
        return self.routes.register(header, wrapper, connection, self._clock.monotonic(), zone)

    def unregister(self, cluster: str, address: str, name: str) -> None:
        """Forget a broker."""
        self.routes.unregister(cluster, address, name)

    def _register(self, connection: ClientConnection, command: Command) -> Command:
        header = RegisterBrokerRequestHeader.from_fields(command.fields)
        if header.body_crc32 and header.body_crc32 != zlib.crc32(command.body) & 0x7FFFFFFF:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        wrapper = _registered_topics(command.body, header.compressed)
        if not self.register(header, wrapper, connection, command.fields.get("__ZONE_NAME")):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "register broker failed")
        ha_address, master = self.routes.master_of(header)
        return response(
            command,
            ResponseCode.SUCCESS,
            header=RegisterBrokerResponseHeader(ha_server_addr=ha_address, master_addr=master),
            body=self._key_table(ORDER_TOPICS) or b"",
        )

    def _unregister(self, connection: ClientConnection, command: Command) -> Command:
        header = UnRegisterBrokerRequestHeader.from_fields(command.fields)
        self.unregister(header.cluster_name, header.broker_addr, header.broker_name)
        return response(command, ResponseCode.SUCCESS)

    def _heartbeat(self, connection: ClientConnection, command: Command) -> Command:
        cluster, address = command.fields.get("clusterName"), command.fields.get("brokerAddr")
        if cluster is None or address is None:
            raise ProtocolError("BROKER_HEARTBEAT needs clusterName and brokerAddr")
        self.routes.seen(cluster, address, self._clock.monotonic())
        return response(command, ResponseCode.SUCCESS)

    def _query_version(self, connection: ClientConnection, command: Command) -> Command:
        header = QueryDataVersionRequestHeader.from_fields(command.fields)
        known = self.routes.version_of(header.cluster_name, header.broker_addr)
        self.routes.seen(header.cluster_name, header.broker_addr, self._clock.monotonic())
        changed = known != DataVersion.decode(command.body)
        return response(
            command,
            ResponseCode.SUCCESS,
            header=QueryDataVersionResponseHeader(changed=changed),
            body=b"" if known is None else known.encode(),
        )

    def _member_group(self, connection: ClientConnection, command: Command) -> Command:
        cluster, name = command.fields.get("clusterName"), command.fields.get("brokerName")
        if cluster is None or name is None:
            raise ProtocolError("GET_BROKER_MEMBER_GROUP needs clusterName and brokerName")
        broker = self.routes.brokers.get(name)
        addresses = {} if broker is None else {str(one): where for one, where in broker.addresses.items()}
        group = {"brokerAddrs": addresses, "brokerName": name, "cluster": cluster}
        return response(command, ResponseCode.SUCCESS, body=dumps({"brokerMemberGroup": group}))

    def _wipe_write(self, connection: ClientConnection, command: Command) -> Command:
        name = WritePermOfBrokerRequestHeader.from_fields(command.fields).broker_name
        count = self.routes.set_write_permission(name, False)
        header = WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return response(command, ResponseCode.SUCCESS, header=header)

    def _add_write(self, connection: ClientConnection, command: Command) -> Command:
        name = WritePermOfBrokerRequestHeader.from_fields(command.fields).broker_name
        count = self.routes.set_write_permission(name, True)
        header = AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return response(command, ResponseCode.SUCCESS, header=header)

    # --- routes and topics ---------------------------------------------------------------------------------------

    def _route(self, connection: ClientConnection, command: Command) -> Command:
        topic = GetRouteInfoRequestHeader.from_fields(command.fields).topic
        has_order = self._own["orderMessageEnable"] == "true"
        route = self.routes.route(topic, self._keys.get(ORDER_TOPICS, {}).get(topic) if has_order else None)
        if route is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
        # Our JSON has quoted keys always: it suits those who accept standard JSON only as well as Java.
        return response(command, ResponseCode.SUCCESS, body=route.encode())

    def _cluster_info(self, connection: ClientConnection, command: Command) -> Command:
        return response(command, ResponseCode.SUCCESS, body=self.routes.cluster_info().encode())

    def _register_topic(self, connection: ClientConnection, command: Command) -> Command:
        topic = RegisterTopicRequestHeader.from_fields(command.fields).topic
        self.routes.register_topic(topic, TopicRouteData.decode(command.body).queue_datas)
        return response(command, ResponseCode.SUCCESS)

    def _delete_topic(self, connection: ClientConnection, command: Command) -> Command:
        header = DeleteTopicFromNamesrvRequestHeader.from_fields(command.fields)
        self.routes.delete_topic(header.topic, header.cluster_name)
        return response(command, ResponseCode.SUCCESS)

    def _topic_list(self, command: Command, topics: frozenset[str], switch: str | None = "enableTopicList") -> Command:
        if switch is not None and self._own[switch] != "true":
            raise Refusal(ResponseCode.SYSTEM_ERROR, "disable")
        return response(command, ResponseCode.SUCCESS, body=TopicList(topic_list=topics).encode())

    def _all_topics(self, connection: ClientConnection, command: Command) -> Command:
        return self._topic_list(command, frozenset(self.routes.topics), "enableAllTopicList")

    def _topics_of_cluster(self, connection: ClientConnection, command: Command) -> Command:
        cluster = GetTopicsByClusterRequestHeader.from_fields(command.fields).cluster
        return self._topic_list(command, self.routes.topics_of_cluster(cluster))

    def _system_topics(self, connection: ClientConnection, command: Command) -> Command:
        clusters = self.routes.clusters
        topics = frozenset(clusters).union(*clusters.values())
        address = next((one for broker in self.routes.brokers.values() for one in broker.addresses.values()), None)
        body = TopicList(topic_list=topics, broker_addr=address).encode()
        return response(command, ResponseCode.SUCCESS, body=body)

    def _unit_topics(self, connection: ClientConnection, command: Command) -> Command:
        return self._topic_list(command, self.routes.topics_with(lambda flag: bool(flag & _UNIT)))

    def _unit_sub_topics(self, connection: ClientConnection, command: Command) -> Command:
        return self._topic_list(command, self.routes.topics_with(lambda flag: bool(flag & _UNIT_SUB)))

    def _unit_sub_not_unit_topics(self, connection: ClientConnection, command: Command) -> Command:
        wanted = self.routes.topics_with(lambda flag: bool(flag & _UNIT_SUB) and not flag & _UNIT)
        return self._topic_list(command, wanted)

    # --- settings by key -----------------------------------------------------------------------------------------

    def _key_table(self, namespace: str) -> bytes | None:
        table = self._keys.get(namespace)
        return None if table is None else KVTable(table=table).encode()

    def _put_key(self, connection: ClientConnection, command: Command) -> Command:
        header = PutKVConfigRequestHeader.from_fields(command.fields)
        self._keys.setdefault(header.namespace, {})[header.key] = header.value
        self._state.save(_STATE, self._keys)
        return response(command, ResponseCode.SUCCESS)

    def _get_key(self, connection: ClientConnection, command: Command) -> Command:
        header = GetKVConfigRequestHeader.from_fields(command.fields)
        value = self._keys.get(header.namespace, {}).get(header.key)
        if value is None:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace} Key: {header.key}"
            )
        return response(command, ResponseCode.SUCCESS, header=GetKVConfigResponseHeader(value=value))

    def _delete_key(self, connection: ClientConnection, command: Command) -> Command:
        header = DeleteKVConfigRequestHeader.from_fields(command.fields)
        self._keys.get(header.namespace, {}).pop(header.key, None)
        self._state.save(_STATE, self._keys)
        return response(command, ResponseCode.SUCCESS)

    def _list_keys(self, connection: ClientConnection, command: Command) -> Command:
        namespace = GetKVListByNamespaceRequestHeader.from_fields(command.fields).namespace
        table = self._key_table(namespace)
        if table is None:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return response(command, ResponseCode.SUCCESS, body=table)

    # --- its own settings ----------------------------------------------------------------------------------------

    def _get_settings(self, connection: ClientConnection, command: Command) -> Command:
        told = {"listenPort": str(self._settings.port), **self._own}
        return response(command, ResponseCode.SUCCESS, body=format_properties(told))

    def _update_settings(self, connection: ClientConnection, command: Command) -> Command:
        wanted = parse_properties(command.body)
        if _LOCKED_SETTINGS & wanted.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        self._own |= wanted
        return response(command, ResponseCode.SUCCESS)


def _registered_topics(body: bytes, compressed: bool) -> TopicConfigSerializeWrapper:
    if not body:
        return TopicConfigSerializeWrapper(topic_config_table={}, data_version=DataVersion())
    if not compressed:
        return RegisterBrokerBody.decode(body).topic_config_serialize_wrapper
    try:
        return _compressed_topics(zlib.decompress(body))
    except (zlib.error, struct.error, ValueError, IndexError) as error:
        raise ProtocolError(f"Failed to decode RegisterBrokerBody: {error}") from None


def _compressed_topics(data: bytes) -> TopicConfigSerializeWrapper:
    """RocketMQ's compact form: the version, the number of topics, each topic as one line; lengths before texts."""
    position = 0

    def number() -> int:
        nonlocal position
        (value,) = struct.unpack_from(">i", data, position)
        position += 4
        return int(value)

    def text() -> bytes:
        nonlocal position
        length = number()
        position += length
        return data[position - length : position]

    version = DataVersion.decode(text())
    configs = [_config_line(text().decode()) for _ in range(number())]
    return TopicConfigSerializeWrapper(
        topic_config_table={config.topic_name: config for config in configs}, data_version=version
    )


def _config_line(line: str) -> TopicConfig:
    """`TopicConfig.encode`: name, read queues, write queues, permission, filter type, and since 5.x attributes."""
    name, read, write, perm, filter_type = line.split(" ")[:5]
    return TopicConfig(
        topic_name=name,
        read_queue_nums=int(read),
        write_queue_nums=int(write),
        perm=int(perm),
        topic_filter_type=filter_type,
    )
