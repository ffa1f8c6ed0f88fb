"""What a consumer tells operators of itself, in the words of RocketMQ's own client: `mqadmin` and dashboards read it.

The rule of this file: it looks and tells; nothing is changed by being asked, and no secret is told. Settings have the
names and the units of Java's fields, so that a group of clients in several languages can be compared line by line.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from datetime import datetime
from types import FrameType
from typing import Any, Final

from rocketstream.clock import Clock
from rocketstream.cluster.client_id import DEFAULT_INSTANCE_NAME
from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.pop_request import PopProcessQueue
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.wire.bodies.running_info import PopProcessQueueInfo, ProcessQueueInfo

_MIB: Final = 1024 * 1024


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g}"


def _or_minus_one(limit: int | None) -> int:
    return -1 if limit is None else limit


# Java's field -> ours, and how its value is written.
_SETTINGS: Final[dict[str, tuple[str, Callable[[Any], object]]]] = {
    "consumerGroup": ("group", str),
    "messageModel": ("model", lambda model: model.name),
    "consumeFromWhere": ("start_from", lambda start: start.where.name),
    "allocateMessageQueueStrategy": ("allocate_strategy", lambda strategy: strategy.name),
    "consumeThreadMin": ("consume_thread_min", int),
    "consumeThreadMax": ("consume_thread_max", int),
    "adjustThreadPoolNumsThreshold": ("adjust_thread_pool_threshold", int),
    "consumeConcurrentlyMaxSpan": ("consume_concurrently_max_span", int),
    "pullThresholdForQueue": ("pull_threshold_for_queue", int),
    "pullThresholdSizeForQueue": ("pull_threshold_size_for_queue", int),
    "pullThresholdForTopic": ("pull_threshold_for_topic", _or_minus_one),
    "pullThresholdSizeForTopic": ("pull_threshold_size_for_topic", _or_minus_one),
    "popThresholdForQueue": ("pop_threshold_for_queue", int),
    "pullInterval": ("pull_interval", _milliseconds),
    "consumeMessageBatchMaxSize": ("consume_message_batch_max_size", int),
    "pullBatchSize": ("pull_batch_size", int),
    "pullBatchSizeInBytes": ("pull_batch_size_in_bytes", int),
    "postSubscriptionWhenPull": ("post_subscription_when_pull", bool),
    "unitMode": ("unit_mode", bool),
    "maxReconsumeTimes": ("max_reconsume_times", int),
    "suspendCurrentQueueTimeMillis": ("suspend_current_queue_time", _milliseconds),
    "consumeTimeout": ("consume_timeout", _minutes),
    "popInvisibleTime": ("pop_invisible_time", _milliseconds),
    "popBatchNums": ("pop_batch_nums", int),
    "awaitTerminationMillisWhenShutdown": ("await_termination_when_shutdown", _milliseconds),
    "clientRebalance": ("client_rebalance", bool),
}


def text(value: object) -> str:
    """A value as Java writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def consumer_properties(consumer: ConsumerSettings) -> dict[str, str]:
    """The settings of a push consumer under the names of `DefaultMQPushConsumer`."""
    told = {name: text(write(getattr(consumer, ours))) for name, (ours, write) in _SETTINGS.items()}
    moment = consumer.start_from.timestamp_ms
    if moment is not None:
        told["consumeTimestamp"] = datetime.fromtimestamp(moment / 1000).strftime("%Y%m%d%H%M%S")
    if consumer.namespace:
        told["namespace"] = consumer.namespace
    return told


def client_properties(client: ClientSettings, client_id: str) -> dict[str, str]:
    """The settings that all clients have under the names of `ClientConfig`; never the credentials."""
    ip, _, rest = client_id.partition("@")
    told = {
        "clientIP": ip,
        "instanceName": rest.removesuffix(f"@{client.unit_name}") or DEFAULT_INSTANCE_NAME,
        "pollNameServerInterval": str(_milliseconds(client.poll_name_server_interval)),
        "heartbeatBrokerInterval": str(_milliseconds(client.heartbeat_interval)),
        "persistConsumerOffsetInterval": str(_milliseconds(client.persist_offset_interval)),
        "mqClientApiTimeout": str(_milliseconds(client.api_timeout)),
        "useTLS": text(client.remoting.tls is not False),
        "language": "PYTHON",
    }
    if client.name_servers:
        told["namesrvAddr"] = ";".join(client.name_servers)
    if client.unit_name:
        told["unitName"] = client.unit_name
    return told


def queue_info(pq: ProcessQueue, commit_offset: int, clock: Clock) -> ProcessQueueInfo:
    """One queue that is pulled; times that a queue knows by the monotonic clock become times of day."""
    wall, now = clock.wall_ms(), clock.monotonic()

    def at(moment: float) -> int:
        return wall - round((now - moment) * 1000)

    first, last, taken = pq.first_offset, pq.last_offset, pq.taken_offsets
    cached = pq.count - len(taken) if first is not None else 0
    return ProcessQueueInfo(
        commit_offset=commit_offset,
        cached_msg_min_offset=first or 0,
        cached_msg_max_offset=last or 0,
        cached_msg_count=max(cached, 0),
        cached_msg_size_in_mib=pq.size // _MIB,
        transaction_msg_min_offset=taken[0] if taken else 0,
        transaction_msg_max_offset=taken[-1] if taken else 0,
        transaction_msg_count=len(taken),
        locked=pq.locked,
        last_lock_timestamp=at(pq.locked_at),
        dropped=pq.dropped,
        last_pull_timestamp=at(pq.last_pull_at),
        last_consume_timestamp=at(pq.last_consume_at),
    )


def pop_queue_info(pq: PopProcessQueue, clock: Clock) -> PopProcessQueueInfo:
    """One queue that is popped."""
    ago = round((clock.monotonic() - pq.last_pull_at) * 1000)
    return PopProcessQueueInfo(wait_ack_count=pq.unacked, dropped=pq.dropped, last_pop_timestamp=clock.wall_ms() - ago)


def stack_dump() -> str:
    """Where every thread of this process is, laid out as Java's: names and places only, no values."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    lines: list[str] = []
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        # A thread that Python has not started is in no list.
        name = thread.name if thread is not None else f"thread-{ident}"
        kind = " DAEMON" if thread is not None and thread.daemon else ""
        lines.append(f"{name:<40}TID: {ident} STATE: RUNNABLE{kind}")
        lines.extend(f"{name:<40}{place}" for place in _places(frame))
        lines.append("")
    return "\n".join(lines) + "\n"


def place_of(frame: FrameType, line: int | None) -> str:
    """A place in the code: `package.module.function(file.py:12)`."""
    module = frame.f_globals.get("__name__", "?")
    file = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{module}.{frame.f_code.co_qualname}({file}:{line})"


def _places(frame: FrameType | None) -> list[str]:
    """The innermost first, as Java has it."""
    found: list[str] = []
    while frame is not None:
        found.append(place_of(frame, frame.f_lineno))
        frame = frame.f_back
    return found
