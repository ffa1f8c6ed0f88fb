"""What a planner asks brokers and name servers: coroutines of the I/O thread, each one question.

The rule of this file: an answer or an error; nothing is tried again here. Who asks again, and for how long, is `link`'s
to know.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from rocketstream.cluster.brokers import MASTER_ID, BrokerAddress
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic, without_namespace
from rocketstream.consumer.broker_offsets import QueueOffsets
from rocketstream.errors import BrokerError
from rocketstream.message import MessageQueue
from rocketstream.remoting.replies import PullResult, expect_success, read_pull_result
from rocketstream.wire.bodies.stats import TopicStatsTable
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.bodies.topic import TopicList
from rocketstream.wire.codes import PullFlag, PullStatus, RequestCode, ResponseCode
from rocketstream.wire.command import request
from rocketstream.wire.headers.offsets import GetMinOffsetRequestHeader
from rocketstream.wire.headers.pull import PullMessageRequestHeader
from rocketstream.wire.headers.topic import GetTopicStatsInfoRequestHeader
from rocketstream.wire.record_decoder import decode_records

TIMEOUT: Final = 5.0
_AT_ONCE: Final = 64
# From so many queues of a topic on one broker on, one large answer is cheaper than many small ones.
_MANY: Final = 4
_REPLY_SUFFIX: Final = "_REPLY_TOPIC"
_SYSTEM_PREFIX: Final = "RMQ_SYS_"

T = TypeVar("T")
K = TypeVar("K")


async def for_each(keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T]:
    """Ask the same for many keys, a bounded number of them at a time."""
    wanted = list(dict.fromkeys(keys))
    permits = asyncio.Semaphore(_AT_ONCE)

    async def one(key: K) -> T:
        async with permits:
            return await ask(key)

    return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))


async def master_of(instance: ClientInstance, queue: MessageQueue) -> BrokerAddress:
    """The master of a queue's broker."""
    return await instance.routes.broker(queue.topic, queue.broker_name, MASTER_ID, only_this=True)


async def queue_limits(instance: ClientInstance, queues: Iterable[MessageQueue]) -> dict[MessageQueue, tuple[int, int]]:
    """The first offset of each queue, and the one that its next message will get."""
    by_place: dict[tuple[str, str], list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        by_place[queue.topic, queue.broker_name].append(queue)
    found: dict[MessageQueue, tuple[int, int]] = {}
    for answers in await asyncio.gather(*(_limits_at(instance, together) for together in by_place.values())):
        found.update(answers)
    return found


async def _limits_at(instance: ClientInstance, queues: list[MessageQueue]) -> dict[MessageQueue, tuple[int, int]]:
    found: dict[MessageQueue, tuple[int, int]] = {}
    if len(queues) > _MANY:
        found = await _all_limits(instance, queues[0])
    ask = QueueOffsets(instance)

    async def one(queue: MessageQueue) -> tuple[int, int]:
        first, last = await asyncio.gather(ask.min_offset(queue), ask.max_offset(queue))
        return max(first, 0), max(last, first, 0)

    # A topic whose queues were reduced has more to read than the broker tells of all at once.
    rest = await for_each([queue for queue in queues if queue not in found], one)
    return {queue: found[queue] if queue in found else rest[queue] for queue in queues}


async def _all_limits(instance: ClientInstance, one: MessageQueue) -> dict[MessageQueue, tuple[int, int]]:
    broker = await master_of(instance, one)
    header = GetTopicStatsInfoRequestHeader(topic=one.topic)
    try:
        answer = await instance.ask(broker.address, RequestCode.GET_TOPIC_STATS_INFO, header, timeout=TIMEOUT)
    except BrokerError:
        return {}  # who may read a topic need not be allowed to ask for its statistics
    table = TopicStatsTable.decode(answer.body).offset_table
    return {
        MessageQueue(one.topic, one.broker_name, queue.queue_id): (max(each.min_offset, 0), max(each.max_offset, 0))
        for queue, each in table.items()
        if queue.broker_name == one.broker_name
    }


async def offset_at(instance: ClientInstance, queue: MessageQueue, millis: int, group: str) -> int:
    """The offset of the first message that was stored at a time or later; the end if there is none."""
    broker = await master_of(instance, queue)
    if broker.version is None:
        # Brokers tell their version with every answer; how they search for a time depends on it.
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        answer = await instance.ask(broker.address, RequestCode.GET_MIN_OFFSET, header, timeout=TIMEOUT)
        instance.brokers.set_version(broker.broker_name, broker.address, answer.version)
    found = max(await QueueOffsets(instance).search(queue, millis), 0)
    # Brokers find a time only nearly: 4.x gives a message before it too, and the last one for a time after it.
    everything = SubscriptionData(topic=queue.topic, sub_version=1)
    result = await pull(instance, broker.address, queue, found, everything, group, 32)
    if result.status is PullStatus.OFFSET_ILLEGAL:
        return max(result.next_offset, 0)
    if result.status is not PullStatus.FOUND:
        return min(found, max(result.max_offset, 0))
    messages, _ = decode_records(result.body, queue=queue)
    later = [message.queue_offset for message in messages if message.store_timestamp >= millis]
    return later[0] if later else result.next_offset


async def make_group(instance: ClientInstance, queue: MessageQueue, group: str) -> None:
    """Have a broker make a group, as it does for who pulls; not where groups are an operator's to make."""
    broker = await master_of(instance, queue)
    await pull(instance, broker.address, queue, 0, SubscriptionData(topic=queue.topic), group, 1)


async def pull(
    instance: ClientInstance,
    address: str,
    queue: MessageQueue,
    offset: int,
    wanted: SubscriptionData,
    group: str,
    count: int,
) -> PullResult:
    """One pull that does not wait for new messages."""
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=int(PullFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=wanted.sub_string,
        sub_version=1,
        expression_type=wanted.expression_type,
        bname=queue.broker_name,
    )
    code = RequestCode.PULL_MESSAGE
    return read_pull_result(address, code, await instance.remoting.invoke(address, request(code, header), TIMEOUT))


async def topics_matching(instance: ClientInstance, pattern: str, namespace: str | None) -> list[str]:
    """The topics, as their users know them, that a regular expression describes; RocketMQ's own are left out."""
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    address, answer = await instance.name_servers.ask(request(code), TIMEOUT)
    names = TopicList.decode(expect_success(address, code, answer).body).topic_list
    own = await _topics_of_brokers(instance)
    found = []
    for name in names:
        if name in own or name.startswith((RETRY_PREFIX, DLQ_PREFIX, _SYSTEM_PREFIX)) or is_system_topic(name):
            continue
        if namespace and not name.startswith(f"{namespace}%"):
            continue
        shown = without_namespace(namespace, name)
        if re.fullmatch(pattern, shown):
            found.append(shown)
    return sorted(found)


async def _topics_of_brokers(instance: ClientInstance) -> frozenset[str]:
    """Topics that brokers make for themselves, under the names of their cluster and their own."""
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS
    _, answer = await instance.name_servers.ask(request(code), TIMEOUT)
    if answer.code != ResponseCode.SUCCESS:
        return frozenset()
    names = TopicList.decode(answer.body).topic_list
    return names | {f"{name}{_REPLY_SUFFIX}" for name in names}
