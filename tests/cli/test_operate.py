"""The operator's commands on the real brokers, as a person and as a program read them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rocketstream import AdminClient
from rocketstream.admin.values import GroupProgress, QueueProgress
from rocketstream.cli import lag as lag_command
from rocketstream.cli.app import make_app
from tests.bare_client import BareConsumer, eventually
from tests.cli.printed import documents, rows


def test_topics_come_and_go(run, rocketmq_cluster, unique_topic):
    created = run("topic", "create", unique_topic, "--queues", "3")
    assert created.stdout.endswith(f"Topic {unique_topic} is ready.\n")
    address = f"{rocketmq_cluster.brokers[0].address} (master)"
    assert rows(created) == [["DefaultCluster", "broker-a", address, "3", "3", "RW"]]

    assert [unique_topic, "normal", "broker-a", "3", "3", "RW"] in rows(run("topics"))
    names = {topic["name"]: topic for topic in json.loads(run("topics", "--json").stdout)}
    assert names[unique_topic]["brokers"] == [
        {"broker_name": "broker-a", "read_queues": 3, "write_queues": 3, "permission": "RW"}
    ]
    assert "TBW102" not in names
    assert "TBW102" in run("topics", "--all").stdout

    assert rows(run("topic", "route", unique_topic)) == rows(created)
    route = json.loads(run("topic", "route", unique_topic, "--offsets", "--json").stdout)
    assert route["brokers"][0]["addresses"] == {"0": rocketmq_cluster.brokers[0].address}
    assert [queue["max_offset"] for queue in route["queues"]] == [0, 0, 0]
    assert ["broker-a", "2", "0", "0", "0", "-"] in rows(run("topic", "route", unique_topic, "--offsets"))

    again = run("topic", "create", unique_topic, "--queues", "5", code=2)
    assert again.stderr == (
        f"rocketstream: topic '{unique_topic}' exists on broker-a with 3 read and 3 write queues, permission 'RW':"
        " update=True changes it\n"
    )
    assert json.loads(run("topic", "create", unique_topic, "-q", "5", "--update", "--json").stdout)["topic"]
    assert run("topic", "delete", unique_topic).stdout == f"Topic {unique_topic} is deleted.\n"
    gone = run("topic", "route", unique_topic, code=1)
    assert gone.stdout == ""
    assert gone.stderr.startswith(f"rocketstream: topic '{unique_topic}' has no route at ")


def test_groups_lag_and_reset(run, rocketmq_cluster, client, topic, unique_group):
    for number in range(4):
        client.send(topic, b"%d" % number)
    client.instance.register_consumer(BareConsumer(unique_group, topic))
    client.run(client.instance.heartbeat())
    (listed,) = [group for group in json.loads(run("groups", "--json").stdout) if group["group"] == unique_group]
    assert listed == {
        "group": unique_group,
        "members": 1,
        "model": "CLUSTERING",
        "consume_type": "CONSUME_PASSIVELY",
        "lag": None,
        "consume_tps": 0.0,
    }
    assert [unique_group, "1", "CLUSTERING", "push", "-", "-"] in rows(run("groups", "--no-lag"))
    nothing = run("lag", unique_group).stdout
    assert nothing == f"Group {unique_group}: has committed no offset yet; members online: 1\n"

    client.run(client.instance.unregister_consumer(unique_group))
    dry = run("reset", unique_group, topic, "--to", "earliest", "--dry-run")
    assert f"Group {unique_group} in topic {topic} would be moved: 0 messages skipped, 0 once more;" in dry.stdout
    assert "has committed no offset yet; no member is online" in run("lag", unique_group).stdout
    done = run("reset", unique_group, topic, "--offset", "1")
    # A 4.9 broker tells whoever has no offset to begin with the first message, if that is still there.
    old, skipped = ("0", "1") if rocketmq_cluster.version == "4.9.7" else ("-", "0")
    assert rows(done) == [["broker-a", "0", old, "1", "4", skipped, "0"]]
    assert f"Group {unique_group} in topic {topic} is moved: {skipped} messages skipped, 0 once more." in done.stdout

    shown = run("lag", unique_group)
    assert rows(shown)[0][:6] == [topic, "broker-a", "0", "4", "1", "3"]
    assert f"Group {unique_group}: lag 3, 0.0 messages/s; no member is online" in shown.stdout
    told = json.loads(run("lag", unique_group, "--topic", topic, "--json").stdout)
    assert (told["lag"], told["queues"][0]["lag"], told["queues"][0]["consumer_offset"]) == (3, 3, 1)
    moved = json.loads(run("reset", unique_group, topic, "--to", "0s", "--json").stdout)
    assert [(queue["old_offset"], queue["new_offset"]) for queue in moved["queues"]] == [(1, 4)]

    one_way = "say where to: --to WHERE, --offset N, --at BROKER:QUEUE=N or --like GROUP, one of them"
    for arguments, problem in [
        ((), one_way),
        (("--to", "latest", "--offset", "1"), one_way),
        (("--to", "someday"), "--to 'someday': expected earliest, latest, a time"),
        (("--offset", "99"), f"offset=99 is not in queue 0 of topic '{topic}' on broker-a: it holds 0 to 4"),
    ]:
        wrong = run("reset", unique_group, topic, *arguments, code=2)
        assert wrong.stderr.startswith(f"rocketstream: {problem}")
    missing = run("lag", "nobody-has-this", code=1)
    assert missing.stderr == ("rocketstream: group 'nobody-has-this' does not exist: no broker knows it (broker-a)\n")


def test_produce_then_look(run, topic):
    sent = run(
        "produce", topic, "--body", '{"a": [1]}', "--tags", "json", "--keys", "k1", "-k", "k2", "-p", "shop=Köln"
    )
    assert sent.stdout.splitlines()[0].startswith("SEND_OK  broker-a/0@0  ")
    assert sent.stdout.splitlines()[1] == "1 message sent"
    (receipt,) = documents(run("produce", topic, "--body", "plain text", "--tags", "text", "--json"))
    assert (receipt["status"], receipt["broker_name"], receipt["queue_offset"]) == ("SEND_OK", "broker-a", 1)
    assert run("produce", topic, stdin=b"line 1\r\n\n\xff\xfe\nline 3").stdout == "3 messages sent\n"

    def shown() -> str:
        return run("messages", topic).stdout

    eventually(lambda: "line 3" in shown())
    lines = shown().splitlines()
    assert len([line for line in lines if not line.startswith("    ")]) == 5
    assert lines[0].endswith("tags=json  keys=k1 k2  10 bytes, json")
    assert lines[1:6] == ["    {", '      "a": [', "        1", "      ]", "    }"]
    assert "shop" not in shown()
    assert "    shop=Köln" in run("messages", topic, "--properties").stdout
    assert "    plain text" in lines
    assert "    00000000  ff fe                                            .." in lines

    only = json.loads(run("messages", topic, "--tags", "text || never", "--json").stdout)
    assert [(message["body"], message["body_encoding"]) for message in only] == [("plain text", "utf-8")]
    (by_id,) = json.loads(run("messages", topic, "--id", receipt["message_id"], "--json").stdout)
    assert by_id["queue_offset"] == 1
    assert json.loads(run("messages", topic, "--id", receipt["offset_message_id"], "--json").stdout) == [by_id]
    eventually(lambda: json.loads(run("messages", topic, "--key", "k2", "--json").stdout))
    (by_key,) = json.loads(run("messages", topic, "--key", "k2", "--json").stdout)
    assert (by_key["tags"], by_key["properties"]["shop"]) == ("json", "Köln")
    assert run("messages", topic, "--key", "k2", "--tags", "text").stdout == ""
    assert len(json.loads(run("messages", topic, "--since", "1h", "--limit", "3", "--json").stdout)) == 3
    nothing = run("messages", topic, "--until", "1d")
    assert (nothing.stdout, nothing.stderr) == ("", f"No message of topic {topic} matches.\n")
    assert [m["queue_offset"] for m in json.loads(run("messages", topic, "--offset", "3", "--json").stdout)] == [3, 4]


def test_produce_many_from_a_file_and_in_order(run, tmp_path, client, topic):
    many = run("produce", topic, "--body", "x", "--count", "300")
    assert many.stdout == "300 messages sent\n"
    eventually(lambda: client.max_offset(topic) == 300)
    path = tmp_path / "lines.txt"
    path.write_bytes(b"one\ntwo\n")
    assert len(documents(run("produce", topic, "--file", str(path), "--json"))) == 1
    ordered = documents(run("produce", topic, "--file", str(path), "--lines", "--sharding-key", "s", "--json"))
    assert [receipt["queue_offset"] for receipt in ordered] == [301, 302]
    eventually(lambda: client.max_offset(topic) == 303)
    last = json.loads(run("messages", topic, "--limit", "3", "--json").stdout)
    assert [message["body"] for message in last] == ["one\ntwo\n", "one", "two"]
    assert last[1]["properties"]["__SHARDINGKEY"] == "s"


def test_produce_with_a_delay(run, topic):
    sent = run("produce", topic, "--body", "later", "--delay-level", "1", "--json")
    assert documents(sent)[0]["status"] == "SEND_OK"
    run("produce", topic, "--body", "at once")

    def messages() -> dict[str, dict[str, object]]:
        return {message["body"]: message for message in json.loads(run("messages", topic, "--json").stdout)}

    eventually(lambda: messages().keys() == {"at once", "later"})
    later = messages()["later"]
    assert later["message_id"] == documents(sent)[0]["message_id"]
    assert later["properties"]["DELAY"] == "1"
    assert later["store_timestamp"] - later["born_timestamp"] >= 1000, "level 1 is a second"
    wrong = run("produce", topic, "--body", "never", "--delay-level", "19", code=2)
    assert wrong.stderr == (
        "rocketstream: delay_level=19 must be a whole number from 0 (none) to 18 (max_delay_level)\n"
    )


def test_what_looks_like_markup_is_shown_as_it_is(run, client, topic):
    client.send(topic, b":rocket: [red]alert[/red]", {"TAGS": ":smile:", "KEYS": "[bold]", "[p]": ":heart:"})
    head, own, body = run("messages", topic, "--properties").stdout.splitlines()
    assert head.endswith("tags=:smile:  keys=[bold]  25 bytes, text")
    assert (own, body) == ("    [p]=:heart:", "    :rocket: [red]alert[/red]")


def test_consume_by_plain_pulls(run, client, topic):
    for number in range(5):
        client.send(topic, b"%d" % number, {"TAGS": "even" if number % 2 == 0 else "odd"})
    first = run("consume", topic, "--from", "earliest", "--limit", "3", "--json")
    assert [message["body"] for message in documents(first)] == ["0", "1", "2"]
    assert first.stderr == "3 messages\n"
    even = run("consume", topic, "--from", "earliest", "--tags", "even", "--idle", "0.2", "--json")
    assert [message["body"] for message in documents(even)] == ["0", "2", "4"]
    nothing = run("consume", topic, "--timeout", "0.2")
    assert (nothing.stdout, nothing.stderr) == ("", "0 messages\n")

    shown = run("consume", topic, "--from", "earliest", "--limit", "1").stdout.splitlines()
    assert shown[0].endswith("tags=even  1 bytes, text")
    assert shown[1] == "    0"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("produce", "t", "--body", "x", "--file", __file__),
            "--body and --file are two ways to give a body: give one",
        ),
        (("produce", "t", "--lines"), "--lines says how to read a --file, and there is none"),
        (("produce", "t", "--count", "2"), "--count repeats one body: it goes with --body or --file, not with lines"),
        (("produce", "t", "--body", "x", "-p", "novalue"), "--property 'novalue': expected NAME=VALUE"),
        (("produce", "a b", "--body", "x"), "topic='a b' has illegal characters"),
        (("consume", "t", "--from", "latest", "--group", "g"), "--from and --group are two ways to say where to begin"),
        (("consume", "t", "--from", "whenever"), "--from 'whenever': expected earliest, latest, a time"),
        (("messages", "t", "--id", "0" * 32, "--key", "k"), "--id names one message: --key, --since, --until and"),
        (("messages", "t", "--key", "k", "--offset", "1"), "--key looks into the brokers' index: --offset does not"),
        (("messages", "t", "--since", "later"), "--since 'later': expected earliest"),
        (("messages", "t", "--since", ":rocket: [red]"), "--since ':rocket: [red]': expected earliest"),
        (("topic", "create", "t", "--permission", "none"), "permission='none' must be one of RW, R, W"),
        (("topics", "--access-key", "a"), "--access-key and --secret-key belong together: one of them is missing"),
        (("topics", "-n", "nonsense"), "name_servers='nonsense': "),
    ],
)
def test_wrong_arguments_are_one_sentence_and_code_2(arguments, problem):
    done = CliRunner().invoke(make_app(), list(arguments), env={"NAMESRV_ADDR": "127.0.0.1:1"})
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"rocketstream: {problem}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "remark"),
    [
        (["topics"], "No topic yet. RocketMQ's own are shown with --all.\n"),
        (["topics", "--all"], "No topic at all.\n"),
        (["groups"], "No group yet.\n"),
    ],
    ids=" ".join,
)
def test_nothing_to_list_is_a_remark_and_no_empty_table(monkeypatch, command, remark):
    monkeypatch.setattr(AdminClient, "topics", lambda self: [])
    monkeypatch.setattr(AdminClient, "groups", lambda self, *, lag: [])
    done = CliRunner().invoke(make_app(), [*command, "-n", "127.0.0.1:1"])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", remark)
    assert CliRunner().invoke(make_app(), [*command, "--json", "-n", "127.0.0.1:1"]).stdout == "[]\n"


def test_lag_is_watched_until_it_is_interrupted(monkeypatch):
    """Each look is a table, or a line of JSON; Ctrl-C ends it with 130."""
    looks = iter([3, 2, 1])

    class Admin:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def consumer_progress(self, group, *, topic):
            try:
                behind = next(looks)
            except StopIteration:
                raise KeyboardInterrupt from None
            return GroupProgress(group, (QueueProgress("t", "b", 0, behind, 0, None),), 0.0, 0)

    monkeypatch.setattr("rocketstream.cli._connection.Connection.admin", lambda self: Admin())
    monkeypatch.setattr(lag_command.threading.Event, "wait", lambda self, seconds: None)
    done = CliRunner().invoke(make_app(), ["lag", "g", "--watch", "--json", "-n", "127.0.0.1:1"])
    assert done.exit_code == 130
    assert [json.loads(line)["lag"] for line in done.stdout.splitlines()] == [3, 2, 1]
