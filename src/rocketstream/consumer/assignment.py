"""Which queues of a topic are this consumer's: by its own reckoning, or as the brokers say (REB-03, REB-04, REB-11).

The rule of this file: it asks and reckons, and changes nothing. Every member of a group sorts the same queues and the
same members and so comes to the same answer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from rocketstream.cluster.brokers import MASTER_ID
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.consumer.allocation import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateStrategy,
)
from rocketstream.errors import BrokerNotFoundError, ConfigurationError, RocketStreamError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.assignment import QueryAssignmentRequestBody, QueryAssignmentResponseBody
from rocketstream.wire.bodies.members import ConsumerListByGroup
from rocketstream.wire.codes import MessageModel, MessageRequestMode, RequestCode
from rocketstream.wire.headers.group import GetConsumerListByGroupRequestHeader

# Ours, quick, and calling nobody's functions: these need no other thread.
_INLINE = (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The queues that are ours, each with how its messages are to be had."""

    queues: Mapping[MessageQueue, MessageRequestMode]
    of: Collection[MessageQueue]


async def members_of_group(instance: ClientInstance, topic: str, group: str) -> tuple[str, ...]:
    """The client ids of a group, sorted, from whichever broker of the topic answers."""
    header = GetConsumerListByGroupRequestHeader(consumer_group=group)
    answer = await _ask_any_broker(instance, topic, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    return tuple(sorted(ConsumerListByGroup.decode(answer).consumer_id_list))


async def client_side(
    strategy: AllocateStrategy,
    group: str,
    me: str,
    queues: Collection[MessageQueue],
    members: Sequence[str],
    threads: Executor,
) -> Assignment:
    """What the strategy gives us; a user's own runs on another thread."""
    ordered = sorted(queues)
    if not ordered:
        return Assignment({}, ordered)
    if isinstance(strategy, _INLINE):
        mine = strategy.allocate(group, me, ordered, members)
    else:
        loop = asyncio.get_running_loop()
        mine = await loop.run_in_executor(threads, strategy.allocate, group, me, ordered, members)
    strange = set(mine) - set(ordered)
    if strange:
        raise ConfigurationError(
            f"allocate_strategy {strategy.name!r} gave queues that the topic does not have: {sorted(strange)[:3]}"
        )
    return Assignment(dict.fromkeys(mine, MessageRequestMode.PULL), ordered)


async def broker_side(
    instance: ClientInstance,
    topic: str,
    group: str,
    client_id: str,
    strategy_name: str,
    queues: Collection[MessageQueue],
) -> Assignment | None:
    """What the broker gives us, and whether by pull or by pop (REB-11); None: it cannot say, nothing may change."""
    body = QueryAssignmentRequestBody(
        topic=topic,
        consumer_group=group,
        client_id=client_id,
        strategy_name=strategy_name,
        message_model=MessageModel.CLUSTERING,
    )
    # All members ask the same broker first: while an operator changes the mode from broker to broker, they agree.
    answer = await _ask_any_broker(instance, topic, RequestCode.QUERY_ASSIGNMENT, body=body.encode(), shuffled=False)
    given = QueryAssignmentResponseBody.decode(answer).message_queue_assignments
    return None if given is None else Assignment({one.message_queue: one.mode for one in given}, queues)


async def _ask_any_broker(
    instance: ClientInstance,
    topic: str,
    code: RequestCode,
    header: GetConsumerListByGroupRequestHeader | None = None,
    body: bytes = b"",
    *,
    shuffled: bool = True,
) -> bytes:
    route = await instance.routes.get(topic)
    addresses = [by_id.get(MASTER_ID) or by_id[min(by_id)] for _, by_id in sorted(route.brokers.items()) if by_id]
    if shuffled:
        random.shuffle(addresses)
    failure: RocketStreamError = BrokerNotFoundError(f"the route of topic {topic!r} has no broker")
    for address in addresses:
        try:
            return (await instance.ask(address, code, header, body)).body
        except RocketStreamError as error:
            failure = error
    raise failure
