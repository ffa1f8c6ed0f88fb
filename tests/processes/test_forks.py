"""Clients and processes: who may use a client, what a child gets that may not, and that the parent goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rocketstream import AdminClient

HOME = Path(__file__).parents[2]


def run(way: str, address: str, topic: str, **environment: str) -> dict[str, Any]:
    """Run the program, and return what it saw."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.processes.forked", way, address, topic],
        cwd=HOME,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "never awaited" not in done.stderr, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.mark.feature("processes/forked-client")
@pytest.mark.parametrize("loop", [{}, {"NO_UVLOOP": "1"}], ids=["uvloop", "asyncio"])
def test_whatever_a_child_does_with_its_parents_client_is_one_clear_error(embedded_broker, loop):
    """By reflection, so that a new method cannot be forgotten; none hangs, and the parent's clients go on."""
    with AdminClient(embedded_broker.address) as admin:
        admin.create_topic("orders")
    seen = run("every_method", embedded_broker.address, "orders", **loop)["seen"]
    assert {what: came for what, came in seen.items() if came != "ForkedClientError"} == {}
    for what in ("plain Producer started.send_async()", "aio PushConsumer started.shutdown()", "EmbeddedBroker.stop()"):
        assert what in seen, "the reflection finds what there is"
    assert len(seen) > 150


@pytest.mark.feature("processes/own-clients")
def test_every_kind_of_child_may_have_clients_of_its_own(rocketmq_cluster, topic):
    seen = run("own_life", rocketmq_cluster.name_server_address, topic)
    problems = {kind: seen.pop(f"{kind} argument") for kind in ("fork", "forkserver", "spawn")}
    assert seen == {
        "os.fork": "forked",
        "grandchild": "grandchild",
        "thread": "from-a-thread",
        "fork": "fork",
        "forkserver": "forkserver",
        "spawn": "spawn",
    }
    assert problems["fork"] == "started", "a fork sends nothing: what it uses is refused there"
    for kind in ("forkserver", "spawn"):
        assert problems[kind].startswith("<Producer f-parent RUNNING")
        assert "cannot be pickled or copied" in problems[kind]
        assert "Create a client in the process that uses it" in problems[kind]


@pytest.mark.feature("processes/blocks")
def test_what_ends_a_child_is_not_hidden_by_the_blocks_that_it_leaves(embedded_broker):
    seen = run("blocks", embedded_broker.address, "unused")
    assert seen["raised"] == "ValueError: of the child"
    assert seen["exit"] == "SystemExit: 3"
    assert seen["left"].startswith("ForkedClientError: producer of group 'f-left' was made in process")


@pytest.mark.feature("processes/pickling")
def test_no_client_can_be_pickled():
    assert set(run("pickled", "127.0.0.1:1", "unused").values()) == {"NotPicklableError"}
