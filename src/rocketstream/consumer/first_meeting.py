"""What a consumer and its brokers say to each other before it consumes (START-09): routes, filters, heartbeat, queues.

The rule of this file: what would keep the consumer from receiving anything is raised here, in words that say why.
Java's consumer starts all the same, and stays silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstream.cluster.names import retry_topic
from rocketstream.cluster.projects import project_of
from rocketstream.consumer.rebalance_service import MIN_PAUSE
from rocketstream.errors import ClientStateError

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore


async def meet_the_brokers(core: ConsumerCore) -> None:
    """Have routes, checked expressions, a heartbeat that was taken and the first share of queues; or raise."""
    instance = core.instance
    await instance.name_servers.check(core.settings.api_timeout)
    ip = core.client_id.partition("@")[0].strip("[]")
    core.names.set_project(await project_of(instance.name_servers, ip, core.settings.api_timeout))
    retries = retry_topic(core.group)
    for topic in core.subscriptions:
        if topic != retries:
            await instance.routes.refresh(topic)
    if core.retries:
        await instance.routes.refresh_all([retries])
    await core.subscribing.check(core.subscriptions.values())
    await core.overview.compare()
    taken = await instance.heartbeat()
    refusal = instance.refusal(core.subscriptions)
    if refusal is not None:
        raise refusal
    if not taken and core.subscriptions:
        known = ", ".join(f"{broker.broker_name} ({broker.address})" for broker in instance.brokers)
        raise ClientStateError(
            f"{core.what} cannot start: no broker of its topics took its heartbeat: {known or 'none known'}"
        )
    balanced = await core.rebalance()
    for refusal in core.rebalancer.denied.values():
        raise refusal
    problems = {topic: why for topic, why in core.rebalancer.problems.items() if topic != retries}
    if problems:
        told = "; ".join(f"topic {core.names.shown_topic(topic)!r}: {why}" for topic, why in problems.items())
        raise ClientStateError(f"{core.what} cannot start: its queues could not be shared out: {told}")
    if not balanced:
        # REB-01: a lock was refused, or an offset is not known yet. Brokers mostly tell a new member of itself, which
        # brings another pass too; but a group may have that turned off (notifyConsumerIdsChangedEnable).
        core.clock.call_later(MIN_PAUSE, core.rebalance_soon)
