"""10,000 callers at once over lines that are cut 200 times (issue 3, "must show" 4), and the same on the real brokers.

The rule under test: every caller gets exactly one outcome, the right one, and everything it used is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.testing.scripted_server import ScriptedServer
from rocketstream.wire.codes import RequestCode, ResponseCode, SerializeType
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.pull import PullMessageRequestHeader
from tests.faults.storm import ASK, Storm, Talk, echo, storm_over

LOG = "rocketstream.remoting"


def run_storm(scenario: Callable[[], Awaitable[Storm]]) -> Storm:
    async def run() -> Storm:
        storm = await scenario()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "a task is left over"
        return storm

    io = IoThread("storm")  # the loop that clients really run on
    try:
        return io.run(run(), timeout=250)
    finally:
        io.stop()


@pytest.mark.behaviour("REM-01", "REM-05", "REM-06", "REM-07")
@pytest.mark.slow(12, "sends tens of thousands of requests")
def test_10_000_concurrent_requests_over_200_cuts_have_exactly_one_outcome_each(caplog):
    caplog.set_level(logging.ERROR, LOG)

    async def scenario() -> Storm:
        async with ScriptedServer() as server:
            server.on(ASK, echo)
            return await storm_over(server.address, lines=100, callers_per_line=100, cuts_per_line=2)

    storm = run_storm(scenario)
    assert storm.most_at_once == 10_000
    assert storm.cuts.total() == 200
    outcomes = storm.ledger.outcomes
    print(f"{len(storm.ledger.begun)} requests: {dict(outcomes)}; cuts: {dict(storm.cuts)}")  # shown by pytest -rP
    assert set(outcomes) >= {"answered", "ConnectionLostError", "ConnectError", "sent", "walked away"}
    assert "RequestTimeoutError" not in outcomes, "a lost connection is told at once, not by the time-out"
    assert caplog.records == [], "no callback raised, nothing was lost in a log"


def absent(number: int) -> str:
    return f"storm-absent-{number}-"


ROUTE_OF_NOTHING = Talk(
    lambda number: request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": absent(number)}),
    lambda number, answer: answer.code == ResponseCode.TOPIC_NOT_EXIST and absent(number) in (answer.remark or ""),
)


def pull_of_nothing(number: int) -> Command:
    header = PullMessageRequestHeader(
        consumer_group="storm",
        topic=absent(number),
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    return request(RequestCode.PULL_MESSAGE, header)


PULL_OF_NOTHING = Talk(
    pull_of_nothing,
    lambda number, answer: answer.code == ResponseCode.TOPIC_NOT_EXIST and absent(number) in (answer.remark or ""),
)


@pytest.mark.behaviour("REM-01", "REM-05", "REM-06", "REM-07")
@pytest.mark.parametrize("peer", ["name server", "broker"])
@pytest.mark.parametrize("encoding", [SerializeType.JSON, SerializeType.ROCKETMQ], ids=["json", "binary"])
def test_a_storm_in_front_of_the_real_thing(rocketmq_cluster, peer, encoding, caplog):
    caplog.set_level(logging.ERROR, LOG)
    node = rocketmq_cluster.name_servers[0] if peer == "name server" else rocketmq_cluster.brokers[0]
    talk = ROUTE_OF_NOTHING if peer == "name server" else PULL_OF_NOTHING
    storm = run_storm(
        lambda: storm_over(
            node.address,
            lines=10,
            callers_per_line=50,
            cuts_per_line=4,
            talk=talk,
            settings=RemotingSettings(serialize_type=encoding),
        )
    )
    assert (storm.most_at_once, storm.cuts.total()) == (500, 40)
    assert storm.ledger.outcomes["answered"] >= 500
    assert storm.ledger.outcomes["ConnectionLostError"] > 0
