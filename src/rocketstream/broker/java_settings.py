"""A broker's settings in RocketMQ's names and units: what GET_BROKER_CONFIG tells and UPDATE_BROKER_CONFIG changes.

What has no meaning here is kept and told again, so that tools which set and read it back find what they wrote.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rocketstream.broker.settings import BrokerSettings
from rocketstream.errors import ConfigurationError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class _Setting(NamedTuple):
    name: str
    """What it is called here."""
    read: Callable[[str], Any]
    write: Callable[[Any], str]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _boolean(text: str) -> bool:
    return text.strip().lower() == "true"


def _scaled(seconds: float) -> tuple[Callable[[str], float], Callable[[float], str]]:
    return lambda text: int(text) * seconds, lambda value: str(round(value / seconds))


_MILLISECONDS = _scaled(0.001)
_SECONDS = _scaled(1.0)
_HOURS = _scaled(3600.0)


def _delay_levels(text: str) -> tuple[int, ...]:
    return tuple(int(level[:-1]) * _UNITS[level[-1]] for level in text.split())


def _delay_text(levels: tuple[int, ...]) -> str:
    return " ".join(
        next(f"{level // size}{unit}" for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if level % size == 0)
        for level in levels
    )


_SETTINGS: Mapping[str, _Setting] = {
    "brokerName": _Setting("broker_name", str, _text),
    "brokerClusterName": _Setting("cluster_name", str, _text),
    "brokerIP1": _Setting("host", str, _text),
    "listenPort": _Setting("broker_port", int, _text),
    "regionId": _Setting("region", str, _text),
    "traceOn": _Setting("trace_on", _boolean, _text),
    "brokerPermission": _Setting("permission", int, _text),
    "autoCreateTopicEnable": _Setting("auto_create_topics", _boolean, _text),
    "autoCreateSubscriptionGroup": _Setting("auto_create_groups", _boolean, _text),
    "defaultTopicQueueNums": _Setting("default_queue_count", int, _text),
    "maxMessageSize": _Setting("max_message_size", int, _text),
    "messageDelayLevel": _Setting("delay_levels", _delay_levels, _delay_text),
    "timerMaxDelaySec": _Setting("max_timer_delay", *_SECONDS),
    "recallMessageEnable": _Setting("recall_enabled", _boolean, _text),
    "transactionTimeOut": _Setting("transaction_timeout", *_MILLISECONDS),
    "transactionCheckInterval": _Setting("transaction_check_interval", *_MILLISECONDS),
    "transactionCheckMax": _Setting("transaction_check_max", int, _text),
    "maxTransferCountOnMessageInMemory": _Setting("max_pull_messages", int, _text),
    "maxTransferBytesOnMessageInMemory": _Setting("max_pull_bytes", int, _text),
    "enablePropertyFilter": _Setting("sql_filter", _boolean, _text),
    "useServerSideResetOffset": _Setting("server_side_reset", _boolean, _text),
    "notifyConsumerIdsChangedEnable": _Setting("notify_members", _boolean, _text),
    "enableRetryTopicV2": _Setting("pop_retry_topic_v2", _boolean, _text),
    "retrieveMessageFromPopRetryTopicV1": _Setting("read_pop_retry_topic_v1", _boolean, _text),
    "fileReservedTime": _Setting("retention_time", *_HOURS),
    "mappedFileSizeCommitLog": _Setting("segment_size", int, _text),
    "flushConsumerOffsetInterval": _Setting("persist_interval", *_MILLISECONDS),
}
#: What RocketMQ's tools and clients look for, and what is true of an embedded broker.
_FIXED: Mapping[str, str] = {
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "accessMessageInMemoryMaxRatio": "40",
    "rejectTransactionMessage": "false",
    "timerWheelEnable": "true",
    "messageIndexEnable": "true",
    "traceTopicEnable": "false",
    "slaveReadEnable": "false",
}


def change(settings: BrokerSettings, java_name: str, text: str) -> None:
    """Change a setting by RocketMQ's name; one that can't be is a `ConfigurationError`, one unknown here is kept."""
    if java_name == "flushDiskType":
        settings.flush = "sync" if text == "SYNC_FLUSH" else "async"
        return
    known = _SETTINGS.get(java_name)
    if known is None:
        settings.more[java_name] = text
        return
    try:
        value = known.read(text)
    except (ValueError, KeyError, IndexError):
        raise ConfigurationError(f"{java_name}={text!r} is not a value that it can have") from None
    # Made anew once, for its checks.
    setattr(settings, known.name, getattr(dataclasses.replace(settings, **{known.name: value}), known.name))


def properties(settings: BrokerSettings) -> dict[str, str]:
    """All settings by RocketMQ's names."""
    told = {
        java_name: known.write(value)
        for java_name, known in _SETTINGS.items()
        if (value := getattr(settings, known.name)) is not None
    }
    told["flushDiskType"] = "SYNC_FLUSH" if settings.flush == "sync" else "ASYNC_FLUSH"
    told["storePathRootDir"] = str(settings.data or "")
    if settings.name_servers:
        told["namesrvAddr"] = settings.name_servers
    return {**_FIXED, **told, **settings.more}
