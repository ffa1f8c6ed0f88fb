"""Which broker a queue is pulled from: the user's choice, or what the queue's last answer suggested (PULL-16, RES-01).

The rule of this file: it remembers suggestions and finds addresses; it sends nothing.
"""

from __future__ import annotations

import random
from typing import Final

from rocketstream.cluster.brokers import MASTER_ID, BrokerAddress
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.errors import BrokerError, BrokerNotFoundError, RemotingError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import ResponseCode

_LOOK_INTERVAL: Final = 3.0


class PullTargets:
    """Where one consumer's queues are pulled from."""

    def __init__(self, instance: ClientInstance, chosen_by_user: int | None) -> None:
        self._instance = instance
        self._chosen = chosen_by_user
        self._suggested: dict[MessageQueue, int] = {}
        self._next_look: dict[str, float] = {}

    def __repr__(self) -> str:
        elsewhere = {str(queue): broker for queue, broker in self._suggested.items() if broker != MASTER_ID}
        return f"<PullTargets chosen by the user: {self._chosen}, not at their masters: {elsewhere}>"

    def broker_id_of(self, queue: MessageQueue) -> int:
        """Which broker of its name a queue is pulled from."""
        return self._suggested.get(queue, MASTER_ID) if self._chosen is None else self._chosen

    def suggest(self, queue: MessageQueue, broker_id: int) -> None:
        """An answer named the broker for the next pull."""
        self._suggested[queue] = broker_id

    def forget(self, queue: MessageQueue) -> None:
        """A queue was lost: what its broker suggested means nothing any more."""
        self._suggested.pop(queue, None)

    def failed(self, queue: MessageQueue, error: Exception, now: float) -> bool:
        """A pull failed: its slave is not asked again unless it is suggested again. Tell whether to look at the route.

        Who cannot be reached may have left a slave, or its queues to another; Java waits for its next regular look, up
        to 30 s. Many queues fail together: one look per topic and moment will do.
        """
        self.forget(queue)
        moved = isinstance(error, BrokerError) and error.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        if not (moved or isinstance(error, RemotingError)) or now < self._next_look.get(queue.topic, now):
            return False
        self._next_look[queue.topic] = now + _LOOK_INTERVAL
        return True

    def slave_of(self, queue: MessageQueue) -> str | None:
        """The address of the slave that the next pull of a queue goes to; None if it goes to the master."""
        broker = self.at_hand(queue)
        return broker.address if broker is not None and broker.is_slave else None

    def at_hand(self, queue: MessageQueue) -> BrokerAddress | None:
        """The broker, if nobody has to be asked for its address."""
        name = self._instance.routes.broker_name_of(queue)
        return self._instance.brokers.find(name, self.broker_id_of(queue))

    async def find(self, queue: MessageQueue, sub: SubscriptionData) -> tuple[BrokerAddress, str]:
        """The broker, after a look at the route if need be, and the address to ask: its own or a filter server's."""
        broker = await self._instance.routes.broker_of(queue, self.broker_id_of(queue))
        address = self.filter_server(queue.topic, broker.address) if sub.class_filter_mode else broker.address
        return broker, address

    def filter_server(self, topic: str, address: str) -> str:
        """A random filter server of a broker, for subscriptions that filter by a class there (PULL-18)."""
        route = self._instance.routes.cached(topic)
        servers = route.filter_servers.get(address, ()) if route is not None else ()
        if not servers:
            raise BrokerNotFoundError(
                f"the subscription to topic {topic!r} filters by a class, but broker {address} has no filter server"
            )
        return random.choice(servers)
