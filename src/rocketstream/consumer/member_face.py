"""What every face of a consumer has, push or lite pull, plain or `aio`: who it is, and the check of a subscription."""

from __future__ import annotations

from collections.abc import Mapping

from rocketstream.cluster.client import BoundToProcess, ClientState
from rocketstream.cluster.names import check_topic, check_wrapped_topic
from rocketstream.consumer.core import ConsumerCore
from rocketstream.consumer.expressions import Sql, Tag, subscription_to


class MemberFace(BoundToProcess):
    """A member of a group, as its users see it."""

    _core: ConsumerCore

    @property
    def core(self) -> ConsumerCore:
        """What lives on the I/O thread (for the faces and for tests)."""
        return self._core

    @property
    def group(self) -> str:
        """Its group, as it was given."""
        return self._core.consumer.group

    @property
    def state(self) -> ClientState:
        """Where it is in its life."""
        return self._core.state

    @property
    def client_id(self) -> str:
        """How brokers know this member of the group."""
        return self._core.client_id

    @property
    def metrics(self) -> Mapping[str, Mapping[str, int]]:
        """What was pulled, consumed, sent back, ... so far, per topic (`docs/howto-metrics.md`)."""
        return self._core.stats.metrics()

    def _check_topic(self, topic: str, expression: str | Tag | Sql) -> None:
        """Refuse a wrong subscription now, where the user can see it."""
        self._core.check_process()
        check_topic(topic)
        namespace = self._core.consumer.namespace
        if namespace:
            check_wrapped_topic(namespace, topic)
        subscription_to(topic, expression, 0)
