"""A replay step by step, with everything around it played by the test."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketstream.admin.errors import NotFoundError, ReplayStoppedError
from rocketstream.admin.letters import REPLAYED_FROM, DeadLetter, LetterFilter
from rocketstream.admin.reading import QueueReader, TopicReader
from rocketstream.admin.replaying import Replay
from rocketstream.admin.replays import LetterFate, ReplayOrder
from rocketstream.errors import BrokerError, RequestTimeoutError, SendFailedError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.subscription import subscription

NOW = 1_800_000_000_000


class FakeClock:
    """Sleeping is the passing of time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class FakeCore:
    """What a replay needs of the operator's client: letters to read, a place to send to, and what is there already."""

    def __init__(self, *pulls: list[int]) -> None:
        self.pulls = list(pulls)
        self.clock = FakeClock()
        self.sent: list[tuple[str, str, dict[str, str]]] = []
        self.there: dict[str, list[ReceivedMessage]] = {}
        self.failures: dict[str, Exception] = {}
        self.targets: list[str] = []

    def short(self, name: str) -> str:
        return name

    full_topic = short

    async def read_dead_letters(
        self, reader: TopicReader, one: QueueReader, group: str, meant: LetterFilter
    ) -> list[DeadLetter]:
        offsets = self.pulls.pop(0)
        one.finished = not self.pulls
        return [letter(offset) for offset in offsets]

    async def replay_target(self, name: str, order: ReplayOrder, group: str) -> list[object]:
        self.targets.append(name)
        return [object()]

    async def groups_of_topic(self, topic: str, nodes: list[object]) -> set[str]:
        return {"g", "audit"}

    async def copies(self, topic: str, unique_id: str, since: int, nodes: list[object]) -> list[ReceivedMessage]:
        assert since < NOW
        return self.there.get(unique_id, [])

    async def send_copy(self, one: DeadLetter, body: bytes, topic: str, properties: dict[str, str]) -> Any:
        if one.message_id in self.failures:
            raise self.failures[one.message_id]
        self.sent.append((one.message_id, topic, properties))

        class Receipt:
            offset_message_id = f"STORED{one.queue_offset}"

        return Receipt


def letter(offset: int) -> DeadLetter:
    message = ReceivedMessage("%DLQ%g", b"%d" % offset, properties={"UNIQ_KEY": f"ID{offset}"})
    return DeadLetter("orders", f"ID{offset}", None, "a", 0, offset, None, None, 1, NOW, NOW, 1, 0, message)


def replay(core: FakeCore, order: ReplayOrder | None = None, **wanted: Any) -> Replay:
    place: Any = QueueReader(None, MessageQueue("%DLQ%g", "a", 0), 0, 10)  # type: ignore[arg-type]
    reader = TopicReader("%DLQ%g", subscription("%DLQ%g"), [place], None)
    return Replay(core, "g", LetterFilter.make(**wanted), order or ReplayOrder(), reader)  # type: ignore[arg-type]


def run(one: Replay) -> list[tuple[str, LetterFate]]:
    async def to_the_end() -> list[tuple[str, LetterFate]]:
        done = []
        while (step := await one.step()) is not None:
            done.append((step.message_id, step.fate))
        return done

    return asyncio.run(to_the_end())


def test_letters_go_in_their_order_and_the_target_is_looked_at_once():
    core = FakeCore([0, 1], [], [2])
    one = replay(core)
    assert run(one) == [(f"ID{number}", LetterFate.REPLAYED) for number in range(3)]
    assert [(name, topic) for name, topic, _ in core.sent] == [(f"ID{number}", "orders") for number in range(3)]
    assert core.sent[2][2][REPLAYED_FROM] == "%DLQ%g@a:0:2"
    assert core.targets == ["orders"]
    report = one.report()
    assert report.other_groups == {"orders": ("audit",)}, "not the group itself"
    assert [done.stored_as for done in report.letters] == ["STORED0", "STORED1", "STORED2"]
    assert repr(one) == "<Replay of group g: 3 replayed, 3 looked at>"


def test_a_copy_of_this_place_counts_and_one_of_another_does_not():
    core = FakeCore([0, 1])
    core.there["ID0"] = [ReceivedMessage("orders", b"", properties={REPLAYED_FROM: "%DLQ%g@a:0:0"})]
    core.there["ID1"] = [ReceivedMessage("orders", b"", properties={REPLAYED_FROM: "%DLQ%g@a:0:0"})]
    assert run(replay(core)) == [("ID0", LetterFate.ALREADY_REPLAYED), ("ID1", LetterFate.REPLAYED)]
    assert len(core.sent) == 1
    again = FakeCore([0])
    again.there = core.there
    assert run(replay(again, ReplayOrder(again=True))) == [("ID0", LetterFate.REPLAYED)]


def test_a_limit_counts_what_is_sent():
    core = FakeCore([0, 1, 2, 3])
    core.there["ID0"] = [ReceivedMessage("orders", b"", properties={REPLAYED_FROM: "%DLQ%g@a:0:0"})]
    assert [name for name, _ in run(replay(core, ReplayOrder(limit=2)))] == ["ID0", "ID1", "ID2"]
    dry = FakeCore([0, 1, 2])
    assert len(run(replay(dry, ReplayOrder(limit=2, dry_run=True)))) == 2
    assert dry.sent == []


def test_a_rate_is_kept_by_waiting_before_each_but_the_first():
    core = FakeCore([0, 1, 2])
    run(replay(core, ReplayOrder(rate=4.0)))
    assert core.clock.slept == pytest.approx([0.25, 0.25])
    slow = FakeCore([0, 1, 2])
    one = replay(slow, ReplayOrder(rate=4.0))
    asyncio.run(one.step())
    slow.clock.now += 10.0  # the sends themselves take longer than the rate asks for
    run(one)
    assert slow.clock.slept == pytest.approx([0.25]), "no burst to catch up"


def test_to_the_retry_topic_a_copy_says_whose_it_is():
    core = FakeCore([0])
    one = replay(core, ReplayOrder(to_retry=True))
    run(one)
    ((_, topic, properties),) = core.sent
    assert (topic, properties["RETRY_TOPIC"]) == ("%RETRY%g", "orders")
    assert one.report().other_groups == {}, "nobody else reads a retry topic"
    core = FakeCore([0])
    run(replay(core, ReplayOrder(to="elsewhere")))
    assert (core.sent[0][1], "RETRY_TOPIC" in core.sent[0][2]) == ("elsewhere", False)


def test_a_send_that_fails_stops_it_and_says_how_far_it_came():
    core = FakeCore([0, 1, 2])
    core.failures["ID1"] = BrokerError("a:1", 14, "no room", code_name="SERVICE_NOT_AVAILABLE")
    one = replay(core)
    with pytest.raises(ReplayStoppedError) as caught:
        run(one)
    assert str(caught.value) == (
        "the replay of group 'g' stopped at message ID1 (a:0:1) for topic 'orders': 1 replayed before it, that one was"
        " not stored, the rest was not tried; the same command goes on from there. a:1 answered SERVICE_NOT_AVAILABLE"
        " (14): no room"
    )
    assert [done.message_id for done in caught.value.report.letters] == ["ID0"]
    assert run(one) == [("ID2", LetterFate.REPLAYED)], "who goes on with it goes on behind"

    unclear = FakeCore([0])
    timeout = RequestTimeoutError("a:1", "no answer within 3 s")
    unclear.failures["ID0"] = SendFailedError("orders", [("a:1", timeout)], 3.0)
    with pytest.raises(ReplayStoppedError, match="that one may have been stored all the same"):
        run(replay(unclear))


def test_ids_that_are_nowhere_are_told_at_the_end():
    core = FakeCore([0, 1])
    one = replay(core, ids=["id1", "id7"])
    with pytest.raises(NotFoundError, match=r"no dead letter of group 'g' that matches has the id ID7 \(1 others were"):
        run(one)
    assert [name for name, *_ in core.sent] == ["ID1"]


def test_a_group_without_dead_letters_has_nothing_to_replay():
    one = Replay(FakeCore(), "g", LetterFilter.make(), ReplayOrder(), None)  # type: ignore[arg-type]
    assert run(one) == []
    assert one.report().replayed == 0
