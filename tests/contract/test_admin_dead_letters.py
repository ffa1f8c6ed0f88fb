"""Dead letters on the real brokers: seen, counted, and sent again, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rocketstream import AdminClient, OrderlyResult, aio
from rocketstream.admin.errors import NotFoundError, ReplayStoppedError
from rocketstream.admin.letters import REPLAY_COUNT, REPLAYED_FROM, DeadLetter
from rocketstream.admin.replays import LetterFate
from rocketstream.cluster.names import dlq_topic, retry_topic
from rocketstream.errors import ConfigurationError, UnsupportedByBrokerError
from rocketstream.message import ReceivedMessage
from rocketstream.property_names import PropertyName
from rocketstream.testing import ClusterProxy
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.command import Command
from tests import dead_letters
from tests.bare_client import BareClient, eventually
from tests.contract.consuming import Heard

Bury = Callable[..., list[ReceivedMessage]]


@pytest.fixture
def group(admin: AdminClient, unique_group: str) -> str:
    """A group that the broker knows and that nobody is in."""
    admin.create_group(unique_group, max_retries=3)
    return unique_group


@pytest.fixture
def bury(client: BareClient, group: str) -> Bury:
    """Store messages and have the broker lay them to the group's dead letters."""
    return partial(dead_letters.bury, client, group)


def dead(admin: AdminClient, group: str, count: int, **wanted: Any) -> tuple[DeadLetter, ...]:
    """The dead letters of a group, once there are so many: a broker stores them in its own time."""
    eventually(lambda: _total(admin, group) >= count)
    return admin.dead_letters(group, 1000, **wanted).letters


def _total(admin: AdminClient, group: str) -> int:
    return admin.dead_letters(group).total


def bodies(letters: tuple[DeadLetter, ...]) -> list[bytes]:
    return [letter.message.body for letter in letters]


@pytest.mark.feature("admin/dlq-list")
def test_dead_letters_are_listed_counted_and_chosen(admin, client, broker, topic, group, bury):
    assert admin.dead_letters(group).letters == (), "a group without any has none"
    with pytest.raises(NotFoundError, match="group 'never-heard-of' does not exist: no broker knows it"):
        admin.dead_letters("never-heard-of")
    other = f"{topic}-2"
    client.create_topic(broker, other)
    first, second = bury(topic, b"1", b"2", KEYS="k1 k2", TAGS="red", shop="Bonn")
    bury(other, b"3", TAGS="blue")

    one, two, three = dead(admin, group, 3)
    assert bodies((one, two, three)) == [b"1", b"2", b"3"]
    assert (one.origin_topic, one.tags, one.keys) == (topic, "red", "k1 k2")
    assert (one.message_id, one.origin_message_id) == (first.message_id, first.offset_message_id)
    assert (one.failures, one.why, one.size, one.replays) == (1, "failed once", 1, 0)
    assert one.born_timestamp == first.born_timestamp
    assert one.store_timestamp >= first.store_timestamp
    assert one.message.properties["shop"] == "Bonn"
    assert three.origin_topic == other

    every = admin.dead_letters(group, 1)
    assert (every.counts, every.total, every.scanned, every.complete) == ({topic: 2, other: 1}, 3, 3, True)
    assert bodies(every.letters) == [b"3"], "the newest"
    newest = admin.dead_letters(group, scan=2)
    assert (newest.complete, newest.scanned, bodies(newest.letters)) == (False, 2, [b"2", b"3"])
    for wanted, expected in [
        ({"topic": topic}, [b"1", b"2"]),
        ({"tags": "blue || green"}, [b"3"]),
        ({"key": "k2"}, [b"1", b"2"]),
        ({"key": "k"}, []),
        ({"ids": [second.message_id]}, [b"2"]),
        ({"ids": [first.offset_message_id.lower(), three.message.offset_message_id]}, [b"1", b"3"]),
        ({"since": two.store_timestamp + 3_600_000}, []),
        ({"until": one.store_timestamp - 1}, []),
        ({"since": one.store_timestamp, "until": three.store_timestamp}, [b"1", b"2", b"3"]),
    ]:
        assert bodies(dead(admin, group, 3, **wanted)) == expected, wanted


@pytest.mark.feature("admin/dlq-replay", "admin/dlq-replay-once")
def test_dead_letters_are_replayed_once_as_what_they_were(admin, client, topic, group, bury):
    bury(topic, b"1", b"2", b"3", KEYS="k1", TAGS="red", shop="Bonn")
    one, *_ = dead(admin, group, 3)
    dry = admin.replay_dead_letters(group, dry_run=True)
    assert (dry.replayed, dry.by_target) == (3, {topic: 3})
    assert {letter.fate for letter in dry.letters} == {LetterFate.WOULD_BE_REPLAYED}
    assert client.max_offset(topic) == 3, "a dry run sends nothing"

    seen: list[LetterFate] = []
    partly = admin.replay_dead_letters(group, limit=2, rate=1000.0, each=lambda letter: seen.append(letter.fate))
    assert (partly.replayed, seen) == (2, [LetterFate.REPLAYED] * 2)
    eventually(lambda: client.max_offset(topic) == 5)
    copy = client.pull_all("g", topic)[3]
    assert (copy.body, copy.tags, copy.keys, copy.flag) == (b"1", "red", "k1", 7)
    assert (copy.message_id, copy.reconsume_times) == (one.message_id, 0)
    assert copy.offset_message_id == partly.letters[0].stored_as
    own = {name: copy.properties[name] for name in ("shop", REPLAYED_FROM, REPLAY_COUNT)}
    place = f"{dlq_topic(group)}@{one.broker_name}:{one.queue_id}:{one.queue_offset}"
    assert own == {"shop": "Bonn", REPLAYED_FROM: place, REPLAY_COUNT: "1"}
    assert not {PropertyName.RETRY_TOPIC, PropertyName.DELAY_LEVEL, PropertyName.ORIGIN_MESSAGE_ID} & set(
        copy.properties
    )

    def fates(**order: Any) -> list[LetterFate]:
        return [letter.fate for letter in admin.replay_dead_letters(group, **order).letters]

    # The index knows a message a moment after it was stored.
    again = [LetterFate.ALREADY_REPLAYED, LetterFate.ALREADY_REPLAYED, LetterFate.WOULD_BE_REPLAYED]
    eventually(lambda: fates(dry_run=True) == again)
    assert fates() == [LetterFate.ALREADY_REPLAYED, LetterFate.ALREADY_REPLAYED, LetterFate.REPLAYED]
    eventually(lambda: client.max_offset(topic) == 6)
    eventually(lambda: fates(dry_run=True) == [LetterFate.ALREADY_REPLAYED] * 3)
    assert fates(again=True, ids=[one.message_id]) == [LetterFate.REPLAYED]
    eventually(lambda: client.max_offset(topic) == 7)
    assert len(dead(admin, group, 3)) == 3, "the letters stay where they are"


@pytest.mark.feature("admin/dlq-replay-to")
def test_a_group_alone_gets_its_dead_letters_again(admin, client, broker, topic, group, bury, consume):
    """To its retry topic: no other group sees them. What fails again dies at a new place, and may be replayed."""
    bury(topic, b"1", TAGS="red")
    dead(admin, group, 1)
    elsewhere = f"{topic}-elsewhere"
    client.create_topic(broker, elsewhere)
    with pytest.raises(ConfigurationError, match="two places to send to"):
        admin.replay_dead_letters(group, to=elsewhere, to_retry=True)
    assert admin.replay_dead_letters(group, to=elsewhere).by_target == {elsewhere: 1}
    eventually(lambda: client.max_offset(elsewhere) == 1)

    heard = Heard(lambda messages, context: setattr(context, "delay_level_when_next_consume", -1))
    consumer = consume(heard, topic, group=group, max_reconsume_times=3)
    heard.until(1)  # the message as it was sent; it dies again, at a place of its own
    dead(admin, group, 2)
    report = admin.replay_dead_letters(group, to_retry=True, limit=1)
    assert report.by_target == {retry_topic(group): 1}
    heard.until(2)
    consumer.shutdown()
    _, came = heard.deliveries
    assert (came.body, came.topic, came.reconsume_times) == (b"1", topic, 0)
    *_, last = dead(admin, group, 3)
    assert (last.origin_topic, last.failures, last.replays) == (topic, 1, 1)
    assert last.why == "failed once since it was replayed"


def test_dead_letters_of_a_namespace(rocketmq_cluster, client, broker, unique_topic, unique_group, consume):
    """Names without the namespace on the operator's side, with it on the brokers'."""
    client.create_topic(broker, f"ns%{unique_topic}")
    client.send(f"ns%{unique_topic}", b"1", {"UNIQ_KEY": "AB" * 16})
    heard = Heard(lambda messages, context: setattr(context, "delay_level_when_next_consume", -1))
    consumer = consume(heard, unique_topic, namespace="ns")
    with AdminClient(rocketmq_cluster.name_server_address, namespace="ns") as inside:
        heard.until(1)
        (letter,) = dead(inside, unique_group, 1)
        assert (letter.origin_topic, letter.message_id) == (unique_topic, "AB" * 16)
        assert inside.dead_letters(unique_group).topic == dlq_topic(unique_group)
        assert inside.replay_dead_letters(unique_group, to_retry=True).by_target == {retry_topic(unique_group): 1}
        heard.until(2)
        assert heard.deliveries[1].topic == unique_topic
        consumer.shutdown()
        assert inside.replay_dead_letters(unique_group, topic=unique_topic, limit=1).by_target == {unique_topic: 1}
        eventually(lambda: client.max_offset(f"ns%{unique_topic}") == 2)


@pytest.mark.feature("admin/dlq-replay-stops")
def test_what_stops_a_replay_is_said(rocketmq_cluster, admin, topic, group, bury):
    bury(topic, b"1", b"2")
    letters = dead(admin, group, 2)
    for order, kind, text in [
        ({"to": "not-there"}, NotFoundError, "topic 'not-there', where dead letters of group .* does not exist"),
        ({"to": dlq_topic(group)}, ConfigurationError, "is where the dead letters of group .* are already"),
        ({"ids": ["AB"]}, NotFoundError, "no dead letter of group .* has the id AB"),
        ({"limit": 0}, ConfigurationError, "limit=0 must be a whole number greater than 0"),
        ({"rate": 0}, ConfigurationError, "rate=0 must be messages per second, greater than 0"),
        ({"since": "latest"}, ConfigurationError, "leave no dead letter to look at"),
    ]:
        with pytest.raises(kind, match=text):
            admin.replay_dead_letters(group, **order)
    with (
        ClusterProxy(rocketmq_cluster.name_server_address, on_frame=spoil_the_second) as proxy,
        AdminClient(proxy.name_server_address) as through,
        pytest.raises(ReplayStoppedError) as caught,
    ):
        through.replay_dead_letters(group)
    assert f"stopped at message {letters[1].message_id} (broker-a:0:1) for topic '{topic}'" in str(caught.value)
    assert "1 replayed before it, that one was not stored, the rest was not tried" in str(caught.value)
    assert [letter.message_id for letter in caught.value.report.letters] == [letters[0].message_id]
    eventually(lambda: admin.replay_dead_letters(group, dry_run=True).replayed == 1)
    admin.create_topic(dlq_topic(group), queues=1, permission="W", update=True)
    with pytest.raises(UnsupportedByBrokerError, match=r"is for writing only\. `rocketstream topic create"):
        admin.dead_letters(group)


@pytest.mark.feature("admin/dlq-replay-stops")
def test_what_cannot_be_sent_again_is_said(admin, client, topic, group, bury, consume, configure):
    (fine,) = bury(topic, b"1")
    dead(admin, group, 1)
    client.send(dlq_topic(group), b"from nowhere")
    client.send(dlq_topic(group), b"not zlib", {PropertyName.RETRY_TOPIC: topic}, sys_flag=1)
    report = admin.replay_dead_letters(group)
    assert [letter.fate for letter in report.letters] == [LetterFate.REPLAYED, LetterFate.SKIPPED, LetterFate.SKIPPED]
    assert report.letters[0].message_id == fine.message_id
    assert report.letters[1].why == "nothing says which topic it was sent to: give one"
    assert "body cannot be inflated" in (report.letters[2].why or "")
    again = admin.replay_dead_letters(group, to=topic, ids=[report.letters[1].message_id])
    assert again.by_target == {topic: 1}, "whoever says where to need not know where from"

    configure(messageIndexEnable=False)
    with pytest.raises(UnsupportedByBrokerError, match=r"has no index \(messageIndexEnable=false\)"):
        admin.replay_dead_letters(group)
    assert admin.replay_dead_letters(group, again=True, dry_run=True, limit=1).replayed == 1
    consume(Heard(lambda messages, context: OrderlyResult.SUCCESS), topic, group=group, orderly=True)
    with pytest.raises(UnsupportedByBrokerError, match="consumes in order, and brokers put what is sent to the retry"):
        admin.replay_dead_letters(group, to_retry=True, again=True)


def spoil_the_second(direction: str, command: Command) -> Command:
    """A send that a broker refuses."""
    if direction == "up" and command.code == RequestCode.SEND_MESSAGE_V2 and command.body == b"2":
        command.fields["b"] = "SCHEDULE_TOPIC_XXXX"
    return command


@pytest.mark.feature("admin/asyncio")
def test_operators_on_an_event_loop(rocketmq_cluster, admin, client, topic, group, bury):
    bury(topic, b"1", b"2")
    dead(admin, group, 2)

    async def operate() -> None:
        async with aio.AdminClient(rocketmq_cluster.name_server_address) as operator:
            assert (await operator.dead_letters(group)).counts == {topic: 2}
            seen: list[str] = []
            done = await operator.replay_dead_letters(
                group, limit=1, each=lambda letter: seen.append(letter.message_id)
            )
            assert [letter.message_id for letter in done.letters] == seen
            assert (await operator.reset_offset(group, topic, offsets={("broker-a", 0): 1})).queues[0].new_offset == 1
            (settings,) = await operator.group_settings(group)
            assert settings.max_retries == 3
            await operator.create_group(group, max_retries=5, update=True)
            assert not (await operator.consumer_connections(group)).online
            assert not (await operator.producer_connections("nobody")).online
            assert (await operator.broker_config("broker-a"))["brokerName"] == "broker-a"
            assert "brokerVersionDesc" in await operator.broker_runtime("broker-a")
            assert "listenPort" in await operator.name_server_config()
            with pytest.raises(NotFoundError, match="it has no member online"):
                await operator.running_info(group, "nobody")
            await operator.delete_group(group, offsets=True)

    asyncio.run(operate())
