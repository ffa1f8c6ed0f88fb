"""The topics in which popped messages wait for another try, one for each group and topic."""

from __future__ import annotations

from rocketstream.broker.names import RETRY_PREFIX
from rocketstream.broker.settings import BrokerSettings
from rocketstream.wire.check_point import pop_retry_topic

NORMAL, RETRY, RETRY_V2 = "0", "1", "2"
"""How RocketMQ tells in its short texts which kind of topic is meant."""


def retry_topic(topic: str, group: str) -> str:
    """Where 5.5.0 puts them (enableRetryTopicV2 is off)."""
    return pop_retry_topic(topic, group)


def retry_topic_v2(topic: str, group: str) -> str:
    """The newer name, which can be taken apart; brokers that were told so use it."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def retry_topics(topic: str, group: str, settings: BrokerSettings) -> tuple[str, ...]:
    """Where they may lie, first where they are put: who uses the newer name may still read the older one."""
    old, newer = retry_topic(topic, group), retry_topic_v2(topic, group)
    if not settings.pop_retry_topic_v2:
        return (old,)
    return (newer, old) if settings.read_pop_retry_topic_v1 else (newer,)


def kind_of(topic: str) -> str:
    """What kind of topic this is."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY


def real_topic(topic: str, group: str, kind: str) -> str:
    """The topic of that kind that belongs to a topic."""
    if kind == RETRY:
        return retry_topic(topic, group)
    return retry_topic_v2(topic, group) if kind == RETRY_V2 else topic


def normal_topic(topic: str, group: str) -> str:
    """The topic that a group's retry topic belongs to; any other topic itself."""
    for prefix in (retry_topic_v2("", group), retry_topic("", group)):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic
