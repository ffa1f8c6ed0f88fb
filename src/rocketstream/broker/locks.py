"""Locks on queues: orderly consumers hold one for each queue that they consume, and renew it before it runs out.

RocketMQ's rule (`RebalanceLockManager`): a lock belongs to a client id of a group; who holds it renews it by asking
again; anybody gets it once it has expired; only its holder gives it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.settings import BrokerSettings
from rocketstream.clock import Clock
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response


@dataclass(slots=True)
class QueueLock:
    """Who holds a queue, and since when without having asked again."""

    client_id: str
    renewed: float


class Locks:
    """The locks of all groups."""

    def __init__(self, *, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, QueueLock]] = {}

    def __repr__(self) -> str:
        return f"<Locks {sum(map(len, self._groups.values()))} of {len(self._groups)} groups>"

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> frozenset[MessageQueue]:
        """The queues of these that the client holds now."""
        held = self._groups.setdefault(group, {})
        now = self._clock.monotonic()
        got = []
        for queue in queues:
            lock = held.get(queue)
            if lock is None or lock.client_id == client_id or self._expired(lock, now):
                held[queue] = QueueLock(client_id, now)
                got.append(queue)
        return frozenset(got)

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give back those of these queues that the client holds."""
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]

    def all_expired(self, group: str) -> bool:
        """Whether nobody holds a queue of the group."""
        now = self._clock.monotonic()
        return all(self._expired(lock, now) for lock in self._groups.get(group, {}).values())

    def _expired(self, lock: QueueLock, now: float) -> bool:
        return now - lock.renewed > self._settings.lock_expiry

    # --- as a service -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Nothing runs by itself: a lock that has expired is noticed by who wants it."""

    def stop(self) -> None:
        """Locks are not kept."""

    def handlers(self) -> Mapping[int, Handler]:
        """Lock and unlock."""
        return {RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock}

    def _lock(self, connection: ClientConnection, command: Command) -> Command:
        wanted = LockBatchRequestBody.decode(command.body)
        got = self.lock(wanted.consumer_group, wanted.mq_set, wanted.client_id)
        return response(command, ResponseCode.SUCCESS, body=LockBatchResponseBody(lock_ok_mq_set=got).encode())

    def _unlock(self, connection: ClientConnection, command: Command) -> Command:
        wanted = UnlockBatchRequestBody.decode(command.body)
        self.unlock(wanted.consumer_group, wanted.mq_set, wanted.client_id)
        return response(command, ResponseCode.SUCCESS)
