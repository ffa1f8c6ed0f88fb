"""Transactions: half messages, their end, and the question to their producers when no end comes.

A half message is kept in RMQ_SYS_TRANS_HALF_TOPIC; its end is noted in RMQ_SYS_TRANS_OP_HALF_TOPIC. In memory are the
offsets of those half messages that have no end yet; a start finds them again in the two queues. Whoever is asked about
is put behind the others first, so its offset changes; an end that names the old offset counts for the new one, too.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from rocketstream.broker import half_messages
from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.intake import Intake
from rocketstream.broker.members import Members
from rocketstream.broker.names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from rocketstream.broker.periodic import Periodic
from rocketstream.broker.progress import Progress
from rocketstream.broker.records import StoredRecord, property_of, read_record
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.store.values import MessageStore, Stored
from rocketstream.broker.topics import READ_WRITE, Topics
from rocketstream.clock import Clock
from rocketstream.errors import ProtocolError
from rocketstream.property_names import PropertyName
from rocketstream.wire.codes import RequestCode, ResponseCode, TransactionFlag
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.transaction import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from rocketstream.wire.message_id import decode_offset_id
from rocketstream.wire.properties import decode_properties

log = logging.getLogger("rocketstream.broker")

#: RocketMQ's fileReservedTime: who has no end after so long is not asked about any more.
_GIVE_UP_MS: Final = 72 * 3600 * 1000
_VERDICTS: Final = frozenset({TransactionFlag.NOT_TYPE, TransactionFlag.COMMIT, TransactionFlag.ROLLBACK})


class Transactions:
    """END_TRANSACTION, RESUME_CHECK_HALF_MESSAGE, and the questions in between."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        state: StateFiles,
        store: MessageStore,
        topics: Topics,
        members: Members,
        intake: Intake,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._topics = topics
        self._members = members
        self._intake = intake
        self._progress = Progress(state=state, store=store, name="transactions")
        self._open: dict[int, None] = {}
        """Offsets of half messages without an end, oldest first."""
        self._moved: dict[str, int] = {}
        """Where a half message is now that was put behind the others, by its unique id."""
        self._ops: deque[tuple[int, int]] = deque()
        """(offset of a note, last half message that it names) of notes that a start still has to read."""
        self._turns = itertools.count()
        self._check = Periodic(clock, lambda: settings.transaction_check_interval, self._check_all)
        self._persist = Periodic(clock, lambda: settings.persist_interval, lambda: self._progress.save(self._saved()))

    def __repr__(self) -> str:
        return f"<Transactions {len(self._open)} open>"

    def start(self) -> None:
        """Find the transactions that have no end yet."""
        saved = self._progress.load() or {}
        self._recover(saved.get("half", 0), saved.get("op", 0))
        self._store.appended.append(self._appended)
        self._check.start()
        self._persist.start()

    def stop(self) -> None:
        """Save how far it came."""
        self._check.stop()
        self._persist.stop()
        if self._appended in self._store.appended:
            self._store.appended.remove(self._appended)
            self._progress.stop(self._saved())

    def handlers(self) -> Mapping[int, Handler]:
        """A transaction's end, and an operator who wants it to be asked about again."""
        return {
            RequestCode.END_TRANSACTION: self._end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume,
        }

    # --- what is open --------------------------------------------------------------------------------------------

    def _appended(self, stored: Stored) -> None:
        if stored.topic == HALF_TOPIC:
            self._open[stored.queue_offset] = None

    def _recover(self, half: int, op: int) -> None:
        first = max(half, self._store.min_offset(HALF_TOPIC, 0))
        self._open = dict.fromkeys(range(first, self._store.max_offset(HALF_TOPIC, 0)))
        for offset in range(
            max(op, self._store.min_offset(OP_HALF_TOPIC, 0)), self._store.max_offset(OP_HALF_TOPIC, 0)
        ):
            raw = self._store.record_at(OP_HALF_TOPIC, 0, offset)
            ended = [] if raw is None else half_messages.op_offsets(read_record(raw))
            for one in ended:
                self._open.pop(one, None)
            if ended:
                self._ops.append((offset, max(ended)))
        for offset in list(self._open):
            raw = self._store.record_at(HALF_TOPIC, 0, offset)
            unique_id = None if raw is None else property_of(read_record(raw).properties, PropertyName.UNIQUE_KEY)
            if unique_id in self._moved:
                # It was put behind the others, and the crash came before the note about the old place.
                self._open.pop(self._moved[unique_id], None)
            if unique_id:
                self._moved[unique_id] = offset

    def _saved(self) -> dict[str, Any]:
        first = next(iter(self._open), self._store.max_offset(HALF_TOPIC, 0))
        while self._ops and self._ops[0][1] < first:
            self._ops.popleft()
        op = self._ops[0][0] if self._ops else self._store.max_offset(OP_HALF_TOPIC, 0)
        return {"half": first, "op": op}

    def _done(self, *offsets: int) -> Stored:
        """Note that half messages need no end any more."""
        for offset in offsets:
            self._open.pop(offset, None)
        stored = self._intake.append(half_messages.op_message(list(offsets), self._clock.wall_ms()))
        self._ops.append((stored.queue_offset, max(offsets)))
        self._progress.stored(stored)
        return stored

    # --- the end -------------------------------------------------------------------------------------------------

    def _end(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command] | None:
        header = EndTransactionRequestHeader.from_fields(command.fields)
        if header.commit_or_rollback not in _VERDICTS:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "commitOrRollback field wrong")
        if header.commit_or_rollback == TransactionFlag.NOT_TYPE:
            log.info("%s does not know yet how transaction %s goes", connection.address, header.transaction_id)
            return None
        raw = self._store.record(header.commit_log_offset)
        if raw is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        half = read_record(raw)
        self._check_end(half, header)
        unique_id = property_of(half.properties, PropertyName.UNIQUE_KEY) or ""
        if header.commit_or_rollback == TransactionFlag.COMMIT:
            self._progress.stored(self._intake.put(half_messages.committed_message(half)))
        stored = self._done(*{half.queue_offset, self._moved.pop(unique_id, half.queue_offset)})
        return self._intake.answer(stored, response(command, ResponseCode.SUCCESS))

    def _check_end(self, half: StoredRecord, header: EndTransactionRequestHeader) -> None:
        immunity = property_of(half.properties, PropertyName.CHECK_IMMUNITY_TIME)
        if immunity and not header.from_transaction_check:
            least = self._settings.transaction_timeout * 1000
            if self._clock.wall_ms() - half.born_timestamp > max(_number(immunity, 0) * 1000, least):
                raise Refusal(
                    ResponseCode.ILLEGAL_OPERATION, "the transaction is to be asked about: too late to end it"
                )
        if property_of(half.properties, PropertyName.PRODUCER_GROUP) != header.producer_group:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.topic != HALF_TOPIC or property_of(half.properties, PropertyName.REAL_TOPIC) is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")

    def _resume(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        """Ask again about a transaction that was given up."""
        header = ResumeCheckHalfMessageRequestHeader.from_fields(command.fields)
        try:
            raw = self._store.record(decode_offset_id(header.msg_id or "").commit_log_offset)
        except ProtocolError:
            raw = None
        if raw is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.",
            )
        record = read_record(raw)
        properties = decode_properties(record.properties)
        properties[PropertyName.TRANSACTION_CHECK_TIMES] = "0"
        stored = self._intake.append(half_messages.again(record, properties))
        return self._intake.answer(stored, response(command, ResponseCode.SUCCESS))

    # --- the question --------------------------------------------------------------------------------------------

    def _check_all(self) -> None:
        """Ask about every transaction that has been open for too long."""
        now = self._clock.wall_ms()
        for offset in list(self._open):
            raw = self._store.record_at(HALF_TOPIC, 0, offset)
            if raw is None:
                self._open.pop(offset)
                continue
            if not self._look_after(read_record(raw), now):
                # Who comes later was stored later, so it has time, too.
                break

    def _look_after(self, half: StoredRecord, now: int) -> bool:
        """Do with an open transaction what is to be done; False when it is too young for anything."""
        properties = decode_properties(half.properties)
        asked = _number(properties.get(PropertyName.TRANSACTION_CHECK_TIMES), 0)
        age = now - half.born_timestamp
        if asked >= self._settings.transaction_check_max or age > _GIVE_UP_MS:
            self._give_up(half, properties)
            return True
        properties[PropertyName.TRANSACTION_CHECK_TIMES] = str(asked + 1)
        if half.store_timestamp >= now:
            return False
        immunity = properties.get(PropertyName.CHECK_IMMUNITY_TIME)
        if immunity is not None:
            seconds = _number(immunity, -1)
            if age <= (self._settings.transaction_timeout if seconds == -1 else seconds) * 1000:
                # Its time is longer than that of others: it lets them pass.
                properties.setdefault(PropertyName.TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
                self._put_behind(half, properties)
                return True
        elif 0 <= age <= self._settings.transaction_timeout * 1000:
            return False
        stored = self._put_behind(half, properties)
        self._ask(half, properties, stored)
        return True

    def _put_behind(self, half: StoredRecord, properties: dict[str, str]) -> Stored:
        stored = self._intake.append(half_messages.behind(half, properties))
        unique_id = properties.get(PropertyName.UNIQUE_KEY)
        if unique_id:
            self._moved[unique_id] = stored.queue_offset
        self._done(half.queue_offset)
        return stored

    def _ask(self, half: StoredRecord, properties: dict[str, str], stored: Stored) -> None:
        group = properties.get(PropertyName.PRODUCER_GROUP, "")
        producers = self._members.producers(group)
        if not producers:
            log.warning("nobody of producer group %s is here to be asked about a transaction", group)
            return
        producer = producers[next(self._turns) % len(producers)]
        producer.send(half_messages.question(half, properties, stored, self._settings.broker_name))

    def _give_up(self, half: StoredRecord, properties: dict[str, str]) -> None:
        log.error(
            "transaction %s of topic %s has no end after all questions: its message goes to %s",
            properties.get(PropertyName.UNIQUE_KEY),
            properties.get(PropertyName.REAL_TOPIC),
            CHECK_MAX_TOPIC,
        )
        self._topics.for_send_back(CHECK_MAX_TOPIC, 1, READ_WRITE)
        self._intake.append(half_messages.given_up(half, properties))
        self._moved.pop(properties.get(PropertyName.UNIQUE_KEY, ""), None)
        self._done(half.queue_offset)


def _number(text: str | None, otherwise: int) -> int:
    try:
        return otherwise if text is None else int(text)
    except ValueError:
        return otherwise
