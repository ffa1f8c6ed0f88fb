"""`rocketstream consume --group`: a member of the group, which consumes what it prints and nothing else."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rocketstream import AdminClient, ConsumeResult, PushConsumer
from rocketstream.admin.values import GroupProgress
from rocketstream.cli.app import make_app
from tests.bare_client import BareConsumer
from tests.cli.printed import documents
from tests.cli.test_processes import PROGRAM, environment

# What is said on a terminal does not depend on the broker; the embedded one is shown by test_operate.
pytestmark = pytest.mark.rocketmq_real


@pytest.fixture
def run(rocketmq_cluster) -> Callable[..., Result]:
    """Run a command on the cluster; it must succeed unless a code is given."""

    def run(*arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(make_app(), [*arguments, "-n", rocketmq_cluster.name_server_address])
        assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
        return done

    return run


@pytest.fixture
def admin(rocketmq_cluster):
    with AdminClient(rocketmq_cluster.name_server_address) as admin:
        yield admin


@pytest.fixture
def progress(admin: AdminClient, topic: str, unique_group: str) -> Callable[[], GroupProgress]:
    """How far the group is, its retries included; what was sent back would show there."""
    return lambda: admin.consumer_progress(unique_group)


def at_the_beginning(client: Any, admin: AdminClient, group: str, topic: str) -> None:
    """A group that exists, and whose first message is the topic's first."""
    client.instance.register_consumer(BareConsumer(group, topic))
    client.run(client.instance.heartbeat())
    client.run(client.instance.unregister_consumer(group))
    admin.reset_offset(group, topic, offset=0)


@pytest.mark.slow(12, "starts several processes")
def test_what_is_printed_is_consumed_and_nothing_else(run, client, admin, topic, unique_group, progress):
    for number in range(5):
        client.send(topic, b"%d" % number)
    at_the_beginning(client, admin, unique_group, topic)
    for expected, lag in ((["0", "1"], 3), (["2", "3"], 1)):
        done = run("consume", topic, "--group", unique_group, "--limit", "2", "--json")
        assert [message["body"] for message in documents(done)] == expected
        assert done.stderr == "2 messages\n"
        assert progress().lag == lag
    rest = run("consume", topic, "--group", unique_group, "--idle", "2")
    assert rest.stdout.splitlines()[1] == "    4"
    assert progress().lag == 0
    assert [queue.broker_offset for queue in progress().queues if queue.topic != topic] in ([], [0]), (
        "nothing came back"
    )
    nothing = run("consume", topic, "--group", unique_group, "--timeout", "0.2")
    assert (nothing.stdout, nothing.stderr) == ("", "0 messages\n")
    assert admin.consumers(unique_group).members == ()


def succeed(messages: Any, context: Any) -> ConsumeResult:
    return ConsumeResult.SUCCESS


def test_members_who_want_something_else_are_left_alone(run, rocketmq_cluster, topic, unique_group):
    consumer = PushConsumer(unique_group, rocketmq_cluster.name_server_address, listener=succeed)
    consumer.subscribe(topic, "b || a")
    with consumer:
        refused = run("consume", topic, "--group", unique_group, "--tags", "a", code=2)
        assert refused.stderr.startswith(
            f"rocketstream: --group {unique_group}: its members subscribe to {topic} (b || a). A member that wants"
        )
        assert run("consume", topic, "--group", unique_group, "--tags", "a||b", "--timeout", "0.2").stdout == ""


def test_who_gets_no_queue_is_told_why(run, rocketmq_cluster, topic, unique_group):
    """The topic has one queue, and the member whose id comes first has it."""
    first = PushConsumer(unique_group, rocketmq_cluster.name_server_address, listener=succeed, instance_name="0")
    first.subscribe(topic)
    with first:
        done = run("consume", topic, "--group", unique_group, "--timeout", "0.5")
    assert done.stderr.splitlines() == [
        f"the other members of group {unique_group} have all queues of topic {topic}: nothing will come for now",
        "0 messages",
    ]


def member_process(rocketmq_cluster: Any, topic: str, group: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, "consume", topic, "--group", group, "-n", rocketmq_cluster.name_server_address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )


@pytest.mark.slow(12, "starts several processes")
def test_ctrl_c_leaves_the_group(rocketmq_cluster, client, admin, topic, unique_group, progress):
    client.send(topic, b"the only one")
    at_the_beginning(client, admin, unique_group, topic)
    with member_process(rocketmq_cluster, topic, unique_group) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.stdout.readline() == "    the only one\n"
        process.send_signal(signal.SIGINT)
        rest, problems = process.communicate(timeout=60)
    assert (process.returncode, rest, problems) == (130, "", "1 message\n")
    assert progress().lag == 0
    assert admin.consumers(unique_group).members == ()


@pytest.mark.slow(12, "starts several processes")
def test_what_nobody_reads_any_more_is_not_consumed(rocketmq_cluster, client, admin, topic, unique_group, progress):
    for number in range(20):
        client.send(topic, b"%05d" % number * 4000)
    at_the_beginning(client, admin, unique_group, topic)
    with member_process(rocketmq_cluster, topic, unique_group) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        problems = process.stderr.read()
        process.wait(timeout=60)
    assert (process.returncode, problems) == (1, "")
    assert 15 <= progress().lag <= 20
