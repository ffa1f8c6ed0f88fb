"""Whether a topic is pulled or popped, and who says which queues are whose (PULL-22, REB-11).

The rule of this file: what is popped goes on being popped until a broker says otherwise; a broker that does not answer
changes nothing. Brokers of 5.x are asked each time queues are shared out, one small request per topic: an operator may
set a group to POP, or back, at any time, and nobody tells the clients.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.cluster.versions import V5_0_0
from rocketstream.consumer.allocation import AllocateAveragely, AllocateAveragelyByCircle
from rocketstream.consumer.assignment import Assignment, broker_side
from rocketstream.errors import ClientStateError, RocketStreamError
from rocketstream.wire.check_point import pop_retry_topic, pop_retry_topic_v2
from rocketstream.wire.codes import MessageRequestMode

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

log = logging.getLogger("rocketstream.consumer")

# The strategies that brokers have too; asked for any other, they assign nothing.
_AT_BROKERS = (AllocateAveragely.name, AllocateAveragelyByCircle.name)


class RequestModes:
    """The modes of one consumer's topics."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._modes: dict[str, MessageRequestMode] = {}
        self._retry_topics: dict[str, str] = {}
        self._once_popped: set[str] = set()
        self._told = False

    def __repr__(self) -> str:
        popped = sorted(topic for topic, mode in self._modes.items() if mode is MessageRequestMode.POP)
        return f"<RequestModes of group {self._core.group}, popped: {', '.join(popped) or 'none'}>"

    # --- who says which queues are ours -----------------------------------------------------------------------------

    async def assignment(self, topic: str) -> Assignment | None:
        """What the broker assigns, if the client wants it so or the group is popped; None: reckon for ourselves."""
        core, settings = self._core, self._core.consumer
        strategy = settings.allocate_strategy.name
        asked_for = not settings.client_rebalance and strategy in _AT_BROKERS
        route = await core.instance.routes.get(topic)
        if route.leaders:
            # Brokers assign the queues that they have, not a static topic's logical ones: half of it would be nobody's.
            log.log(
                logging.INFO if asked_for else logging.DEBUG,
                "static topic %r is pulled, and shared out by the members of group %s",
                topic,
                core.group,
            )
            return None
        if not self._can_be_asked(route.brokers) or (topic.startswith(RETRY_PREFIX) and not asked_for):
            if asked_for and not self._told:
                self._told = True
                log.warning(
                    "the queues of group %s are shared out by its members: no broker of 5.x is there", core.group
                )
            return None
        try:
            given = await broker_side(
                core.instance,
                topic,
                core.group,
                core.client_id,
                strategy if asked_for else AllocateAveragely.name,
                route.read_queues,
            )
            if given is None:
                core.heartbeat_soon()
                raise ClientStateError(f"no broker knows the members of group {core.group} or topic {topic!r} yet")
        except RocketStreamError as error:
            if self._modes.get(topic) is MessageRequestMode.POP:
                raise
            log.log(
                logging.WARNING if asked_for else logging.DEBUG,
                "topic %r is shared out by its members, its brokers do not do it: %s",
                topic,
                error,
            )
            return None
        popped = any(mode is MessageRequestMode.POP for mode in given.queues.values())
        return given if popped or asked_for else None

    def _can_be_asked(self, names: Iterable[str]) -> bool:
        masters = filter(None, map(self._core.instance.brokers.master, names))
        return any(broker.version is not None and broker.version >= V5_0_0 for broker in masters)

    # --- what a change of the mode takes ----------------------------------------------------------------------------

    async def follow(self, topic: str, modes: Iterable[MessageRequestMode]) -> None:
        """Note how a topic's messages are had now.

        What was popped and not acknowledged waits in a retry topic of its own, which pops read by themselves. Where the
        group pulls (again), somebody has to pull that one too.
        """
        found = set(modes)
        if topic.startswith(RETRY_PREFIX) or not found:
            return
        mode = MessageRequestMode.POP if MessageRequestMode.POP in found else MessageRequestMode.PULL
        before = self._modes.get(topic)
        if mode is before:
            if topic in self._once_popped:  # a broker makes the newer one when the first message is to come again
                await self._pull_newer(topic)
            return
        self._modes[topic] = mode
        core = self._core
        old, newer = pop_retry_topic(topic, core.group), pop_retry_topic_v2(topic, core.group)
        if mode is MessageRequestMode.POP:
            log.info("group %s pops topic %r", core.group, topic)
            self._once_popped.discard(topic)
            for retry in (old, newer):
                self._retry_topics.pop(retry, None)
                core.subscriptions.pop(retry, None)
            return
        if before is not None:
            self._once_popped.add(topic)
        if before is not None or await self._exists(topic, old):
            log.info("group %s pulls topic %r, and what it popped and did not acknowledge", core.group, topic)
            self._pull_retries(old, topic)
        await self._pull_newer(topic)

    def _pull_retries(self, retry: str, topic: str) -> None:
        self._retry_topics[retry] = topic
        self._core.subscribing.put_retry(retry)

    async def _pull_newer(self, topic: str) -> None:
        """Only brokers with enableRetryTopicV2 have that topic. (Java's client leaves what lies there alone.)"""
        newer = pop_retry_topic_v2(topic, self._core.group)
        if newer not in self._retry_topics and await self._exists(topic, newer):
            self._pull_retries(newer, topic)

    async def _exists(self, topic: str, retry: str) -> bool:
        route = self._core.instance.routes.cached(topic)
        if route is None or not self._can_be_asked(route.brokers):
            return False
        try:
            await self._core.instance.routes.refresh(retry)
        except RocketStreamError:
            return False
        return True

    def forget_unsubscribed(self) -> None:
        """What belongs to a topic goes with its subscription."""
        subscriptions = self._core.subscriptions
        for retry, topic in list(self._retry_topics.items()):
            if topic not in subscriptions:
                del self._retry_topics[retry]
                subscriptions.pop(retry, None)
        for topic in [topic for topic in self._modes if topic not in subscriptions]:
            del self._modes[topic]
            self._once_popped.discard(topic)
