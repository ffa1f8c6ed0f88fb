"""RocketMQ's own `mqadmin` on groups of Python consumers: what an operator sees of them, and has them do.

On each cluster the tools of its own version are run, on an embedded broker those of both, all commands in one JVM.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rocketstream import (
    AdminClient,
    ConsumeResult,
    Message,
    OrderlyResult,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendReceipt,
    StartFrom,
    TransactionProducer,
    TransactionState,
)
from rocketstream.testing import EmbeddedCluster
from rocketstream.testing.plugin import VERSIONS, require_real
from rocketstream.wire.trace import (
    TRACE_TOPIC,
    ConsumeBeginTrace,
    ConsumeEndTrace,
    ConsumeReturn,
    EndTransactionTrace,
    PublishTrace,
    TracedMessageType,
    decode_traces,
)
from tests.bare_client import eventually
from tests.contract.clusters import AnyCluster
from tests.interop.mqadmin import mqadmin, tools_home

POISON = b"poison"


class Operated:
    """A cluster with consumers of three groups, and what mqadmin printed, by the tools' version and a name."""

    def __init__(self, cluster: AnyCluster, tools: Sequence[str], home: Path) -> None:
        self.cluster = cluster
        self.address = cluster.name_server_address
        self.tools = tools
        self._home = home
        self._ends = ExitStack()
        run = uuid.uuid4().hex[:8]
        self.topic, self.group, self.ordered = f"seen-{run}", f"seen-{run}", f"seen-ordered-{run}"
        self.java_topic, self.java_traces = f"java-{run}", f"java-traces-{run}"
        self.heard: dict[str, list[bytes]] = {self.group: [], self.ordered: []}
        self.printed: dict[str, dict[str, str]] = {}

    def __enter__(self) -> Operated:
        with self._ends as ends:
            self.admin = ends.enter_context(AdminClient(self.address))
            for topic in (self.topic, self.java_topic, self.java_traces):
                self.admin.create_topic(topic, queues=2)
            self.good, self.bad, self.committed = self._send()
            self.consumer = self._consume(self.group, self._listen, trace=True)
            self.in_order = self._consume(self.ordered, self._listen_in_order, orderly=True)
            for group in self.heard:
                eventually(lambda group=group: len(self.heard[group]) >= 3)
                eventually(lambda group=group: self._all_stored(group))
            self._eventually_traced()
            for version in self.tools:
                self.printed[version] = self._run(version)
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.close()

    def _send(self) -> tuple[SendReceipt, SendReceipt, SendReceipt]:
        with Producer("operators-p", self.address, trace=True, send_timeout=10.0) as producer:
            good = producer.send(Message(self.topic, b"good", keys="k1", tags="red"))
            bad = producer.send(Message(self.topic, POISON))
        decide = {"execute": lambda message, arg: TransactionState.COMMIT, "check": lambda m: TransactionState.COMMIT}
        with TransactionProducer("operators-t", self.address, **decide, trace=True, send_timeout=10.0) as transactions:
            committed = transactions.send(Message(self.topic, b"committed"))
        return good, bad, committed

    def _consume(self, group: str, listener: Any, **settings: Any) -> PushConsumer:
        consumer = PushConsumer(
            group,
            self.address,
            listener=listener,
            start_from=StartFrom.FIRST,
            consume_thread_min=4,
            consume_thread_max=4,
            persist_offset_interval=0.3,
            **settings,
        )
        consumer.subscribe(self.topic)
        return self._ends.enter_context(consumer)

    def _listen(self, messages: Sequence[ReceivedMessage], context: Any) -> ConsumeResult:
        again = any(message.body == POISON and POISON in self.heard[self.group] for message in messages)
        self.heard[self.group] += [message.body for message in messages]
        if again:
            raise ValueError("this one is poison")
        return ConsumeResult.SUCCESS

    def _listen_in_order(self, messages: Sequence[ReceivedMessage], context: Any) -> OrderlyResult:
        self.heard[self.ordered] += [message.body for message in messages]
        return OrderlyResult.SUCCESS

    def _all_stored(self, group: str) -> bool:
        queues = [queue for queue in self.admin.consumer_progress(group).queues if queue.topic == self.topic]
        return len(queues) == 2 and all(queue.lag == 0 for queue in queues)

    def traces(self, message_id: str, topic: str = TRACE_TOPIC) -> list[Any]:
        """The records of a message in a trace topic."""
        found = self.admin.messages_by_key(topic, message_id)
        records = [one for message in found for one in decode_traces(message.body.decode())]
        return [record for record in records if record.message_id == message_id]

    def _eventually_traced(self) -> None:
        for receipt, count in ((self.good, 3), (self.bad, 3), (self.committed, 4)):
            eventually(lambda receipt=receipt, count=count: len(self.traces(receipt.message_id)) >= count)

    def _run(self, version: str) -> dict[str, str]:
        topic = ("-t", self.topic) if version == "5.5.0" else ()
        member, in_order = self.consumer.core.client_id, self.in_order.core.client_id
        to_member = ("-g", self.group, "-d", member)
        commands: dict[str, Sequence[str]] = {
            "status": ("consumerStatus", "-g", self.group),
            "member": ("consumerStatus", "-g", self.group, "-i", member, "-s"),
            "in order": ("consumerStatus", "-g", self.ordered, "-i", in_order),
            "progress": ("consumerProgress", "-g", self.group, "-s", "true"),
            "connection": ("consumerConnection", "-g", self.group),
            "directly": ("queryMsgById", "-i", self.good.offset_message_id, *to_member, *topic),
            "directly by key": ("queryMsgByUniqueKey", "-t", self.topic, "-i", self.bad.message_id, *to_member),
            "directly in order": (
                *("queryMsgById", "-i", self.good.offset_message_id, *topic),
                *("-g", self.ordered, "-d", in_order),
            ),
            "trace": ("queryMsgTraceById", "-i", self.good.message_id),
            "java": ("tracedClients", self.java_topic, self.java_traces, self.java_group(version)),
        }
        if version == self.tools[-1]:  # the last of all, because the group goes back to its first message
            commands["reset"] = ("resetOffsetByTime", "-g", self.ordered, "-t", self.topic, "-s", "0", "-f", "true")
        return dict(zip(commands, mqadmin(version, self._home, self.address, *commands.values()), strict=True))

    def java_group(self, version: str) -> str:
        """The group of Java's own consumer of that version."""
        return f"{self.java_topic}-{version.replace('.', '-')}"

    def all(self, name: str) -> list[str]:
        """What a command printed, of all tools."""
        return [printed[name] for printed in self.printed.values()]


@pytest.fixture(scope="module")
def operated(rocketmq_cluster: AnyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    tools = VERSIONS if isinstance(rocketmq_cluster, EmbeddedCluster) else (rocketmq_cluster.version,)
    for version in tools:
        require_real(version)
    with Operated(rocketmq_cluster, tools, tools_home(tmp_path_factory.mktemp("mqadmin"))) as operated:
        yield operated


@pytest.mark.feature("operators/status")
@pytest.mark.slow(22, "asks with mqadmin, which takes seconds to start")
def test_the_members_of_a_group(operated):
    for printed in operated.all("status"):
        assert re.search(rf"^1 +{re.escape(operated.consumer.core.client_id)} +V5_5_0 ", printed, re.MULTILINE)
        assert "Same subscription in the same group of consumer" in printed
        assert "Rebalance OK" in printed
        assert "maybe blocked" not in printed


@pytest.mark.feature("operators/status")
def test_one_member_whole(operated):
    for printed in operated.all("member"):
        assert re.search(r"^PROP_CONSUMEORDERLY +: false$", printed, re.MULTILINE)
        assert re.search(r"^PROP_CLIENT_VERSION +: V5_5_0$", printed, re.MULTILINE)
        assert re.search(rf"^PROP_NAMESERVER_ADDR +: {re.escape(operated.address)};$", printed, re.MULTILINE)
        assert re.search(r"^consumeThreadMin +: 4$", printed, re.MULTILINE)
        assert re.search(rf"Topic: {operated.topic} +ClassFilter: false +SubExpression: \*$", printed, re.MULTILINE)
        offsets = re.findall(rf"^{operated.topic} +\S+ +([01]) +(-?\d+) *$", printed, re.MULTILINE)
        assert {queue for queue, _ in offsets} == {"0", "1"}
        assert sum(max(int(offset), 0) for _, offset in offsets) == 3
        details = re.findall(rf"^{operated.topic} .*ProcessQueueInfo \[(.*)\]$", printed, re.MULTILINE)
        assert len(details) == 2
        assert all("cachedMsgCount=0" in one and "droped=false" in one for one in details)


@pytest.mark.feature("operators/jstack")
def test_where_the_threads_of_a_member_are(operated):
    for printed in operated.all("member"):
        stacks = printed.partition("#Consumer jstack#")[2]
        assert re.search(rf"^rocketstream-consume-{operated.group}-1 +TID: \d+ STATE: ", stacks, re.MULTILINE)
        assert re.search(r"^MainThread +.*subprocess\.run\(subprocess\.py:\d+\)$", stacks, re.MULTILINE)


@pytest.mark.feature("operators/status")
def test_a_member_that_consumes_in_order(operated):
    for printed in operated.all("in order"):
        assert re.search(r"^PROP_CONSUMEORDERLY +: true$", printed, re.MULTILINE)
        details = re.findall(rf"^{operated.topic} .*ProcessQueueInfo \[(.*)\]$", printed, re.MULTILINE)
        assert len(details) == 2
        assert all("locked=true" in one for one in details)


@pytest.mark.feature("operators/progress")
def test_whose_a_queue_is(operated):
    ip = operated.consumer.core.client_id.partition("@")[0]
    for printed in operated.all("progress"):
        rows = re.findall(rf"^{operated.topic} +\S+ +([01]) +(\d+) +(\d+) +(\S+) +(\d+)", printed, re.MULTILINE)
        assert {queue: (end == at, address, diff) for queue, end, at, address, diff in rows} == dict.fromkeys(
            "01", (True, ip, "0")
        )


@pytest.mark.feature("operators/connection")
def test_who_is_connected(operated):
    for printed in operated.all("connection"):
        assert re.search(rf"^{re.escape(operated.consumer.core.client_id)} .* PYTHON +V5_5_0", printed, re.MULTILINE)
        assert "ConsumeType: CONSUME_PASSIVELY" in printed


@pytest.mark.feature("operators/directly")
def test_a_message_given_to_a_listener(operated):
    told = "ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult={}, remark={}, spentTimeMills="
    for printed in operated.all("directly"):
        assert told.format("CR_SUCCESS", "null") in printed
    assert operated.heard[operated.group].count(b"good") == 1 + len(operated.tools)
    for printed in operated.all("directly by key"):
        assert "consumeResult=CR_THROW_EXCEPTION, remark=ValueError: this one is poison, " in printed
        assert "Operated._listen(test_operators.py:" in printed
    assert operated.heard[operated.group].count(POISON) == 1 + len(operated.tools), "and it does not come again"


@pytest.mark.feature("operators/directly")
def test_a_message_given_to_a_listener_that_keeps_order(operated):
    for printed in operated.all("directly in order"):
        assert "[order=true, autoCommit=true, consumeResult=CR_SUCCESS, remark=null" in printed
    assert operated.heard[operated.ordered].count(b"good") >= 1 + len(operated.tools)


@pytest.mark.feature("trace/mqadmin")
def test_the_trace_of_a_message(operated):
    for printed in operated.all("trace"):
        assert re.search(r"^Pub +operators-p +\S+ +\S+ \S+ +\d+ms +success", printed, re.MULTILINE)
        consumed = re.findall(rf"^Sub +{operated.group} +\S+ +\S+ \S+ +\d+ms +(\w+)", printed, re.MULTILINE)
        assert consumed == ["success"], "what an operator gave to the listener is not in the trace, as in Java"


@pytest.mark.feature("trace/publish")
@pytest.mark.feature("trace/consume")
def test_the_records_of_a_message(operated):
    by_kind = {type(record): record for record in operated.traces(operated.good.message_id)}
    published = by_kind[PublishTrace]
    assert (published.topic, published.tags, published.keys) == (operated.topic, "red", "k1")
    assert (published.offset_message_id, published.success) == (operated.good.offset_message_id, True)
    assert (published.region, published.message_type) == ("DefaultRegion", TracedMessageType.NORMAL)
    begin, end = by_kind[ConsumeBeginTrace], by_kind[ConsumeEndTrace]
    assert begin.request_id == end.request_id
    assert (begin.group, begin.keys, begin.region) == (operated.group, "k1", "DefaultRegion")
    assert (end.group, end.success, end.returned) == (operated.group, True, ConsumeReturn.SUCCESS)


@pytest.mark.feature("trace/transactions")
def test_the_trace_of_a_transaction(operated):
    by_kind = {type(record): record for record in operated.traces(operated.committed.message_id)}
    assert by_kind[PublishTrace].message_type is TracedMessageType.TRANSACTION_HALF
    end = by_kind[EndTransactionTrace]
    assert (end.state, end.from_check, end.group) == ("COMMIT_MESSAGE", False, "operators-t")
    assert end.transaction_id == operated.committed.transaction_id


@pytest.mark.feature("trace/java")
def test_the_records_of_javas_own_clients_are_read(operated):
    for version, printed in operated.printed.items():
        message_id = printed["java"].split()[-1]
        assert re.fullmatch("[0-9A-F]+", message_id), printed["java"]
        eventually(lambda message_id=message_id: len(operated.traces(message_id, operated.java_traces)) >= 3)
        group = operated.java_group(version)
        records = operated.traces(message_id, operated.java_traces)
        by_kind = {type(record): record for record in records if record.group.startswith(group)}
        published = by_kind[PublishTrace]
        assert (published.topic, published.tags, published.keys) == (operated.java_topic, "red", "java-key")
        assert (published.group, published.body_length, published.success) == (f"{group}-p", 14, True)
        begin, end = by_kind[ConsumeBeginTrace], by_kind[ConsumeEndTrace]
        assert (begin.group, begin.request_id, begin.keys) == (group, end.request_id, "java-key")
        assert (end.group, end.success, end.returned) == (group, True, ConsumeReturn.SUCCESS)


@pytest.mark.feature("operators/reset")
@pytest.mark.slow(12, "a client pauses for ten seconds when it is reset")
def test_a_reset_reaches_a_running_member(operated):
    printed = operated.printed[operated.tools[-1]]["reset"]
    rows = re.findall(r"^\S+ +([01]) +(\d+) *$", printed, re.MULTILINE)
    assert dict(rows) == {"0": "0", "1": "0"}

    def told() -> bool:
        status = operated.in_order.status()
        # 4.9 tells the members, 5.x says it to their next pulls. In 10 s all of it comes again.
        again = operated.heard[operated.ordered].count(b"good") > 1 + len(operated.tools)
        return status.paused or any(queue.dropped for queue in status.queues) or again

    eventually(told)
