"""What a consumer subscribes to, and that brokers hear of it.

The rule of this file: each change of a subscription has a higher version, and a broker refuses pulls of a version that
it has not heard of. So a version is announced before it is pulled with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketstream.cluster.names import with_namespace
from rocketstream.consumer.checks import check_filters
from rocketstream.consumer.expressions import Sql, Tag, subscription_to
from rocketstream.wire.bodies.subscription import SubscriptionData

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore


class Subscribing:
    """Keeps `ConsumerCore.subscriptions`."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._announced: dict[str, SubscriptionData] = {}
        """New versions of some subscriptions, which the brokers are being told of."""

    def heartbeat_data(self) -> tuple[SubscriptionData, ...]:
        """What the brokers are told: the newest versions."""
        return tuple(self._announced.get(topic, sub) for topic, sub in self._core.subscriptions.items())

    def before_start(self, topic: str, expression: str | Tag | Sql) -> None:
        """Subscribe before the start; after it `subscribe` does more."""
        self.put(with_namespace(self._core.consumer.namespace, topic), expression)

    def put(self, topic: str, expression: str | Tag | Sql) -> None:
        """Set the subscription to a topic, by the name that brokers know; they are not told yet."""
        core = self._core
        old = self._announced.pop(topic, None) or core.subscriptions.get(topic)
        version = core.clock.wall_ms() if core.has_instance else 0
        core.subscriptions[topic] = subscription_to(topic, expression, max(version, old.sub_version + 1 if old else 0))

    def put_retry(self, topic: str) -> None:
        """Subscribe to a retry topic, whose queues come with the next rebalance."""
        self.put(topic, "*")
        self._core.rebalance_soon()

    async def subscribe(self, topic: str, expression: str | Tag | Sql) -> None:
        """Subscribe to a topic; a running consumer gets its queues soon."""
        core = self._core
        if not core.is_running:
            self.before_start(topic, expression)
            return
        name = with_namespace(core.consumer.namespace, topic)
        wanted = subscription_to(name, expression, core.clock.wall_ms())
        await core.instance.routes.refresh(name)
        await self.check([wanted])
        self.put(name, expression)
        await core.instance.heartbeat()
        core.rebalance_soon()

    async def unsubscribe(self, topic: str) -> None:
        """End a subscription; a running consumer gives its queues away soon."""
        core = self._core
        name = with_namespace(core.consumer.namespace, topic)
        if core.subscriptions.pop(name, None) is not None and core.is_running:
            await core.instance.heartbeat()
            core.rebalance_soon()

    async def check(self, subscriptions: Iterable[SubscriptionData]) -> None:
        """Have filters checked by brokers, who say what is wrong (START-09)."""
        core = self._core
        await check_filters(core.instance, core.client_id, core.group, core.consumer.namespace, subscriptions)

    async def announce(self, topic: str) -> None:
        """REB-09: the brokers are told a new version of a subscription whose queues have changed."""
        subscriptions = self._core.subscriptions
        sub = subscriptions.get(topic)
        if sub is not None:
            version = max(self._core.clock.wall_ms(), sub.sub_version + 1)
            self._announced[topic] = replace(sub, sub_version=version)
        await self._core.instance.heartbeat()
        # Not before: queues whose pulls a broker refuses would wait for 3 s.
        announced = self._announced.pop(topic, None)
        if announced is not None and subscriptions.get(topic) is sub:
            subscriptions[topic] = announced
