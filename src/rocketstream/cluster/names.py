"""Names of topics and groups: which are legal, which are RocketMQ's own, and how namespaces wrap them (START-13).

Pure functions; the rules are those of RocketMQ's `Validators`, `TopicValidator` and `NamespaceUtil`.
"""

from __future__ import annotations

import re

from rocketstream.errors import ConfigurationError

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
AUTO_CREATE_TOPIC = "TBW102"
"""The topic whose settings a topic gets that a broker creates by itself."""

MAX_TOPIC_LENGTH = 127
MAX_PREFIXED_TOPIC_LENGTH = 255
MAX_GROUP_LENGTH = 255

# Where only a broker may write.
UNSENDABLE_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SYSTEM_TOPICS = UNSENDABLE_TOPICS | {AUTO_CREATE_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC"}
SYSTEM_TOPIC_PREFIX = "rmq_sys_"

# Groups that no user may take: Java's defaults, which mean "somebody forgot to name it".
DEFAULT_GROUPS = frozenset({"DEFAULT_CONSUMER", "DEFAULT_PRODUCER"})
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_SYSTEM_GROUPS = frozenset(
    {"DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER"}
    | {"__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP"}
    | {"CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL"}
)

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_LEGAL_WORDS = "letters, digits and % | _ -"


def check_topic(topic: str) -> None:
    """Refuse a topic name that no broker takes."""
    if not isinstance(topic, str) or not topic.strip():
        raise ConfigurationError(f"topic={topic!r}: a topic needs a name")
    if not _LEGAL.fullmatch(topic):
        raise ConfigurationError(f"topic={topic!r} has illegal characters: only {_LEGAL_WORDS} are allowed")
    limit = _topic_limit(topic)
    if len(topic) > limit:
        raise ConfigurationError(f"topic={topic!r} has {len(topic)} characters: at most {limit} are allowed")


def check_namespace(namespace: str | None, setting: str = "namespace") -> None:
    """Refuse a namespace that would make names illegal, or names that cannot be told apart."""
    if namespace is None:
        return
    if not isinstance(namespace, str) or not _LEGAL.fullmatch(namespace) or "%" in namespace:
        raise ConfigurationError(f"{setting}={namespace!r} must be a text of letters, digits and | _ -, or None")


def check_one_namespace(namespace: object, namespace_v2: object) -> None:
    """Refuse two namespaces of different kinds: a name would be wrapped twice."""
    if namespace is not None and namespace_v2 is not None:
        raise ConfigurationError(
            f"namespace={namespace!r} and namespace_v2={namespace_v2!r} cannot be used together: the first is written"
            " into the names, the second travels beside them"
        )


def check_wrapped_topic(namespace: str, topic: str) -> None:
    """Refuse a topic that is too long once its namespace is around it."""
    wrapped = with_namespace(namespace, topic)
    limit = _topic_limit(wrapped)
    if len(wrapped) > limit:
        raise ConfigurationError(
            f"topic={topic!r} has {len(wrapped)} characters with its namespace ({wrapped!r}):"
            f" at most {limit} are allowed"
        )


def check_wrapped_group(namespace: str | None, group: str) -> None:
    """Refuse a namespace that is no name, or with which a group becomes too long."""
    check_namespace(namespace)
    wrapped = with_namespace(namespace, group)
    if len(wrapped) > MAX_GROUP_LENGTH:
        raise ConfigurationError(
            f"group={group!r} has {len(wrapped)} characters with its namespace: at most {MAX_GROUP_LENGTH} are allowed"
        )


def check_sendable(topic: str) -> None:
    """Refuse a topic to which only brokers may write."""
    if topic in UNSENDABLE_TOPICS:
        raise ConfigurationError(f"topic={topic!r} is reserved for brokers: nothing can be sent to it")


def check_group(group: str) -> None:
    """Refuse a group name that no broker takes, or that means that it was forgotten (START-02)."""
    if not isinstance(group, str) or not group.strip():
        raise ConfigurationError(f"group={group!r}: a group needs a name")
    if not _LEGAL.fullmatch(group):
        raise ConfigurationError(f"group={group!r} has illegal characters: only {_LEGAL_WORDS} are allowed")
    if len(group) > MAX_GROUP_LENGTH:
        raise ConfigurationError(f"group={group!r} has {len(group)} characters: at most {MAX_GROUP_LENGTH} are allowed")
    if group in DEFAULT_GROUPS:
        raise ConfigurationError(f"group={group!r} is reserved: choose a name of your own")


def is_system_topic(topic: str) -> bool:
    """Whether a topic is RocketMQ's own."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether a group is RocketMQ's own."""
    return group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_GROUP_PREFIX)


def retry_topic(group: str) -> str:
    """The topic through which a group's failed messages come again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic in which a group's messages end that failed too often."""
    return DLQ_PREFIX + group


def with_namespace(namespace: str | None, name: str) -> str:
    """A topic or group as brokers know it; RocketMQ's own and what is wrapped already stay as they are."""
    if not namespace or not name or is_system_topic(name) or is_system_group(name):
        return name
    prefix, rest = _split_prefix(name)
    return name if rest.startswith(f"{namespace}%") else f"{prefix}{namespace}%{rest}"


def without_namespace(namespace: str | None, name: str) -> str:
    """A topic or group as its user knows it; one of another namespace stays as it is."""
    if not namespace or not name:
        return name
    prefix, rest = _split_prefix(name)
    return prefix + rest.removeprefix(f"{namespace}%")


def _topic_limit(topic: str) -> int:
    return MAX_PREFIXED_TOPIC_LENGTH if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else MAX_TOPIC_LENGTH


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
