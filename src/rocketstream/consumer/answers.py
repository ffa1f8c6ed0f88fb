"""A push consumer's answers to operators (`questions`): how it goes, where it stands, what its listener says.

The rule of this file: it puts together what the parts know. What a queue or a setting looks like is `running_info`,
how a single message is consumed `direct`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketstream.consumer.direct import DirectConsumption
from rocketstream.consumer.pop_request import PopRequest
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.running_info import (
    client_properties,
    consumer_properties,
    pop_queue_info,
    queue_info,
    text,
)
from rocketstream.consumer.workers import LoopWorkers
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.bodies.running_info import (
    PROP_CONSUME_ORDERLY,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from rocketstream.wire.codes import ConsumeType

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore


class OperatorAnswers:
    """The answers (`Answering`) of one consumer; on the I/O thread."""

    consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._direct: DirectConsumption | None = None
        self._started_ms = 0

    def __repr__(self) -> str:
        return f"<OperatorAnswers of group {self.group}>"

    @property
    def group(self) -> str:
        """The group as brokers know it."""
        return self._core.group

    def begin(self) -> None:
        """The consumer starts, perhaps not for the first time."""
        self._direct = None
        self._started_ms = self._core.clock.wall_ms()

    async def running_info(self) -> ConsumerRunningInfo:
        """How it goes, queue by queue and topic by topic."""
        core = self._core
        now, requests = core.clock.monotonic(), core.rebalancer.requests
        return ConsumerRunningInfo(
            properties={
                **client_properties(core.settings, core.client_id),
                **consumer_properties(core.consumer),
                PROP_CONSUME_ORDERLY: text(core.consumer.orderly),
                PROP_THREADPOOL_CORE_SIZE: str(core.consumption.pool.size),
                PROP_CONSUMER_START_TIMESTAMP: str(self._started_ms),
            },
            subscription_set=tuple(core.subscriptions[topic] for topic in sorted(core.subscriptions)),
            mq_table={queue: self.queue_info(one) for queue, one in requests.items() if isinstance(one, PullRequest)},
            mq_pop_table={
                queue: pop_queue_info(one.process_queue, core.clock)
                for queue, one in requests.items()
                if isinstance(one, PopRequest)
            },
            status_table={topic: core.stats.status(topic, now) for topic in sorted(core.subscriptions)},
            user_consumer_info={},
        )

    def queue_info(self, request: PullRequest) -> ProcessQueueInfo:
        """One queue that is pulled."""
        core = self._core
        return queue_info(request.process_queue, core.offsets.read_memory(request.queue), core.clock)

    def offsets_of(self, topic: str) -> Mapping[MessageQueue, int]:
        """The offsets of a topic in memory."""
        return self._core.offsets.snapshot(topic)

    async def consume_directly(self, message: ReceivedMessage, broker_name: str) -> ConsumeMessageDirectlyResult | None:
        """Give one message to the listener and tell what it said."""
        if self._direct is None:
            core = self._core
            assert core.listener is not None
            self._direct = DirectConsumption(core, core.listener, self._listener_loop())
        return await self._direct.consume(message, broker_name)

    def _listener_loop(self) -> asyncio.AbstractEventLoop | None:
        """Where an `async` listener runs as usual: what it holds (connections, locks) belongs to that loop."""
        core = self._core
        popped = any(isinstance(request, PopRequest) for request in core.rebalancer.requests.values())
        pool: object = core.popper.consumption.pool if popped else core.consumption.pool
        return pool.loop if isinstance(pool, LoopWorkers) else core.listener_loop

    async def end(self, timeout: float) -> bool:
        """Let a listener end that an operator had called; False if one still runs after `timeout` seconds."""
        return self._direct is None or await self._direct.stop(timeout)
