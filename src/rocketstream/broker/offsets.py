"""Where groups are: the offsets that consumers commit, kept over restarts and crashes.

An offset whose commit was answered is on the disk by then (`flush="sync"` in a data directory). What is committed in
passing (with a pull, or one-way) follows every `persist_interval`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator, Mapping
from typing import Any, Final

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.groups import Groups
from rocketstream.broker.members import Members
from rocketstream.broker.offset_journal import CommittedOffset, OffsetJournal, latest_generation
from rocketstream.broker.offset_resets import OffsetResets
from rocketstream.broker.periodic import Periodic
from rocketstream.broker.queue_limits import QueueLimits
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.store.values import MessageStore
from rocketstream.broker.topics import Topics
from rocketstream.clock import Clock
from rocketstream.wire.bodies.data_version import DataVersion
from rocketstream.wire.bodies.offsets import ConsumerOffsetSerializeWrapper, QueryCorrectionOffsetBody
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryCorrectionOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

log = logging.getLogger("rocketstream.broker")

STATE: Final = "offsets"
_LARGEST: Final = 0x7FFFFFFFFFFFFFFF


class Offsets:
    """The offsets of all groups, by group and topic, then by queue id."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        state: StateFiles,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        members: Members,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._state = state
        self._store = store
        self._topics = topics
        self._groups = groups
        self._members = members
        self._table: dict[tuple[str, str], dict[int, int]] = {}
        self._pulled: dict[tuple[str, str], dict[int, int]] = {}
        self._reset: dict[tuple[str, str], dict[int, int]] = {}
        self._changed: set[tuple[str, str, int]] = set()
        self._version = 0
        self._journal: OffsetJournal | None = None
        self._stopped = False
        self._persist = Periodic(clock, lambda: self._settings.persist_interval, self._write_soon)
        self._limits = QueueLimits(store)
        self._resets = OffsetResets(self, settings, store, topics, groups, members)
        groups.cleaned.append(self.forget_group)

    def __repr__(self) -> str:
        return f"<Offsets of {len(self._table)} groups' topics, {len(self._changed)} to be written>"

    # --- what others ask ----------------------------------------------------------------------------------------

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """Where a group is in a queue, or is to be by a reset; -1 when that is not known."""
        key = (group, topic)
        if self._reset and self._settings.server_side_reset:
            reset = self._reset.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        queues = self._table.get(key)
        return -1 if queues is None else queues.get(queue_id, -1)

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """How far a group has asked for messages of a queue; its offset when it never said."""
        pulled = self._pulled.get((group, topic), {}).get(queue_id)
        return self.get(group, topic, queue_id) if pulled is None else pulled

    def all(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        """Every group and topic, with the group's offsets in it by queue id."""
        for (group, topic), queues in self._table.items():
            yield group, topic, queues

    def of_group(self, group: str) -> dict[str, dict[int, int]]:
        """A group's offsets by topic and queue id."""
        return {topic: queues for (owner, topic), queues in self._table.items() if owner == group}

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group has an offset."""
        return [topic for owner, topic in self._table if owner == group]

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have an offset in a topic."""
        return [group for group, known in self._table if known == topic]

    # --- what others tell ---------------------------------------------------------------------------------------

    def commit(self, group: str, topic: str, queue_id: int, offset: int, client: str = "") -> None:
        """Let a group be at an offset from now on."""
        queues = self._table.get((group, topic))
        if queues is None:
            queues = self._table[group, topic] = {}
        before = queues.get(queue_id)
        if before == offset:
            return
        if before is not None and offset < before:
            who = client or "the broker"
            log.info("%s moved group %s back in %s-%d: from %d to %d", who, group, topic, queue_id, before, offset)
        queues[queue_id] = offset
        self._changed.add((group, topic, queue_id))

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember up to where a group has asked for messages."""
        self._pulled.setdefault((group, topic), {})[queue_id] = offset

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset that the group's next pull brings to it; until then commits do not count."""
        if queue_id < 0 or offset < 0:
            return
        self._reset.setdefault((group, topic), {})[queue_id] = offset
        self.commit(group, topic, queue_id, offset)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset waits for the group's next pull."""
        return queue_id in self._reset.get((group, topic), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset of a reset that waits, which is thereby done."""
        return self._reset[group, topic].pop(queue_id, None) if (group, topic) in self._reset else None

    def forget_topic(self, topic: str) -> None:
        """Forget every group's offsets in a topic."""
        self._forget([key for key in self._known_keys() if key[1] == topic])

    def forget_group(self, group: str) -> None:
        """Forget a group's offsets."""
        self._forget([key for key in self._known_keys() if key[0] == group])

    def _known_keys(self) -> set[tuple[str, str]]:
        return {*self._table, *self._reset, *self._pulled}

    def _forget(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            self._pulled.pop(key, None)
            self._reset.pop(key, None)
            for queue_id in self._table.pop(key, ()):
                self._changed.add((*key, queue_id))
        if keys:
            self._write_soon()

    # --- keeping ------------------------------------------------------------------------------------------------

    def durable(self) -> Awaitable[None] | None:
        """What to wait for until all that was committed so far survives a crash; None when nothing is to wait for."""
        if self._stopped:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is shutting down")
        if self._journal is None or self._settings.flush != "sync":
            return None
        return self._journal.flush()

    def start(self) -> None:
        """Load what was there before, and begin to write."""
        saved: Any = self._state.load(STATE) or {"offsets": {}}
        for name, queues in saved["offsets"].items():
            topic, _, group = name.partition("@")
            self._table[group, topic] = {int(queue_id): offset for queue_id, offset in queues.items()}
        directory = self._settings.data
        if directory is not None:
            # A snapshot that can't be read must not take the journal with it.
            generation = saved.get("generation", latest_generation(directory))
            self._journal = OffsetJournal(
                directory, generation, changes=self._take_changes, full=self._begin_next_journal
            )
            for committed in self._journal.open():
                self._replay(committed)
        self._persist.start()

    def stop(self) -> None:
        """Write everything; from now on commits that need an answer are refused."""
        self._persist.stop()
        self._stopped = True
        if self._journal is None:
            self._save(0)
        elif self._state.frozen:
            self._journal.abandon()
        else:
            self._journal.close()
            # The next journal is begun by the next start, which also removes this one.
            self._save(self._journal.generation + 1)

    def _replay(self, committed: CommittedOffset) -> None:
        key = (committed.group, committed.topic)
        if committed.offset >= 0:
            self._table.setdefault(key, {})[committed.queue_id] = committed.offset
        elif key in self._table:
            self._table[key].pop(committed.queue_id, None)
            if not self._table[key]:
                del self._table[key]

    def _take_changes(self) -> Iterator[CommittedOffset]:
        changed, self._changed = self._changed, set()
        for group, topic, queue_id in changed:
            offset = self._table.get((group, topic), {}).get(queue_id, -1)
            yield CommittedOffset(group, topic, queue_id, offset)

    def _write_soon(self) -> None:
        if self._journal is not None and self._changed:
            self._journal.flush_soon()

    def _begin_next_journal(self) -> None:
        assert self._journal is not None
        self._changed.clear()
        self._save(self._journal.generation + 1)
        self._journal.begin_next()

    def _save(self, generation: int) -> None:
        self._version += 1
        self._state.save(STATE, {"generation": generation, "offsets": self._by_name()})

    def _by_name(self) -> dict[str, dict[int, int]]:
        return {f"{topic}@{group}": queues for (group, topic), queues in self._table.items()}

    # --- requests -----------------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[int, Handler]:
        """What is asked about offsets, of groups and of queues."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
            RequestCode.QUERY_CORRECTION_OFFSET: self._correction,
            **self._limits.handlers(),
            **self._resets.handlers(),
        }

    def answer(self, command: Command, answer: Command) -> Command | Awaitable[Command]:
        """An answer that is given once everything that was committed so far is on the disk."""
        durable = None if command.is_one_way else self.durable()
        return answer if durable is None else _after(durable, answer)

    def _query(self, connection: ClientConnection, command: Command) -> Command:
        wanted = QueryConsumerOffsetRequestHeader.from_fields(command.fields)
        offset = self.get(wanted.consumer_group, wanted.topic, wanted.queue_id)
        if offset < 0:
            if wanted.set_zero_if_not_found is False:
                raise Refusal(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
                )
            # A group that is new to a queue which still has its first message begins there.
            first = self._store.min_offset(wanted.topic, wanted.queue_id)
            if not first <= 0 < self._store.max_offset(wanted.topic, wanted.queue_id):
                raise Refusal(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                )
            offset = 0
        return response(command, ResponseCode.SUCCESS, header=OffsetResponseHeader(offset=offset))

    def _update(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        group, topic = command.fields.get("consumerGroup", ""), command.fields.get("topic", "")
        if group not in self._groups:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if self._topics.get(topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        for name, what in (("queueId", "QueueId"), ("commitOffset", "Offset")):
            if name not in command.fields:
                raise Refusal(ResponseCode.INVALID_PARAMETER, f"{what} is null, topic is {topic}")
        wanted = UpdateConsumerOffsetRequestHeader.from_fields(command.fields)
        queue_id = wanted.queue_id
        if self._settings.server_side_reset and self.has_reset(group, topic, queue_id):
            return response(command, ResponseCode.SUCCESS, "Offset has been previously reset")
        self.commit(group, topic, queue_id, wanted.commit_offset, connection.address)
        return self.answer(command, response(command, ResponseCode.SUCCESS))

    def _all(self, connection: ClientConnection, command: Command) -> Command:
        version = DataVersion(timestamp=self._clock.wall_ms(), counter=self._version)
        wrapper = ConsumerOffsetSerializeWrapper(offset_table=self._by_name(), data_version=version)
        return response(command, ResponseCode.SUCCESS, body=wrapper.encode())

    def _clone(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        wanted = CloneGroupOffsetRequestHeader.from_fields(command.fields)
        topics = [wanted.topic] if wanted.topic and wanted.topic.strip() else self.topics_of(wanted.src_group)
        for topic in topics:
            if self._topics.get(topic) is None:
                continue
            if not wanted.offline and self._members.has_other_subscriptions(wanted.src_group, topic):
                continue
            self._copy(wanted.src_group, wanted.dest_group, topic, connection.address)
        return self.answer(command, response(command, ResponseCode.SUCCESS))

    def _copy(self, source: str, group: str, topic: str, client: str) -> None:
        """Let a group be exactly where another is: in queues without an offset of that one, it has none either."""
        offsets = self._table.get((source, topic))
        if offsets is None or source == group:
            return
        queues = self._table.get((group, topic), {})
        for queue_id in queues.keys() - offsets.keys():
            del queues[queue_id]
            self._changed.add((group, topic, queue_id))
        for queue_id, offset in offsets.items():
            self.commit(group, topic, queue_id, offset, client)

    def _correction(self, connection: ClientConnection, command: Command) -> Command:
        wanted = QueryCorrectionOffsetRequestHeader.from_fields(command.fields)
        filtered = set((wanted.filter_groups or "").split(","))
        smallest: dict[int, int] = {}
        for (group, topic), queues in self._table.items():
            if topic != wanted.topic or group in filtered:
                continue
            for queue_id, offset in queues.items():
                if offset >= self._store.min_offset(topic, queue_id):
                    smallest[queue_id] = min(smallest.get(queue_id, _LARGEST), offset)
        for queue_id, offset in self._table.get((wanted.compare_group, wanted.topic), {}).items():
            if smallest.get(queue_id, _LARGEST) > offset:
                smallest[queue_id] = _LARGEST
        body = QueryCorrectionOffsetBody(correction_offsets=smallest).encode()
        return response(command, ResponseCode.SUCCESS, body=body)


async def _after(durable: Awaitable[None], answer: Command) -> Command:
    await durable
    return answer
