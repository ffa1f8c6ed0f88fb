"""Which broker a queue is pulled from: the user's choice, or what the queue's last answer suggested (PULL-16, RES-01).

The rule of this file: it remembers suggestions and finds addresses; it sends nothing.
"""

from __future__ import annotations

import random

from rocketstream.cluster.brokers import MASTER_ID, BrokerAddress
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.errors import BrokerNotFoundError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.subscription import SubscriptionData


class PullTargets:
    """Where one consumer's queues are pulled from."""

    def __init__(self, instance: ClientInstance, chosen_by_user: int | None) -> None:
        self._instance = instance
        self._chosen = chosen_by_user
        self._suggested: dict[MessageQueue, int] = {}

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

    def at_hand(self, queue: MessageQueue) -> BrokerAddress | None:
        """The broker, if nobody has to be asked for its address."""
        return self._instance.brokers.find(queue.broker_name, self.broker_id_of(queue))

    async def find(self, queue: MessageQueue, sub: SubscriptionData) -> tuple[BrokerAddress, str]:
        """The broker, after a look at the route if need be, and the address to ask: its own or a filter server's."""
        broker = await self._instance.routes.broker(queue.topic, queue.broker_name, self.broker_id_of(queue))
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
