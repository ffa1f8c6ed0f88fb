"""RocketMQ's own `mqadmin` on an embedded broker: what an operator sees there is what is in it."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rocketstream import ConsumeResult, Message, Producer, PushConsumer, SendReceipt, StartFrom
from rocketstream.broker.embedded import EmbeddedBroker
from rocketstream.testing.plugin import VERSIONS, require_real
from tests.interop.mqadmin import mqadmin, tools_home

TOPIC, GROUP = "orders", "billing"
COUNT = 5
_WAIT = 60.0


class Shown:
    """A broker whose group has consumed everything, and what mqadmin showed of it, by command."""

    def __init__(self, version: str, home: Path) -> None:
        self.version = version
        self.receipts: list[SendReceipt] = []
        self._all_heard = threading.Event()
        with EmbeddedBroker() as broker:
            self.broker_address = broker.broker_address
            self._printed: dict[str, list[str]] = {}
            self._fill(home, broker)

    def __getitem__(self, command: str) -> str:
        (printed,) = self._printed[command]
        return printed

    def all(self, command: str) -> list[str]:
        return self._printed[command]

    def _run(self, home: Path, broker: EmbeddedBroker, *commands: Sequence[str]) -> None:
        for command, printed in zip(commands, mqadmin(self.version, home, broker.address, *commands), strict=True):
            self._printed.setdefault(command[0], []).append(printed)

    def _fill(self, home: Path, broker: EmbeddedBroker) -> None:
        self._run(home, broker, ("updateTopic", "-c", "DefaultCluster", "-t", TOPIC, "-r", "2", "-w", "2"))
        heard: list[bytes] = []

        def listen(messages: Any, context: Any) -> ConsumeResult:
            heard.extend(message.body for message in messages)
            if len(heard) >= COUNT:
                self._all_heard.set()
            return ConsumeResult.SUCCESS

        consumer = PushConsumer(GROUP, broker.address, listener=listen, start_from=StartFrom.FIRST)
        consumer.subscribe(TOPIC)
        with Producer("p", broker.address, send_timeout=10.0) as producer, consumer:
            for number in range(COUNT):
                message = Message(TOPIC, b"order %d" % number, tags="red", keys=f"key-{number}")
                self.receipts.append(producer.send(message))
            assert self._all_heard.wait(_WAIT)
            # A producer knows its brokers by sending, and they know it by its next heartbeat.
            producer.core.io.run(producer.core.instance.heartbeat())
            last = self.receipts[-1]
            by_id = ("queryMsgById", "-i", last.offset_message_id, *(("-t", TOPIC) if self.version == "5.5.0" else ()))
            self._run(
                home,
                broker,
                ("clusterList",),
                ("topicList",),
                ("topicRoute", "-t", TOPIC),
                ("topicStatus", "-t", TOPIC),
                ("consumerConnection", "-g", GROUP),
                ("producerConnection", "-g", "p", "-t", TOPIC),
                by_id,
                ("queryMsgByKey", "-t", TOPIC, "-k", "key-3"),
                ("queryMsgByUniqueKey", "-t", TOPIC, "-i", last.message_id),
                ("brokerStatus", "-b", broker.broker_address),
                ("getBrokerConfig", "-b", broker.broker_address),
            )
        self._run(
            home,
            broker,
            ("consumerProgress", "-g", GROUP),
            ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0"),
            ("consumerProgress", "-g", GROUP),
            ("updateSubGroup", "-c", "DefaultCluster", "-g", "another"),
            ("cloneGroupOffset", "-s", GROUP, "-d", "another", "-t", TOPIC),
            ("deleteSubGroup", "-c", "DefaultCluster", "-g", "another", "-r", "true"),
            ("deleteTopic", "-c", "DefaultCluster", "-t", TOPIC),
            ("topicList",),
        )


@pytest.fixture(scope="module", params=VERSIONS)
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    chosen = request.config.getoption("--rocketmq-version")
    if chosen and request.param not in chosen:
        pytest.skip(f"not among the chosen versions {chosen}")
    require_real(request.param)
    return Shown(request.param, tools_home(tmp_path_factory.mktemp("mqadmin")))


def rows(printed: str) -> list[list[str]]:
    """The words of each line of a table, without its head."""
    return [line.split() for line in printed.splitlines() if line.strip() and not line.startswith("#")]


def progress(printed: str) -> dict[tuple[str, int], tuple[int, int, int]]:
    """(topic, queue) -> broker offset, consumer offset, difference."""
    found = re.findall(r"^(\S+) +broker-a +(\d+) +(\d+) +(\d+) +(\d+)", printed, re.MULTILINE)
    return {(topic, int(queue)): (int(end), int(at), int(diff)) for topic, queue, end, at, diff in found}


@pytest.mark.slow(20, "asks with mqadmin, which takes seconds to start")
def test_cluster_list(shown):
    (row,) = (row for row in rows(shown["clusterList"]) if row[0] == "DefaultCluster")
    assert row[:5] == ["DefaultCluster", "broker-a", "0", shown.broker_address, "V5_5_0"]
    if shown.version == "5.5.0":
        assert row[-1] == "true", "it is active"


def test_topics_are_made_listed_and_deleted(shown):
    assert f"create topic to {shown.broker_address} success" in shown["updateTopic"]
    before, after = (set(printed.split()) for printed in shown.all("topicList"))
    assert {TOPIC, f"%RETRY%{GROUP}", "TBW102", "SCHEDULE_TOPIC_XXXX"} <= before
    assert before - after == {TOPIC}
    assert f"delete topic [{TOPIC}] from cluster [DefaultCluster] success" in shown["deleteTopic"]


def test_topic_route(shown):
    printed = shown["topicRoute"]
    assert f'"{shown.broker_address}"' in printed
    assert '"brokerName":"broker-a"' in printed
    assert '"readQueueNums":2' in printed
    assert '"writeQueueNums":2' in printed


def test_topic_status(shown):
    table = {int(row[1]): (int(row[2]), int(row[3])) for row in rows(shown["topicStatus"]) if row[0] == "broker-a"}
    assert set(table) == {0, 1}
    assert sum(end - first for first, end in table.values()) == COUNT


def test_consumer_connection(shown):
    printed = shown["consumerConnection"]
    assert re.search(r"PYTHON +V5_5_0", printed)
    assert re.search(rf"^{TOPIC} +\*", printed, re.MULTILINE)
    assert "ConsumeType: CONSUME_PASSIVELY" in printed
    assert "MessageModel: CLUSTERING" in printed
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in printed


def test_producer_connection(shown):
    assert re.search(r"^0001 .* PYTHON +V5_5_0", shown["producerConnection"], re.MULTILINE)


@pytest.mark.parametrize("command", ["queryMsgById", "queryMsgByUniqueKey"])
def test_a_message_by_its_ids(shown, command):
    printed = shown[command]
    last = shown.receipts[-1]
    assert re.search(rf"^Topic: +{TOPIC}$", printed, re.MULTILINE)
    assert re.search(r"^Keys: +\[key-4\]$", printed, re.MULTILINE)
    assert re.search(rf"^Queue Offset: +{last.queue_offset}$", printed, re.MULTILINE)
    assert re.search(rf"^Store Host: +{re.escape(shown.broker_address)}$", printed, re.MULTILINE)
    assert f"UNIQ_KEY={last.message_id}" in printed


def test_a_message_by_its_key(shown):
    wanted = shown.receipts[3]
    (row,) = (row for row in rows(shown["queryMsgByKey"]) if row[0] == wanted.message_id)
    assert (int(row[1]), int(row[2])) == (wanted.queue.queue_id, wanted.queue_offset)


def test_broker_status_and_settings(shown):
    assert re.search(r"^brokerVersionDesc +: V5_5_0$", shown["brokerStatus"], re.MULTILINE)
    assert re.search(rf"^msgPutTotalTodayNow +: {COUNT}$", shown["brokerStatus"], re.MULTILINE)
    assert re.search(r"^brokerName += +broker-a", shown["getBrokerConfig"], re.MULTILINE)


def test_progress_reset_and_clone(shown):
    before, after = map(progress, shown.all("consumerProgress"))
    ends = {queue: end for queue, (end, _, _) in before.items() if queue[0] == TOPIC}
    assert sum(ends.values()) == COUNT
    assert all(before[queue] == (end, end, 0) for queue, end in ends.items())
    reset = {int(row[1]): int(row[2]) for row in rows(shown["resetOffsetByTime"]) if row[0] == "broker-a"}
    assert reset == {0: 0, 1: 0}
    assert all(after[queue] == (end, 0, end) for queue, end in ends.items())
    assert "create subscription group" in shown["updateSubGroup"]
    assert "clone group offset success" in shown["cloneGroupOffset"]
    assert "success" in shown["deleteSubGroup"]
