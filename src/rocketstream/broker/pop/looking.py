"""Looking without popping: NOTIFICATION, POLLING_INFO, PEEK_MESSAGE."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Iterator, Mapping

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.groups import Groups
from rocketstream.broker.pop.checks import NO_REMARK, readable_broker, readable_topic
from rocketstream.broker.pop.ordering import Ordering, OrderKey
from rocketstream.broker.pop.retry_topics import retry_topics
from rocketstream.broker.pop.taking import Taking
from rocketstream.broker.pop.waiting import Held, Waiters
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import MessageStore, ReadStatus
from rocketstream.broker.topics import Topics
from rocketstream.clock import Clock, SystemClock
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)


class Looking:
    """Tells whether a pop would get something, and what."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        taking: Taking,
        ordering: Ordering,
        pops: Waiters,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._topics = topics
        self._groups = groups
        self._taking = taking
        self._ordering = ordering
        self._pops = pops
        self._chance = random.Random()
        self.waiters = Waiters(clock=clock, read=store.record, last_first=True)

    def handlers(self) -> Mapping[int, Handler]:
        """The requests that it answers."""
        return {
            RequestCode.NOTIFICATION: self._notification,
            RequestCode.POLLING_INFO: self._polling_info,
            RequestCode.PEEK_MESSAGE: self._peek,
        }

    def _check(
        self,
        wanted: NotificationRequestHeader | PollingInfoRequestHeader | PeekMessageRequestHeader,
        connection: ClientConnection,
    ) -> None:
        readable_broker(self._settings, "peeking")
        readable_topic(
            self._topics, self._groups, wanted.topic, wanted.consumer_group, wanted.queue_id, connection.address
        )

    # --- is there something? -------------------------------------------------------------------------------------

    def _notification(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command | None]:
        arrived = self._clock.wall_ms()
        if command.fields.get("bornTime", "0") == "0":
            command.fields["bornTime"] = str(arrived)
        wanted = NotificationRequestHeader.from_fields(command.fields)
        self._check(wanted, connection)
        if self._has_message(wanted):
            return _told(command, has_message=True)
        if wanted.poll_time <= 0:
            return _told(command, has_message=False)
        born = wanted.born_time if isinstance(self._clock, SystemClock) else arrived
        return self._wait(connection, command, wanted, born)

    async def _wait(
        self, connection: ClientConnection, command: Command, wanted: NotificationRequestHeader, born: int
    ) -> Command | None:
        place = (wanted.topic, wanted.consumer_group, wanted.queue_id)
        while True:
            woken = self.waiters.hold(place, connection, born + wanted.poll_time)
            if isinstance(woken, Held):
                return _told(command, has_message=False, full=woken is Held.FULL)
            if not await woken:
                return None
            if self._has_message(wanted):
                return _told(command, has_message=True)

    def _has_message(self, wanted: NotificationRequestHeader) -> bool:
        for key in self._places(wanted.topic, wanted.consumer_group, wanted.queue_id):
            own = OrderKey(wanted.topic, key.group, key.queue_id)
            if wanted.order and self._ordering.is_blocked(own, wanted.attempt_id, 0):
                continue
            if self._store.max_offset(key.topic, key.queue_id) > self._taking.place_seen(key):
                return True
        return False

    def _places(self, topic: str, group: str, queue_id: int) -> Iterator[OrderKey]:
        """The queues that a pop reads: the topic's, from a random one on, and its retry topic's."""
        names = (topic, *retry_topics(topic, group, self._settings))
        for name in names:
            config = self._topics.get(name)
            if config is None:
                continue
            if name == topic and queue_id >= 0:
                yield OrderKey(topic, group, queue_id)
                continue
            dice, queues = self._chance.randrange(100), config.read_queue_nums
            for number in range(queues):
                yield OrderKey(name, group, (dice + number) % queues)

    # --- who waits? ----------------------------------------------------------------------------------------------

    def _polling_info(self, connection: ClientConnection, command: Command) -> Command:
        wanted = PollingInfoRequestHeader.from_fields(command.fields)
        self._check(wanted, connection)
        waiting = self._pops.count(wanted.topic, wanted.consumer_group, wanted.queue_id)
        return response(command, ResponseCode.SUCCESS, NO_REMARK, PollingInfoResponseHeader(polling_num=waiting))

    # --- what is there? ------------------------------------------------------------------------------------------

    def _peek(self, connection: ClientConnection, command: Command) -> Command:
        wanted = PeekMessageRequestHeader.from_fields(command.fields)
        self._check(wanted, connection)
        pieces: list[bytes | memoryview] = []
        found = rest = 0
        for key in self._places(wanted.topic, wanted.consumer_group, wanted.queue_id):
            offset = self._taking.place_seen(key)
            rest += self._store.max_offset(key.topic, key.queue_id) - offset
            left = wanted.max_msg_nums - found
            if left <= 0:
                continue
            reading = self._store.read(key.topic, key.queue_id, offset, left, self._settings.max_pull_bytes)
            if reading.status in (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY):
                offset = reading.next_offset
                reading = self._store.read(key.topic, key.queue_id, offset, left, self._settings.max_pull_bytes)
            pieces += reading.records
            found += reading.found
        header = PopMessageResponseHeader(pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest)
        if not found:
            return response(command, ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", header)
        return response(command, ResponseCode.SUCCESS, "FOUND", header, b"".join(pieces))


def _told(command: Command, *, has_message: bool, full: bool = False) -> Command:
    header = NotificationResponseHeader(has_msg=has_message, polling_full=full)
    return response(command, ResponseCode.SUCCESS, NO_REMARK, header)
