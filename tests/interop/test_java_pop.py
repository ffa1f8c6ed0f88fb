"""Java's own push consumer and ours pop: Java from the embedded broker, and both as members of one group."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rocketstream import (
    AdminClient,
    ConsumeContext,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from rocketstream.broker.embedded import EmbeddedBroker
from rocketstream.broker.pop import Pop
from rocketstream.consumer import pop_flow
from rocketstream.testing import RocketMQCluster
from rocketstream.testing.jars import resolve_jars
from rocketstream.testing.java import find_java
from rocketstream.testing.node import JAVA_17_DOORS, PROFILES
from rocketstream.testing.plugin import require_real
from tests.bare_client import eventually, eventually_async
from tests.interop.java_peer import JavaMember, JavaPeer

PROGRAM = Path(__file__).with_name("java_pop") / "JavaPop.java"
COUNT = 100
QUEUES = 4
WAIT = 6000  # tries of `eventually`: what a member had popped when it left comes again after 60 s


@pytest.mark.slow(15, "waits for what a Java consumer does by the clock")
def test_a_java_consumer_pops(tmp_path: Path) -> None:
    """(Its orderly consumer never does: it pulls whatever it is told.)"""
    require_real("5.5.0")
    with EmbeddedBroker(data=tmp_path / "data") as broker:
        node = broker._node
        assert node is not None
        done = subprocess.run(
            [
                *(
                    str(find_java().executable),
                    *JAVA_17_DOORS,
                    *PROFILES["test"],
                    "-Xmx200m",
                    f"-Duser.home={tmp_path}",
                ),
                *("-cp", resolve_jars("5.5.0").classpath, str(PROGRAM)),
                *(node.name_server_address, node.address, "popped", "java", str(COUNT)),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        (pop,) = (service for service in node.services if isinstance(service, Pop))
        eventually(lambda: len(pop.leases) == 0)
    times = json.loads(done.stdout.splitlines()[-1])
    assert times == {str(number): 1 + (number % 10 == 7) for number in range(COUNT)}


# --- members of both kinds -------------------------------------------------------------------------------------------


class PythonMember:
    """A consumer of ours with the words of a `JavaMember`."""

    def __init__(self, address: str, name: str, group: str, topic: str) -> None:
        self._bodies: list[str] = []
        self._lock = threading.Lock()
        self.fails = False
        self.failures = 0
        self._consumer = PushConsumer(
            group,
            address,
            listener=self._listen,
            start_from=StartFrom.FIRST,
            instance_name=name,
            client_rebalance=False,
            rebalance_interval=0.5,
            pop_batch_nums=4,
        )
        self._consumer.subscribe(topic)
        self._consumer.start()

    def _listen(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        if self.fails:
            with self._lock:
                self.failures += len(messages)
            return ConsumeResult.RECONSUME_LATER
        with self._lock:
            self._bodies += [message.body.decode() for message in messages]
        return ConsumeResult.SUCCESS

    @property
    def queue_ids(self) -> set[int]:
        return {queue.queue_id for queue in self._consumer.assignment}

    @property
    def received(self) -> list[str]:
        with self._lock:
            return list(self._bodies)

    def shutdown(self) -> None:
        self._consumer.shutdown()


Members = dict[str, PythonMember | JavaMember]


@pytest.fixture
def members(
    rocketmq_cluster: RocketMQCluster, java_peer: JavaPeer, unique_topic: str, unique_group: str
) -> Iterator[tuple[Members, Callable[[str], None]]]:
    """The members of a group that pops, by their names, and how to add one."""
    address = rocketmq_cluster.name_server_address
    with AdminClient(address) as admin:
        admin.create_topic(unique_topic, QUEUES)
        admin.create_group(unique_group)
        admin.set_request_mode(unique_group, unique_topic, "POP")
    there: Members = {}

    def join(name: str) -> None:
        if "java" in name:
            unique = f"{name}-{unique_group}"
            there[name] = java_peer.start_member(unique, unique_group, unique_topic, "AVG", brokerRebalance=True)
        else:
            there[name] = PythonMember(address, name, unique_group, unique_topic)

    yield there, join
    for member in there.values():
        member.shutdown()


def received(members: Members) -> list[str]:
    return [body for member in members.values() for body in member.received]


@pytest.mark.feature("pop/mixed-group")
@pytest.mark.rocketmq_versions("5.5.0")
@pytest.mark.slow(40, "members of two clients join and leave one after the other")
def test_java_and_python_members_pop_as_one_group(rocketmq_cluster, unique_topic, members, monkeypatch):
    """Each message once; whoever stays goes on with what the others leave, also with what they failed at."""
    monkeypatch.setattr(pop_flow, "DELAYS", (1,))
    there, join = members
    with Producer("pop-mixed", rocketmq_cluster.name_server_address, send_timeout=10.0) as producer:
        sent: list[str] = []

        def send(count: int) -> None:
            for _ in range(count):
                sent.append(str(len(sent)))
                producer.send(Message(unique_topic, sent[-1].encode()))

        for name in ("java-1", "python-1", "java-2", "python-2"):
            join(name)
        for name in ("python-1", "python-2"):
            eventually(lambda name=name: there[name].queue_ids == {-1}, tries=WAIT)
        for name in ("java-1", "java-2"):
            eventually(lambda name=name: {q.queue_id for q in there[name].assignment} == {-1}, tries=WAIT)

        async def send_some() -> None:
            await asyncio.to_thread(send, 8)

        # Who comes first takes what there is, and Java's first pop may have to wait for some seconds.
        asyncio.run(eventually_async(send_some, lambda: all(one.received for one in there.values()), WAIT))
        eventually(lambda: len(received(there)) >= len(sent), tries=WAIT)
        assert sorted(received(there), key=int) == sent, "each message once"

        for name in ("java-1", "python-1"):
            there[name].shutdown()
        send(60)
        eventually(lambda: len(received(there)) >= len(sent), tries=WAIT)
        assert sorted(received(there), key=int) == sent

        # What ours fails at comes again, to whoever is there then: Java, once ours have left.
        there["java-2"].shutdown()
        python = there["python-2"]
        python.fails = True
        send(8)
        eventually(lambda: python.failures >= 8, tries=WAIT)
        python.shutdown()
        join("java-3")
        eventually(lambda: len(received(there)) >= len(sent), tries=WAIT)
        assert sorted(received(there), key=int) == sent
