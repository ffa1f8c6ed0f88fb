"""The name server's other side: brokers that register, and its key-value settings."""

from __future__ import annotations

from rocketstream.wire.headers.base import Header, header
from rocketstream.wire.java import Int32, Int64


@header
class RegisterBrokerRequestHeader(Header):
    """REGISTER_BROKER; the topics are the body. `body_crc32` 0 is "not checked"."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0


@header
class RegisterBrokerResponseHeader(Header):
    """Whom a slave follows."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@header
class UnRegisterBrokerRequestHeader(Header):
    """UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@header
class QueryDataVersionRequestHeader(Header):
    """QUERY_DATA_VERSION: a broker asks whether it needs to register again."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@header
class QueryDataVersionResponseHeader(Header):
    """Whether the name server knows an older version of the broker's topics."""

    changed: bool


@header
class PutKVConfigRequestHeader(Header):
    """PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


@header
class GetKVConfigRequestHeader(Header):
    """GET_KV_CONFIG."""

    namespace: str
    key: str


@header
class GetKVConfigResponseHeader(Header):
    """The value."""

    value: str | None = None


@header
class DeleteKVConfigRequestHeader(Header):
    """DELETE_KV_CONFIG."""

    namespace: str
    key: str


@header
class GetKVListByNamespaceRequestHeader(Header):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str


@header
class WritePermOfBrokerRequestHeader(Header):
    """WIPE_WRITE_PERM_OF_BROKER and ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


@header
class WipeWritePermOfBrokerResponseHeader(Header):
    """How many topics no longer take messages there."""

    wipe_topic_count: Int32


@header
class AddWritePermOfBrokerResponseHeader(Header):
    """How many topics take messages there again."""

    add_topic_count: Int32
