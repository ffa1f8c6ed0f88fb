"""The requests about popping: POP_MESSAGE, NOTIFICATION, POLLING_INFO, PEEK_MESSAGE, and those about leases."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Mapping
from typing import Final

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Dispatcher, Handler
from rocketstream.broker.filters import ExpressionError, expression_match, is_tag_type
from rocketstream.broker.groups import Groups
from rocketstream.broker.intake import Intake
from rocketstream.broker.offsets import Offsets
from rocketstream.broker.periodic import Periodic
from rocketstream.broker.pop.acknowledging import Acknowledging
from rocketstream.broker.pop.checks import readable_broker, readable_topic
from rocketstream.broker.pop.lease import Lease
from rocketstream.broker.pop.lease_log import LeaseLog
from rocketstream.broker.pop.leases import Leases
from rocketstream.broker.pop.looking import Looking
from rocketstream.broker.pop.ordering import Ordering, OrderKey
from rocketstream.broker.pop.revival import Revival
from rocketstream.broker.pop.taking import Taken, Taking
from rocketstream.broker.pop.waiting import Held, Waiters
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.store.values import Match, MessageStore
from rocketstream.broker.topics import Topics
from rocketstream.clock import Clock, SystemClock
from rocketstream.wire.bodies.topic import TopicConfig
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader

MAX_MESSAGES: Final = 32
#: A pop that arrives so many milliseconds after its poll time is not served: nobody waits for it.
_TOO_LATE_MS: Final = 500


class Pop:
    """Pops, and everything that belongs to them."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        state: StateFiles,
        store: MessageStore,
        dispatcher: Dispatcher,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        intake: Intake,
        chance: random.Random | None = None,
    ) -> None:
        self._settings, self._clock, self._store = settings, clock, store
        self._topics, self._groups = topics, groups
        # Without a directory nothing survives anyway, so nothing is written.
        self._log = None if settings.data is None else LeaseLog(settings=settings, state=state, store=store)
        self._waiters = Waiters(clock=clock, read=store.record)
        self.leases = Leases(clock=clock, log=self._log, ended=self._ended)
        self._ordering = Ordering(clock=clock, state=state, freed=self._freed)
        self._taking = Taking(
            settings=settings,
            store=store,
            topics=topics,
            offsets=offsets,
            leases=self.leases,
            ordering=self._ordering,
            chance=chance or random.Random(),
        )
        self._revival = Revival(
            settings=settings,
            store=store,
            intake=intake,
            topics=topics,
            groups=groups,
            offsets=offsets,
            leases=self.leases,
        )
        self._acknowledging = Acknowledging(
            clock=clock,
            store=store,
            topics=topics,
            offsets=offsets,
            leases=self.leases,
            ordering=self._ordering,
            freed=self._freed,
        )
        self._looking = Looking(
            settings=settings,
            clock=clock,
            store=store,
            topics=topics,
            groups=groups,
            taking=self._taking,
            ordering=self._ordering,
            pops=self._waiters,
        )
        self._persist = Periodic(clock, lambda: settings.persist_interval, self._save)
        store.appended += [self._waiters.arrived, self._looking.waiters.arrived]
        dispatcher.when_closed += [self._waiters.forget, self._looking.waiters.forget]

    def __repr__(self) -> str:
        return f"<Pop {self.leases!r} {self._waiters!r}>"

    # --- as a service --------------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[int, Handler]:
        """The requests about popping."""
        return {
            RequestCode.POP_MESSAGE: self._pop,
            **self._acknowledging.handlers(),
            **self._looking.handlers(),
        }

    def start(self) -> None:
        """Take over what was out before."""
        self._ordering.load()
        if self._log is not None:
            for lease in self._log.open_leases():
                self.leases.restore(lease)
        self._persist.start()

    def stop(self) -> None:
        """Let nobody wait any more, and save what is out."""
        self._persist.stop()
        self._waiters.stop()
        self._looking.waiters.stop()
        self.leases.stop()
        self._ordering.stop()
        self._save()

    def _save(self) -> None:
        self._ordering.save(self._is_there)
        if self._log is not None:
            self._log.save_start(self.leases, self.leases.last_position)

    def _is_there(self, key: OrderKey) -> bool:
        config = self._topics.get(key.topic)
        return config is not None and key.queue_id < config.read_queue_nums and key.group in self._groups

    def _ended(self, lease: Lease) -> None:
        self._revival.end(lease)

    def _freed(self, key: OrderKey) -> None:
        self._waiters.wake_group(*key)
        self._looking.waiters.wake_group(*key)

    # --- popping -------------------------------------------------------------------------------------------------

    def _pop(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command | None]:
        fields = command.fields
        arrived = self._clock.wall_ms()
        if fields.get("bornTime", "0") == "0":
            fields["bornTime"] = str(arrived)
        wanted = PopMessageRequestHeader.from_fields(fields)
        # A clock that is moved by hand is not the client's: what it says of time is no measure.
        born = wanted.born_time if isinstance(self._clock, SystemClock) else arrived
        if arrived - born - wanted.poll_time > _TOO_LATE_MS:
            raise Refusal(
                ResponseCode.POLLING_TIMEOUT, f"the broker[{self._settings.host}] pop message is timeout too much"
            )
        readable_broker(self._settings, "pop")
        if wanted.max_msg_nums > MAX_MESSAGES:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{self._settings.host}] pop message's num is greater than {MAX_MESSAGES}",
            )
        topic = readable_topic(
            self._topics, self._groups, wanted.topic, wanted.consumer_group, wanted.queue_id, connection.address
        )
        match = self._match(wanted)
        taken = self._taking.take(wanted, topic, match, arrived)
        waiting = self._taking.settle(taken)
        if taken.count and waiting is None:
            return self._found(command, wanted, taken)
        return self._finish(connection, command, wanted, match, born, taken, waiting)

    async def _finish(
        self,
        connection: ClientConnection,
        command: Command,
        wanted: PopMessageRequestHeader,
        match: Match | None,
        born: int,
        taken: Taken,
        waiting: Awaitable[None] | None,
    ) -> Command | None:
        """Wait for leases to be safe, or for a message to come."""
        place = (wanted.topic, wanted.consumer_group, wanted.queue_id)
        while True:
            if waiting is not None:
                await waiting
            if taken.count:
                return self._found(command, wanted, taken)
            if wanted.poll_time <= 0:
                return self._nothing(command, wanted, taken, ResponseCode.POLLING_TIMEOUT)
            woken = self._waiters.hold(place, connection, born + wanted.poll_time, match)
            if woken is Held.FULL:
                return self._nothing(command, wanted, taken, ResponseCode.POLLING_FULL)
            if woken is Held.TIME_IS_OVER:
                return self._nothing(command, wanted, taken, ResponseCode.POLLING_TIMEOUT)
            if taken.rest > 0:
                self._waiters.wake(place)
            if not await woken:
                return None
            topic = self._topics.get(wanted.topic) or TopicConfig(topic_name=wanted.topic, read_queue_nums=0)
            taken = self._taking.take(wanted, topic, match, self._clock.wall_ms())
            waiting = self._taking.settle(taken)

    def _match(self, wanted: PopMessageRequestHeader) -> Match | None:
        if not wanted.exp:
            return None
        try:
            if not is_tag_type(wanted.exp_type) and not self._settings.sql_filter:
                raise ExpressionError(f"this broker does not take {wanted.exp_type} expressions")
            return expression_match(wanted.exp, wanted.exp_type)
        except ExpressionError as error:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
            ) from None

    # --- answers -------------------------------------------------------------------------------------------------

    def _found(self, command: Command, wanted: PopMessageRequestHeader, taken: Taken) -> Command:
        if taken.rest > 0:
            self._waiters.wake((wanted.topic, wanted.consumer_group, wanted.queue_id))
        header = _header(wanted, taken)
        return response(command, ResponseCode.SUCCESS, "FOUND", header, b"".join(taken.pieces))

    def _nothing(self, command: Command, wanted: PopMessageRequestHeader, taken: Taken, code: ResponseCode) -> Command:
        return response(command, code, "NO_MESSAGE_IN_QUEUE", _header(wanted, taken))


def _header(wanted: PopMessageRequestHeader, taken: Taken) -> PopMessageResponseHeader:
    return PopMessageResponseHeader(
        pop_time=taken.pop_time,
        invisible_time=wanted.invisible_time,
        revive_qid=taken.revive_queue_id,
        rest_num=taken.rest,
        start_offset_info=";".join(taken.starts),
        msg_offset_info=";".join(taken.offsets),
        order_count_info=";".join(taken.order_counts) if wanted.order else None,
    )
