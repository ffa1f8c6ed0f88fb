"""Topics: names and settings, and how a broker registers them with its name server."""

from __future__ import annotations

from collections.abc import Mapping

from rocketstream.wire.bodies.base import Body, body, mapping
from rocketstream.wire.bodies.data_version import DataVersion
from rocketstream.wire.codes import Permission
from rocketstream.wire.java import Int32

_READ_AND_WRITE = int(Permission.READ | Permission.WRITE)


@body
class TopicList(Body):
    """Names of topics: of a cluster, of a group, or those of the system."""

    topic_list: frozenset[str] = frozenset()
    broker_addr: str | None = None


@body
class TopicConfig(Body):
    """A topic's settings on one broker; `attributes` are 5.x's."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = _READ_AND_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: Mapping[str, str] | None = None


@body
class TopicConfigSerializeWrapper(Body):
    """GET_ALL_TOPIC_CONFIG's answer, and what a broker registers."""

    topic_config_table: Mapping[str, TopicConfig] = mapping()
    data_version: DataVersion | None = None


@body
class RegisterBrokerBody(Body):
    """REGISTER_BROKER, not compressed (`compressed` false in its header)."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper
    filter_server_list: tuple[str, ...] = ()


@body
class CreateTopicListRequestBody(Body):
    """UPDATE_AND_CREATE_TOPIC_LIST (5.x)."""

    topic_config_list: tuple[TopicConfig, ...]
