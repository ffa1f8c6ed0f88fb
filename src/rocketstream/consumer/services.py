"""What the consumers of one client instance share: the pull service, the rebalance service, the inner producer.

They are started with the instance, in this order (START-12). Here also arrive the brokers' requests to consumers.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.members import Service, ServiceOrder
from rocketstream.consumer.inner_producer import InnerProducer
from rocketstream.consumer.pull_service import PullService
from rocketstream.consumer.questions import OperatorQuestions
from rocketstream.consumer.rebalance_service import RebalanceService
from rocketstream.wire.bodies.offsets import ResetOffsetBody
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.group import NotifyConsumerIdsChangedRequestHeader
from rocketstream.wire.headers.offsets import ResetOffsetRequestHeader

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

log = logging.getLogger("rocketstream.consumer")

# Weak both ways, for the services know their instance; its processors keep them alive as long as it is.
_by_instance: WeakKeyDictionary[ClientInstance, ref[ConsumerServices]] = WeakKeyDictionary()


class ConsumerServices:
    """The services, and the consumers that use them."""

    def __init__(self, instance: ClientInstance, rebalance_interval: float) -> None:
        self._consumers: dict[str, ConsumerCore] = {}
        self._loop = asyncio.get_running_loop()
        self.pull = PullService(instance.clock, self._consumers.get)
        self.rebalance = RebalanceService(instance.clock, rebalance_interval, self._consumers.values)
        self.inner_producer = InnerProducer(instance)
        self.questions = OperatorQuestions(instance)
        register = instance.remoting.register_processor
        register(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
        register(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset_offset)

    def in_order(self) -> list[tuple[ServiceOrder, Service]]:
        """The services with their places in the start."""
        return [
            (ServiceOrder.PULL, self.pull),
            (ServiceOrder.REBALANCE, self.rebalance),
            (ServiceOrder.INNER_PRODUCER, self.inner_producer),
        ]

    def join(self, consumer: ConsumerCore) -> None:
        """A consumer has registered at the instance."""
        self._consumers[consumer.group] = consumer
        self.questions.join(consumer.answers)

    def leave(self, consumer: ConsumerCore) -> None:
        """A consumer has gone."""
        self.questions.leave(consumer.answers)
        if self._consumers.get(consumer.group) is consumer:
            del self._consumers[consumer.group]

    # --- what brokers ask; on a processor's thread ------------------------------------------------------------------

    def _members_changed(self, address: str, command: Command) -> None:
        header = NotifyConsumerIdsChangedRequestHeader.from_fields(command.fields)
        log.info("%s says that the members of group %s have changed", address, header.consumer_group)
        self._loop.call_soon_threadsafe(self._begin_anew, header.consumer_group)

    def _begin_anew(self, group: str) -> None:
        consumer = self._consumers.get(group)
        if consumer is not None:
            consumer.rebalancer.members_changed()
        self.rebalance.wake()

    def _reset_offset(self, address: str, command: Command) -> Command | None:
        header = ResetOffsetRequestHeader.from_fields(command.fields)
        offsets = dict(ResetOffsetBody.decode(command.body).offset_table)
        log.warning("%s asks group %s to reset %d queues of %r", address, header.group, len(offsets), header.topic)
        consumer = self._consumers.get(header.group)
        if consumer is None:
            return response(command, ResponseCode.SYSTEM_ERROR, f"this client has no consumer of group {header.group}")
        self._loop.call_soon_threadsafe(consumer.resets.begin, header.topic, offsets)
        return response(command, ResponseCode.SUCCESS)


async def consumer_services(instance: ClientInstance, rebalance_interval: float) -> ConsumerServices:
    """The consumer services of an instance, made with its first consumer."""
    known = _by_instance.get(instance)
    services = known() if known is not None else None
    if services is None:
        services = ConsumerServices(instance, rebalance_interval)
        _by_instance[instance] = ref(services)
    await instance.ensure_services("consumer", services.in_order)
    return services
