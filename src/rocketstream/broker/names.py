"""Names of topics and groups in a broker: which are legal, which are its own (RocketMQ's `TopicValidator`)."""

from __future__ import annotations

import re

from rocketstream.broker.refusal import Refusal
from rocketstream.wire.codes import ResponseCode

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_PREFIX = "rmq_sys_"
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
REPLY_SUFFIX = "_REPLY_TOPIC"

#: Where only a broker may write.
UNSENDABLE_TOPICS = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
SYSTEM_TOPICS = UNSENDABLE_TOPICS | {AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC, "CHECKPOINT_TOPIC"}

_MAX_TOPIC = 127
_MAX_PREFIXED_TOPIC = 255
_MAX_GROUP = 120
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def retry_topic(group: str) -> str:
    """Where a group's messages go that are to be consumed once more."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where a group's messages go that are not to be tried any more."""
    return DLQ_PREFIX + group


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Where messages of a topic that a group popped go for another try: the form of today, and the old one."""
    return f"{RETRY_PREFIX}{group}+{topic}", f"{RETRY_PREFIX}{group}_{topic}"


def check_topic(topic: str) -> None:
    """Refuse a topic name that no broker takes, in RocketMQ's words."""
    if not topic.strip():
        raise Refusal(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
    if not _LEGAL.fullmatch(topic):
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"The specified topic: {topic}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        )
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(topic) > _MAX_PREFIXED_TOPIC:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"The specified topic is DLQ or Retry topic: {topic}, and it's longer than topic max length:"
                f" {_MAX_PREFIXED_TOPIC}",
            )
    elif len(topic) > _MAX_TOPIC:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"The specified topic: {topic}, is longer than topic max length: {_MAX_TOPIC}",
        )


def check_group(group: str) -> None:
    """Refuse a group name that no broker takes, in RocketMQ's words."""
    if not group.strip():
        raise Refusal(ResponseCode.INVALID_PARAMETER, "The specified group is blank.")
    if not _LEGAL.fullmatch(group):
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"The specified group: {group}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        )
    if len(group) > _MAX_GROUP:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"The specified group: {group}, is longer than group max length: {_MAX_GROUP}",
        )
