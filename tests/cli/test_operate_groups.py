"""What an operator does with groups, clients and servers on the command line, as a person and as a program read it."""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rocketstream import AdminClient, ConsumeResult, Message, Producer, PushConsumer, StartFrom
from rocketstream.admin.errors import ReplayStoppedError
from rocketstream.admin.letters import REPLAYED_FROM, DeadLetter, DeadLetters
from rocketstream.admin.replays import LetterFate, ReplayedLetter, ReplayReport
from rocketstream.cli._console import is_wide
from rocketstream.cli.app import COMMANDS, make_app
from rocketstream.message import ReceivedMessage
from tests.bare_client import BareConsumer, eventually
from tests.cli.printed import rows
from tests.contract.consuming import Heard
from tests.dead_letters import bury


@pytest.mark.feature("admin/command-line")
def test_dead_letters_are_seen_and_sent_again(run, client, topic, unique_group):
    run("group", "create", unique_group, "--max-retries", "3")
    none = run("dlq", "list", unique_group)
    assert (none.stdout, none.stderr) == ("", f"No dead letter of group {unique_group} matches, of 0 looked at.\n")
    one, two = bury(client, unique_group, topic, b'{"a": 1}', b"two", KEYS="k1", TAGS="red", shop="[bold]Bonn")
    eventually(lambda: json.loads(run("dlq", "list", unique_group, "--json").stdout)["total"] == 2)

    listed = run("dlq", "list", unique_group)
    first, second = rows(listed)
    assert [first[1], first[2], first[3], first[4], first[5], first[7], first[8]] == [
        topic,
        one.message_id,
        "red",
        "k1",
        "failed once",
        "8",
        "broker-a:0:0",
    ]
    assert second[2] == two.message_id
    assert listed.stdout.endswith(f"2 of topic {topic}\nGroup {unique_group}: 2 dead letters, 2 shown\n")
    bodies = run("dlq", "list", unique_group, "--bodies", "--limit", "1").stdout
    assert f"{topic}: failed once, sent " in bodies
    assert "    shop=[bold]Bonn\n    two\n" in bodies
    told = json.loads(run("dlq", "list", unique_group, "--key", "k1", "--since", "1h", "--json").stdout)
    assert told["counts"] == {topic: 2}
    assert [(letter["body"], letter["origin_topic"], letter["why"]) for letter in told["letters"]] == [
        ('{"a": 1}', topic, "failed once"),
        ("two", topic, "failed once"),
    ]

    dry = run("dlq", "replay", unique_group, "--id", one.message_id, "--dry-run")
    assert rows(dry) == [[one.message_id, topic, "broker-a:0:0", "would be replayed", topic]]
    assert f"Group {unique_group}: 1 would be replayed; nothing was done (--dry-run)" in dry.stdout
    done = run("dlq", "replay", unique_group, "--rate", "100", "--limit", "1")
    assert done.stdout.endswith(f"Group {unique_group}: 1 replayed\n")
    eventually(lambda: client.max_offset(topic) == 3)
    assert client.pull_all("g", topic)[2].properties[REPLAYED_FROM].endswith("@broker-a:0:0")
    nothing = f"Group {unique_group}: 0 replayed; 1 replayed before (--again replays them once more)\n"
    eventually(lambda: run("dlq", "replay", unique_group, "--id", one.message_id).stdout.endswith(nothing))
    gone = run("dlq", "replay", unique_group, "--to", "not-there", code=1)
    assert gone.stderr.startswith("rocketstream: topic 'not-there', where dead letters of group")


@pytest.mark.feature("admin/try")
def test_a_dead_letter_is_tried_once_more(run, rocketmq_cluster, client, topic, unique_group):
    def listen(messages, context):
        if messages[0].tags == "bad":
            raise ValueError("no such shop: Bonn")
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(unique_group, rocketmq_cluster.name_server_address, listener=listen)
    consumer.subscribe(topic, "neither")
    with consumer:
        (bad,) = bury(client, unique_group, topic, b"1", TAGS="bad")
        (good,) = bury(client, unique_group, topic, b"2", TAGS="good")
        eventually(lambda: json.loads(run("dlq", "list", unique_group, "--json").stdout)["total"] == 2)
        failed = run("dlq", "try", unique_group, bad.message_id, code=1)
        assert failed.stdout.startswith(f"{consumer.client_id}: CR_THROW_EXCEPTION after ")
        assert "no such shop: Bonn" in failed.stdout
        passed = json.loads(run("dlq", "try", unique_group, good.message_id, "--json").stdout)
        assert (passed["result"], passed["client_id"]) == ("CR_SUCCESS", consumer.client_id)
        with AdminClient(rocketmq_cluster.name_server_address) as admin:
            assert admin.consume_directly(unique_group, good.message_id, topic).succeeded
            assert admin.consume_directly(unique_group, bad.offset_message_id).result == "CR_THROW_EXCEPTION"
        nobody = run("dlq", "try", unique_group, good.message_id, "--client", "somebody", code=1)
        assert f"client 'somebody' is not in group '{unique_group}'" in nobody.stderr
        unknown = run("dlq", "try", unique_group, "ABCD", code=1)
        assert f"no dead letter of group '{unique_group}' has the id 'ABCD'" in unknown.stderr
    offline = run("dlq", "try", unique_group, good.message_id, code=1)
    assert "has no member online: nobody could take the message" in offline.stderr


@pytest.mark.feature("admin/trace")
def test_what_happened_to_a_message_is_shown(run, rocketmq_cluster, client, broker, topic, unique_group):
    address, traces = rocketmq_cluster.name_server_address, f"{topic}-traces"
    client.create_topic(broker, traces)
    heard = Heard()
    consumer = PushConsumer(unique_group, address, listener=heard, start_from=StartFrom.FIRST, trace=traces)
    consumer.subscribe(topic)
    with Producer("tracing-p", address, trace=traces, send_timeout=10.0) as producer, consumer:
        receipt = producer.send(Message(topic, b"1"))
        heard.until(1)
    eventually(lambda: len(_steps(receipt.message_id, traces)) == 2)
    sent, consumed = rows(run("trace", receipt.message_id, "--topic", traces))
    assert [sent[1], sent[2], sent[4], sent[6], sent[7]] == ["sent", "tracing-p", "ok", "normal", topic]
    assert [consumed[1], consumed[2], consumed[4], consumed[6]] == ["consumed", unique_group, "ok", "success"]
    missing = run("trace", "0" * 32, "--topic", traces, code=1)
    assert missing.stderr.startswith(f"rocketstream: topic '{traces}' tells nothing of message '{'0' * 32}': nobody")


def _steps(message_id: str, topic: str) -> list[object]:
    done = CliRunner().invoke(make_app(), ["trace", message_id, "--topic", topic, "--json"])
    steps = json.loads(done.stdout)["steps"] if done.exit_code == 0 else []
    return [step for step in steps if step["success"] is not None]


@pytest.mark.feature("admin/command-line")
def test_members_of_a_group_are_shown_and_told_apart(run, rocketmq_cluster, client, topic, unique_group):
    heard = Heard()
    consumer = PushConsumer(
        unique_group, rocketmq_cluster.name_server_address, listener=heard, start_from=StartFrom.FIRST
    )
    consumer.subscribe(topic, "red")
    with consumer:
        alone = run("connections", unique_group)
        (member,) = rows(alone)
        assert (member[0], member[2], member[5], member[1]) == (
            consumer.client_id,
            "PYTHON",
            "broker-a",
            f"{topic}: red",
        )
        assert f"Group {unique_group}: members online: 1, CLUSTERING CONSUME_PASSIVELY" in alone.stdout
        told = json.loads(run("connections", unique_group, "--json").stdout)
        assert (told["online"], told["disagreements"], told["silent"]) == (True, [], [])
        assert told["members"][0]["client_id"] == consumer.client_id

        info = run("consumer-info", unique_group, "--stack", "--properties")
        assert next(row[:3] for row in rows(info) if row[0] == topic) == [topic, "broker-a", "0"]
        assert f"subscribes to {topic}: red (TAG)" in info.stdout
        assert "PROP_CONSUME_TYPE = CONSUME_PASSIVELY" in info.stdout
        assert f"{consumer.client_id} in group {unique_group} since " in info.stdout
        assert json.loads(run("consumer-info", unique_group, consumer.client_id, "--json").stdout)["orderly"] is False

        # One that says nothing of itself: it can be compared with nobody, but the brokers heard that it wants all.
        client.instance.register_consumer(BareConsumer(unique_group, topic))
        client.run(client.instance.heartbeat())
        eventually(lambda: "did not say what it subscribes to" in run("connections", unique_group).stderr)
        several = run("consumer-info", unique_group, code=2)
        assert "has 2 members online: say which (" in several.stderr
        client.run(client.instance.unregister_consumer(unique_group))
        second = PushConsumer(unique_group, rocketmq_cluster.name_server_address, listener=heard, instance_name="2")
        second.subscribe(topic, "blue")
        with second:
            loud = run("connections", unique_group, code=1)
            assert "MEMBERS DISAGREE: topic " in loud.stderr
            assert f"{second.client_id} wants 'blue'" in loud.stderr
    offline = run("connections", unique_group)
    assert (offline.stdout, offline.stderr) == ("", f"No member of group {unique_group} is online.\n")
    assert "has no member online: there is nobody to ask" in run("consumer-info", unique_group, code=2).stderr
    nobody = run("connections", "nobody-ever", "--producers")
    assert nobody.stderr.startswith("No producer of group nobody-ever is connected;")
    assert json.loads(run("connections", "nobody-ever", "--producers", "--json").stdout)["members"] == []


@pytest.mark.feature("admin/command-line")
def test_servers_and_groups_are_shown_and_changed(run, broker, client, topic, unique_group):
    eventually(lambda: CliRunner().invoke(make_app(), ["brokers"]).exit_code == 0)  # 5.5.0 has to sample itself first
    (shown,) = rows(run("brokers"))
    assert shown[:4] == ["DefaultCluster", "broker-a", "master", broker]
    assert json.loads(run("brokers", "--json").stdout)["brokers"][0]["problem"] is None

    assert run("config", "broker-a", "brokerName").stdout == "broker-a\n"
    some = run("config", "broker-a", "broker*")
    assert ["brokerName", "broker-a"] in rows(some)
    assert all(name.lower().startswith("broker") for name, _ in rows(some))
    assert json.loads(run("config", broker, "listenPort", "--json").stdout) == {"listenPort": broker.split(":")[1]}
    assert "putTps" in json.loads(run("config", "broker-a", "--runtime", "--json").stdout)
    assert "has no setting called nonsense" in run("config", "broker-a", "nonsense", code=1).stderr
    assert "no broker is called 'broker-z'" in run("config", "broker-z", code=1).stderr

    made = run("group", "create", unique_group, "--max-retries", "5", "--no-broadcast")
    assert rows(made) == [["broker-a", "yes", "no", "5", "1", "no"]]
    assert made.stdout.endswith(f"Group {unique_group} is ready.\n")
    assert "update=True changes it" in run("group", "create", unique_group, "--max-retries", "6", code=2).stderr
    assert json.loads(run("group", "show", unique_group, "--json").stdout)[0]["max_retries"] == 5
    client.send(topic, b"1")
    other = f"{unique_group}-other"
    run("group", "create", other)
    assert rows(run("reset", unique_group, topic, "--to", "end"))[0][3] == "1"
    assert rows(run("reset", other, topic, "--like", unique_group, "--dry-run"))[0][3] == "1"
    assert rows(run("reset", other, topic, "--at", "broker-a:0=1"))[0][3] == "1"
    assert rows(run("reset", other, topic, "--to", "0", "--dry-run"))[0][2:] == ["1", "0", "1", "0", "1"]
    back = run("reset", other, topic, "--to", "begin")
    assert f"Group {other} in topic {topic} is moved: 0 messages skipped, 1 once more." in back.stdout
    assert run("group", "delete", unique_group, "--offsets").stdout == (
        f"Group {unique_group} is deleted with its offsets.\n"
    )
    assert "does not exist" in run("group", "delete", unique_group, code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("dlq", "list", "g", "--since", "later"), "--since 'later': expected earliest"),
        (("dlq", "list", "g", "--tags", " || "), "the subscription ' || ' to topic '%DLQ%' names no tag"),
        (
            ("dlq", "replay", "g", "--to", "t", "--to-retry"),
            "`to` and `to_retry` are two places to send to: give one",
        ),
        (("dlq", "replay", "g", "--rate", "0"), "rate=0.0 must be messages per second"),
        (("dlq", "replay", "a/b"), "group='a/b' has illegal characters"),
        (("connections", "g", "--topic", "t"), "--topic says which brokers to ask for producers"),
        (("reset", "g", "t", "--at", "broker-a=1"), "--at 'broker-a=1': expected BROKER:QUEUE=OFFSET"),
        (("reset", "g", "t", "--at", "b:0=1", "--to", "end"), "say where to: --to WHERE"),
        (("reset", "g", "t", "--at", "b:0=1", "--queue", "0"), "offsets= names its queues"),
        (("reset", "g", "t", "--to", "4000000000000"), "to=4000000000000 is in the future"),
        (("group", "create", "g", "--max-retries", "-1"), "max_retries=-1 must be a whole number from 0"),
        (("group", "delete", "TOOLS_CONSUMER"), "group='TOOLS_CONSUMER' is RocketMQ's own"),
    ],
)
def test_wrong_arguments_are_one_sentence_and_code_2(arguments, problem):
    done = CliRunner().invoke(make_app(), [*arguments, "-n", "127.0.0.1:1"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"rocketstream: {problem}")
    assert len(done.stderr.splitlines()) == 1


def replayed(number: int, fate: LetterFate = LetterFate.REPLAYED, why: str | None = None) -> ReplayedLetter:
    return ReplayedLetter(f"ID{number}", "orders", "broker-a", 0, number, fate, "orders", why)


class FakeAdmin:
    """An operator's client whose replay goes as a test says."""

    def __init__(self, *letters: ReplayedLetter, end: BaseException | None = None) -> None:
        self.letters = letters
        self.end = end
        self.order: dict[str, object] = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def replay_dead_letters(self, group, *, each, **order):
        self.order = order
        for letter in self.letters:
            each(letter)
        if self.end is not None:
            raise self.end
        return ReplayReport(group, bool(order["dry_run"]), self.letters, {"orders": ("audit", "search")})


def replay(monkeypatch, admin: FakeAdmin, *options: str):
    monkeypatch.setattr("rocketstream.cli._connection.Connection.admin", lambda self: admin)
    return CliRunner().invoke(make_app(), ["dlq", "replay", "g", *options, "-n", "127.0.0.1:1"])


def test_who_else_gets_what_is_replayed_is_said_loudly(monkeypatch):
    done = replay(monkeypatch, FakeAdmin(replayed(1)), "--dry-run")
    assert done.stderr == (
        "Topic orders is consumed by others, who would get them too: audit, search (--to-retry: g alone)\n"
    )
    assert done.exit_code == 0


def test_a_replay_that_stops_or_is_interrupted_says_how_far_it_came(monkeypatch):
    report = ReplayReport("g", False, (replayed(1), replayed(2)), {})
    stopped = replay(
        monkeypatch, FakeAdmin(replayed(1), replayed(2), end=ReplayStoppedError("it stopped at ID3", report))
    )
    assert stopped.exit_code == 1
    assert [row[0] for row in rows(stopped)] == ["ID1", "ID2"]
    assert stopped.stderr == "rocketstream: it stopped at ID3\n"
    interrupted = replay(monkeypatch, FakeAdmin(replayed(1), replayed(2), end=KeyboardInterrupt()))
    assert interrupted.exit_code == 130
    assert interrupted.stderr == "2 replayed before it ended; what was under way may be replayed too\n"


def test_what_was_skipped_is_shown_first_and_fails_the_command(monkeypatch):
    letters = [replayed(number) for number in range(30)]
    done = replay(monkeypatch, FakeAdmin(*letters, replayed(99, LetterFate.SKIPPED, why="unreadable")))
    assert done.exit_code == 1
    assert rows(done)[0][:4] == ["ID99", "orders", "broker-a:0:99", "skipped: unreadable"]
    assert "... and 11 more (--json shows them all)" in done.stdout
    assert done.stdout.endswith("Group g: 30 replayed; 1 skipped\n")


def test_what_is_asked_for_reaches_the_client(monkeypatch):
    admin = FakeAdmin()
    options = ["--to-retry", "--topic", "t", "--tags", "a || b", "--key", "k", "--id", "1", "--id", "2", "--limit", "5"]
    replay(monkeypatch, admin, *options, "--rate", "2.5", "--again", "--until", "1700000000000")
    assert admin.order == {
        "to": None,
        "to_retry": True,
        "limit": 5,
        "rate": 2.5,
        "again": True,
        "dry_run": False,
        "ids": ["1", "2"],
        "key": "k",
        "tags": "a || b",
        "topic": "t",
        "since": None,
        "until": 1_700_000_000_000,
    }


def test_help_shows_every_command_where_it_belongs():
    shown = CliRunner().invoke(make_app(), ["--help"]).stdout
    for command in COMMANDS:
        assert f"│ {command} " in shown
    for panel in ("Run something", "Topics and messages", "Consumer groups", "Servers"):
        assert f"─ {panel} ─" in shown


def test_a_narrow_terminal_gets_what_it_can_show(monkeypatch):
    """Lines instead of a table of nine columns, and no columns that fold into one letter each."""
    message = ReceivedMessage("%DLQ%g", b"1", properties={"UNIQ_KEY": "AB12"})
    letter = DeadLetter("orders", "AB12", None, "broker-a", 0, 17, "[red]", "k1", 3, 1, 2, 1, 0, message)
    found = DeadLetters("g", "%DLQ%g", (letter,), {"orders": 1}, 1, True)

    class Admin(FakeAdmin):
        def dead_letters(self, group, limit, **wanted):
            return found

    monkeypatch.setattr("rocketstream.cli._connection.Connection.admin", lambda self: Admin())
    monkeypatch.setattr("rocketstream.cli.dlq.is_wide", lambda console: False)
    done = CliRunner().invoke(make_app(), ["dlq", "list", "g", "-n", "127.0.0.1:1"])
    assert done.stdout.splitlines()[0].endswith(
        "  orders  AB12  tags=[red]  keys=k1  failed 3 times  1 bytes  broker-a:0:17"
    )


@pytest.mark.parametrize(("terminal", "width", "wide"), [(True, 80, False), (True, 160, True), (False, 80, True)])
def test_what_is_wide(terminal, width, wide):
    assert is_wide(Console(force_terminal=terminal, width=width)) is wide
