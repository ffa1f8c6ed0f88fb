"""Routes: which brokers have which queues of a topic, and where those brokers are."""

from __future__ import annotations

from collections.abc import Mapping

from rocketstream.wire.bodies.base import Body, body, mapping
from rocketstream.wire.java import Int32, Int64


@body
class QueueData(Body):
    """A topic's queues on one broker."""

    broker_name: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_sys_flag: Int32 = 0


@body
class BrokerData(Body):
    """A broker's addresses by id: 0 is the master."""

    broker_name: str
    cluster: str | None = None
    broker_addrs: Mapping[Int64, str] = mapping()
    zone_name: str | None = None
    enable_acting_master: bool = False


@body
class TopicQueueMappingInfo(Body):
    """A static topic's logical queues on one broker (5.x): logical id -> the broker's own."""

    topic: str | None = None
    scope: str | None = None
    total_queues: Int32 = 0
    bname: str | None = None
    epoch: Int64 = 0
    dirty: bool = False
    curr_id_map: Mapping[Int32, Int32] = mapping()


@body
class TopicRouteData(Body):
    """GET_ROUTEINFO_BY_TOPIC's answer."""

    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: Mapping[str, tuple[str, ...]] = mapping()
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: Mapping[str, TopicQueueMappingInfo] | None = None


@body
class ClusterInfo(Body):
    """GET_BROKER_CLUSTER_INFO's answer: all brokers, and which cluster has which."""

    broker_addr_table: Mapping[str, BrokerData] = mapping()
    cluster_addr_table: Mapping[str, frozenset[str]] = mapping()
