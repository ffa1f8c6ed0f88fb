"""What a broker should answer, by the simplest means: a few dictionaries and lists.

It knows nothing of bytes, files or connections, and time is the number of requests that stored something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import singledispatchmethod

from tests.broker.group_operations import (
    Clone,
    Commit,
    DeleteGroup,
    GroupOffset,
    GroupStatistics,
    Heartbeat,
    Leave,
    Lock,
    MembersOf,
    PutGroup,
    Reset,
    TopicsOf,
    Unlock,
)
from tests.broker.operations import (
    DEFAULT_QUEUES,
    DeleteTopic,
    FindByKey,
    FindByUniqueKey,
    FirstOffset,
    LastOffset,
    OffsetByTime,
    Pull,
    PutTopic,
    Send,
    SendAgain,
    SendBack,
    SendBatch,
    TopicSettings,
    TopicStatistics,
    View,
)
from tests.broker.target import NOTHING_STORED, Answer, Operation, Seen

#: What a broker adds to a message that is sent alone; those of a batch stay as they are.
OWN = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
READ, WRITE = 4, 2
PULL_COUNT, PULL_BYTES = 32, 262_144
#: Milliseconds between two requests that store something.
STEP = 10

#: Expressions over tags, and the tags that they let pass. ("Aa" and "BB" have the same hash code.)
TAGS: dict[str, frozenset[str | None] | None] = {
    "*": None,
    "": None,
    "a": frozenset({"a"}),
    "a || b": frozenset({"a", "b"}),
    "Aa": frozenset({"Aa", "BB"}),
    "nobody": frozenset(),
}
#: Expressions over properties, and the same in Python.
SQL: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "TRUE": lambda p: True,
    "n IS NULL": lambda p: "n" not in p,
    "n > 1": lambda p: int(p.get("n", 0)) > 1,
    "n BETWEEN 1 AND 2 AND TAGS = 'a'": lambda p: p.get("n") in ("1", "2") and p.get("TAGS") == "a",
    "TAGS IN ('a', 'b') OR NOT (n = 1)": lambda p: p.get("TAGS") in ("a", "b") or p.get("n", "1") != "1",
    "colour <> 'red'": lambda p: p.get("colour", "red") != "red",
}


@dataclass
class Kept:
    """A message in a store."""

    number: int
    topic: str
    queue: int
    offset: int
    properties: dict[str, str]
    size: int
    time: int
    reconsume_times: int = 0

    def seen(self) -> Seen:
        return Seen(self.number, self.topic, self.queue, self.offset, self.reconsume_times, self.properties)


@dataclass
class Topic:
    read_queues: int
    write_queues: int
    permission: int


@dataclass
class Membership:
    """Who is in a group, and what of each topic it wants: the expression and its version."""

    clients: set[int] = field(default_factory=set)
    wanted: dict[str, tuple[str, int]] = field(default_factory=dict)
    broadcasts: bool = False


class Model:
    """A broker without anything that a broker needs."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.queues: dict[tuple[str, int], list[Kept]] = {}
        self.groups: dict[str, tuple[bool, bool]] = {}
        """Whether a group may consume, and may broadcast."""
        self.members: dict[str, Membership] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.pulled: dict[tuple[str, str, int], int] = {}
        self.pulled_topics: set[tuple[str, str]] = set()
        """Groups and topics of pulls that said themselves what they want."""
        self.resets: dict[tuple[str, str, int], int] = {}
        """Offsets that were set and that the group has not been told of."""
        self.locks: dict[tuple[str, str, int], int] = {}
        self.stored: list[Kept] = []
        """What was sent and taken, in order."""
        self.log: list[Kept] = []
        """Everything that was stored."""
        self.sent = 0
        self.now = 0

    def queue(self, topic: str, queue: int) -> list[Kept]:
        return self.queues.get((topic, queue), [])

    def message(self, number: int) -> Kept | None:
        return self.stored[number % len(self.stored)] if self.stored else None

    def keep(self, topic: str, queue: int, number: int, properties: dict[str, str], size: int, tries: int = 0) -> Kept:
        messages = self.queues.setdefault((topic, queue), [])
        kept = Kept(number, topic, queue, len(messages), properties, size, self.now, tries)
        messages.append(kept)
        self.log.append(kept)
        return kept

    @singledispatchmethod
    def answer(self, operation: Operation) -> Answer:
        """What a broker answers to the operation."""
        raise NotImplementedError(operation)

    # --- topics ------------------------------------------------------------------------------------------------

    @answer.register
    def _(self, operation: PutTopic) -> Answer:
        if "!" in operation.topic:
            return ("INVALID_PARAMETER",)
        self.topics[operation.topic] = Topic(operation.read_queues, operation.write_queues, operation.permission)
        return ("SUCCESS",)

    @answer.register
    def _(self, operation: DeleteTopic) -> Answer:
        topic = operation.topic
        self.topics.pop(topic, None)
        self.queues = {key: kept for key, kept in self.queues.items() if key[0] != topic}
        self.offsets = {key: offset for key, offset in self.offsets.items() if key[1] != topic}
        self.pulled = {key: offset for key, offset in self.pulled.items() if key[1] != topic}
        self.resets = {key: offset for key, offset in self.resets.items() if key[1] != topic}
        return ("SUCCESS",)

    @answer.register
    def _(self, operation: TopicSettings) -> Answer:
        topic = self.topics.get(operation.topic)
        if topic is None:
            return ("TOPIC_NOT_EXIST",)
        return "SUCCESS", topic.read_queues, topic.write_queues, topic.permission, False

    @answer.register
    def _(self, operation: TopicStatistics) -> Answer:
        topic = self.topics.get(operation.topic)
        if topic is None:
            return ("TOPIC_NOT_EXIST",)
        queues = range(max(topic.read_queues, topic.write_queues))
        ends = {queue: len(self.queue(operation.topic, queue)) for queue in queues}
        return "SUCCESS", {(operation.topic, queue): (0, end, end > 0) for queue, end in ends.items()}

    # --- sending -----------------------------------------------------------------------------------------------

    def _refused(self, name: str, queue: int) -> Answer | None:
        """Why nothing can be sent there; the topic is made if it can be."""
        if "!" in name:
            return ("INVALID_PARAMETER",)
        topic = self.topics.setdefault(name, Topic(DEFAULT_QUEUES, DEFAULT_QUEUES, READ | WRITE))
        return ("INVALID_PARAMETER",) if queue >= max(topic.read_queues, topic.write_queues) else None

    @answer.register
    def _(self, operation: Send) -> Answer:
        number = self.sent
        self.sent += 1
        self.now += STEP
        refused = self._refused(operation.topic, operation.queue)
        if refused is not None:
            return refused
        properties = {**operation.properties, "UNIQ_KEY": f"u{number}", **OWN}
        kept = self.keep(operation.topic, operation.queue, number, properties, operation.size)
        self.stored.append(kept)
        return "SUCCESS", kept.queue, kept.offset, 1, f"u{number}"

    @answer.register
    def _(self, operation: SendBatch) -> Answer:
        numbers = range(self.sent, self.sent + len(operation.messages))
        self.sent = numbers.stop
        self.now += STEP
        refused = self._refused(operation.topic, operation.queue)
        if refused is not None:
            return refused
        batch = [
            self.keep(operation.topic, operation.queue, number, {**properties, "UNIQ_KEY": f"u{number}"}, 0)
            for number, properties in zip(numbers, operation.messages, strict=True)
        ]
        self.stored += batch
        return "SUCCESS", operation.queue, batch[0].offset, len(batch), None

    @answer.register
    def _(self, operation: SendBack) -> Answer:
        message = self.message(operation.message)
        if message is None:
            return NOTHING_STORED
        self.now += STEP
        self.groups.setdefault(operation.group, (True, True))
        self.topics.setdefault(f"%RETRY%{operation.group}", Topic(1, 1, READ | WRITE))
        if operation.is_dead:
            topic = f"%DLQ%{operation.group}"
            self.topics.setdefault(topic, Topic(1, 1, READ | WRITE))
            properties = {
                **message.properties,
                "RETRY_TOPIC": message.topic,
                "ORIGIN_MESSAGE_ID": f"message {self.stored.index(message)}",
                "DELAY": "0",
                "WAIT": "false",
            }
            self.keep(topic, 0, message.number, properties, message.size, message.reconsume_times + 1)
        return ("SUCCESS",)

    @answer.register
    def _(self, operation: SendAgain) -> Answer:
        number = self.sent
        self.sent += 1
        self.now += STEP
        group = operation.group
        self.groups.setdefault(group, (True, True))
        topic = f"%RETRY%{group}"
        self.topics.setdefault(topic, Topic(DEFAULT_QUEUES, DEFAULT_QUEUES, READ | WRITE))
        properties = {"UNIQ_KEY": f"u{number}", **OWN}
        most = 16 if operation.most_tries is None else operation.most_tries
        # Who holds locks consumes in order: it sends a message back only to be rid of it.
        if operation.tries > most or any(key[0] == group for key in self.locks):
            topic = f"%DLQ%{group}"
            self.topics.setdefault(topic, Topic(1, 1, READ | WRITE))
            properties["DELAY"] = "-1"
        kept = self.keep(topic, 0, number, properties, 0, operation.tries)
        self.stored.append(kept)
        return "SUCCESS", topic, 0, kept.offset

    # --- reading -----------------------------------------------------------------------------------------------

    def _wanted(self, operation: Pull) -> Callable[[Kept], bool] | Answer:
        """Which messages a pull is for; or why it is refused."""
        expression, kind = operation.expression, operation.kind
        if expression is None:
            group = self.members.get(operation.group)
            if group is None:
                return ("SUBSCRIPTION_NOT_EXIST",)
            if group.broadcasts and not self.groups[operation.group][1]:
                return ("NO_PERMISSION",)
            if operation.topic not in group.wanted:
                return ("SUBSCRIPTION_NOT_EXIST",)
            expression, version = group.wanted[operation.topic]
            if version < operation.version:
                return ("SUBSCRIPTION_NOT_LATEST",)
            kind = "TAG"
        elif expression != "||":
            self.pulled_topics.add((operation.group, operation.topic))
        if kind == "SQL92":
            predicate = SQL[expression]
            return lambda kept: predicate(kept.properties)
        if expression == "||":
            return ("SUBSCRIPTION_PARSE_FAILED",)
        tags = TAGS[expression]
        return lambda kept: tags is None or kept.properties.get("TAGS") in tags

    @answer.register
    def _(self, operation: Pull) -> Answer:
        self.groups.setdefault(operation.group, (True, True))
        if not self.groups[operation.group][0]:
            return ("NO_PERMISSION",)
        topic = self.topics.get(operation.topic)
        if topic is None:
            return ("TOPIC_NOT_EXIST",)
        if not topic.permission & READ:
            return ("NO_PERMISSION",)
        if not 0 <= operation.queue < topic.read_queues:
            return ("INVALID_PARAMETER",)
        wanted = self._wanted(operation)
        if isinstance(wanted, tuple):
            return wanted
        messages = self.queue(operation.topic, operation.queue)
        key = operation.group, operation.topic, operation.queue
        if key in self.resets:
            code, status, after, found = "PULL_OFFSET_MOVED", "OFFSET_RESET", self.resets.pop(key), []
        else:
            code, status, after, found = _read(messages, operation.offset, operation.most, wanted)
        self.pulled[key] = after
        if operation.commit is not None:
            self.offsets[key] = operation.commit
        return code, status, after, 0, len(messages), [kept.seen() for kept in found]

    @answer.register
    def _(self, operation: View) -> Answer:
        if operation.message is None:
            return ("SYSTEM_ERROR",)
        message = self.message(operation.message)
        return NOTHING_STORED if message is None else ("SUCCESS", [message.seen()])

    def _found(self, topic: str, times: Callable[[Kept], int], most: int) -> Answer:
        """The newest ones, from old to new; a message that names a key twice is found twice."""
        found = [kept for kept in self.log if kept.topic == topic for _ in range(times(kept))]
        return ("SUCCESS", [kept.seen() for kept in found[-most:]]) if found else ("QUERY_NOT_FOUND",)

    @answer.register
    def _(self, operation: FindByKey) -> Answer:
        return self._found(
            operation.topic, lambda kept: kept.properties.get("KEYS", "").split().count(operation.key), operation.most
        )

    @answer.register
    def _(self, operation: FindByUniqueKey) -> Answer:
        return self._found(operation.topic, lambda kept: kept.number == operation.number, PULL_COUNT)

    # --- offsets -----------------------------------------------------------------------------------------------

    @answer.register
    def _(self, operation: FirstOffset) -> Answer:
        return "SUCCESS", 0

    @answer.register
    def _(self, operation: LastOffset) -> Answer:
        return "SUCCESS", len(self.queue(operation.topic, operation.queue))

    @answer.register
    def _(self, operation: OffsetByTime) -> Answer:
        message = self.message(operation.message)
        if message is None:
            return NOTHING_STORED
        time = message.time + operation.shift
        messages = self.queue(operation.topic, operation.queue)
        if operation.boundary == "UPPER":
            not_later = [kept.offset for kept in messages if kept.time <= time]
            return "SUCCESS", max(not_later, default=0)
        not_earlier = [kept.offset for kept in messages if kept.time >= time]
        return "SUCCESS", min(not_earlier, default=len(messages))

    @answer.register
    def _(self, operation: GroupOffset) -> Answer:
        key = operation.group, operation.topic, operation.queue
        offset = self.resets.get(key, self.offsets.get(key, -1))
        if offset >= 0:
            return "SUCCESS", offset
        # A group that is new to a queue which has its first message begins there.
        if operation.zero_if_none is False or not self.queue(operation.topic, operation.queue):
            return ("QUERY_NOT_FOUND",)
        return "SUCCESS", 0

    @answer.register
    def _(self, operation: Commit) -> Answer:
        if operation.group not in self.groups:
            return ("SUBSCRIPTION_GROUP_NOT_EXIST",)
        if operation.topic not in self.topics:
            return ("TOPIC_NOT_EXIST",)
        key = operation.group, operation.topic, operation.queue
        if key not in self.resets:
            self.offsets[key] = operation.offset
        return ("SUCCESS",)

    @answer.register
    def _(self, operation: Reset) -> Answer:
        if operation.topic not in self.topics:
            return ("TOPIC_NOT_EXIST",)
        if operation.group not in self.groups:
            return ("SUBSCRIPTION_GROUP_NOT_EXIST",)
        offset = operation.offset
        if offset == -1:  # by time, which is 0 here
            offset = 0
        if not 0 <= offset <= len(self.queue(operation.topic, operation.queue)) + 1:
            return ("SYSTEM_ERROR",)
        key = operation.group, operation.topic, operation.queue
        self.resets[key] = self.offsets[key] = offset
        return "SUCCESS", {(operation.topic, operation.queue): offset}

    @answer.register
    def _(self, operation: Clone) -> Answer:
        topic = operation.topic
        offsets = {key[2]: at for key, at in self.offsets.items() if key[:2] == (operation.source, topic)}
        if offsets and topic in self.topics:
            self.offsets = {key: at for key, at in self.offsets.items() if key[:2] != (operation.group, topic)}
            self.offsets |= {(operation.group, topic, queue): at for queue, at in offsets.items()}
        return ("SUCCESS",)

    @answer.register
    def _(self, operation: GroupStatistics) -> Answer:
        group = operation.group
        topics = [operation.topic] if operation.topic else sorted({key[1] for key in self.offsets if key[0] == group})
        wanted = self.members[group].wanted if group in self.members else {}
        table = {}
        for name in topics:
            topic = self.topics.get(name)
            if topic is None or (wanted and name not in wanted and (group, name) not in self.pulled_topics):
                continue
            for queue in range(topic.read_queues):
                messages = self.queue(name, queue)
                key = group, name, queue
                at = max(0, self.resets.get(key, self.offsets.get(key, 0)))
                pulled = max(at, self.pulled.get(key, at))
                table[name, queue] = len(messages), at, pulled, 0 < at <= len(messages)
        return "SUCCESS", table

    # --- groups ------------------------------------------------------------------------------------------------

    @answer.register
    def _(self, operation: PutGroup) -> Answer:
        self.groups[operation.group] = operation.may_consume, operation.may_broadcast
        return ("SUCCESS",)

    @answer.register
    def _(self, operation: DeleteGroup) -> Answer:
        group = operation.group
        self.groups.pop(group, None)
        self.offsets = {key: offset for key, offset in self.offsets.items() if key[0] != group}
        self.pulled = {key: offset for key, offset in self.pulled.items() if key[0] != group}
        self.resets = {key: offset for key, offset in self.resets.items() if key[0] != group}
        return ("SUCCESS",)

    @answer.register
    def _(self, operation: TopicsOf) -> Answer:
        return "SUCCESS", sorted({key[1] for key in self.offsets if key[0] == operation.group})

    # --- locks and members -------------------------------------------------------------------------------------

    @answer.register
    def _(self, operation: Lock) -> Answer:
        keys = {(operation.group, operation.topic, queue) for queue in operation.queues}
        got = {key for key in keys if self.locks.setdefault(key, operation.client) == operation.client}
        return "SUCCESS", {(topic, queue) for _, topic, queue in got}

    @answer.register
    def _(self, operation: Unlock) -> Answer:
        for queue in operation.queues:
            key = operation.group, operation.topic, queue
            if self.locks.get(key) == operation.client:
                del self.locks[key]
        return ("SUCCESS",)

    @answer.register
    def _(self, operation: Heartbeat) -> Answer:
        self.groups.setdefault(operation.group, (True, True))
        self.topics.setdefault(f"%RETRY%{operation.group}", Topic(1, 1, READ | WRITE))
        group = self.members.setdefault(operation.group, Membership())
        group.clients.add(operation.client)
        group.broadcasts = operation.broadcasts
        group.wanted = {topic: wanted for topic, wanted in group.wanted.items() if topic in operation.topics}
        for topic in operation.topics:
            if topic not in group.wanted or operation.version > group.wanted[topic][1]:
                group.wanted[topic] = operation.expression, operation.version
        return ("SUCCESS",)

    @answer.register
    def _(self, operation: Leave) -> Answer:
        self.groups.setdefault(operation.group, (True, True))
        group = self.members.get(operation.group)
        if group is not None:
            group.clients.discard(operation.client)
            if not group.clients:
                del self.members[operation.group]
        return ("SUCCESS",)

    @answer.register
    def _(self, operation: MembersOf) -> Answer:
        group = self.members.get(operation.group)
        if group is None:
            return ("SYSTEM_ERROR",)
        return "SUCCESS", sorted(f"c{client}" for client in group.clients)


def _read(
    messages: list[Kept], offset: int, most: int, wanted: Callable[[Kept], bool]
) -> tuple[str, str, int, list[Kept]]:
    """The code, the status, the next offset and the messages of a pull."""
    end = len(messages)
    if not end:
        return ("PULL_OFFSET_MOVED" if offset else "PULL_NOT_FOUND"), "NO_MESSAGE_IN_QUEUE", 0, []
    if offset < 0:
        return "PULL_OFFSET_MOVED", "OFFSET_TOO_SMALL", 0, []
    if offset == end:
        return "PULL_NOT_FOUND", "OFFSET_OVERFLOW_ONE", end, []
    if offset > end:
        return "PULL_OFFSET_MOVED", "OFFSET_OVERFLOW_BADLY", end, []
    found: list[Kept] = []
    size = 0
    for kept in messages[offset:]:
        if found and (len(found) >= min(most, PULL_COUNT) or size + kept.size > PULL_BYTES):
            return "SUCCESS", "FOUND", kept.offset, found
        if wanted(kept):
            found.append(kept)
            size += kept.size
    if found:
        return "SUCCESS", "FOUND", end, found
    return "PULL_RETRY_IMMEDIATELY", "NO_MATCHED_MESSAGE", end, []
