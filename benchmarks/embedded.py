"""The embedded broker against RocketMQ 5.5.0, in one run: how soon it is useful, what it takes, how fast it is.

    python benchmarks/embedded.py [--rounds 3] [--messages 200000] [--only start,throughput,polls]

Both run as processes of their own, empty, on this machine, and are used by the same Python client.

- start: from launching the process to the first message in a push consumer's listener (the consumer and the producer
  are started in that time, too)
- memory: resident memory of the server's processes after the first message
- send: messages of 200 B a second, by `send_async` with `auto_batch`, and singly by `send_async`
- drain: messages of 200 B a second that one client reads from four queues, 32 a pull, decoding every record
- polls: CPU of the embedded broker while it holds 1,000 long polls and nothing happens

The machine is shared by client and server, so only the ratios mean something.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.drain import drain
from rocketstream import AdminClient, ConsumeResult, Message, Producer, PushConsumer, StartFrom
from rocketstream.cluster.client_id import client_id, unique_instance_name
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.settings import ClientSettings
from rocketstream.remoting.io_thread import IoThread
from rocketstream.testing import RocketMQCluster
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.command import request
from rocketstream.wire.headers.pull import PullMessageRequestHeader

BODY = os.urandom(200)
POLLS = 1_000
POLLING_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs, whichever it is."""

    address: str
    pids: Sequence[int]
    launched_at: float


@contextlib.contextmanager
def embedded() -> Iterator[Server]:
    """The embedded broker as a user starts it."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketstream", "broker", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield Server(ready["name_server"], (process.pid,), begun)
    finally:
        process.terminate()
        process.communicate()


@contextlib.contextmanager
def rocketmq(profile: str = "test") -> Iterator[Server]:
    """A name server and a broker. The profile "test" starts soonest; "benchmark" runs fastest."""
    begun = time.perf_counter()
    with RocketMQCluster("5.5.0", profile="benchmark" if profile == "benchmark" else "test") as cluster:
        pids = [node.pid for node in (*cluster.name_servers, *cluster.brokers)]
        yield Server(cluster.name_server_address, [pid for pid in pids if pid is not None], begun)


def resident_mib(pids: Sequence[int]) -> float:
    """The resident memory of some processes."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_of(pid: int) -> float:
    """The CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_message(server: Server) -> float:
    """Seconds from the server's launch to its first message in a listener."""
    consumed = threading.Event()

    def listener(messages: object, context: object) -> ConsumeResult:
        consumed.set()
        return ConsumeResult.SUCCESS

    with Producer("first", server.address) as producer:
        producer.send(Message("first", BODY))
        consumer = PushConsumer("first", server.address, listener=listener, start_from=StartFrom.FIRST)
        consumer.subscribe("first")
        with consumer:
            assert consumed.wait(60), "the first message was not consumed"
            return time.perf_counter() - server.launched_at


def send(server: Server, topic: str, count: int, *, auto_batch: bool) -> float:
    """Messages a second."""
    with Producer(f"send-{uuid.uuid4().hex[:6]}", server.address, auto_batch=auto_batch) as producer:
        for future in [producer.send_async(Message(topic, BODY)) for _ in range(1_000)]:
            future.result()
        begun = time.perf_counter()
        futures = [producer.send_async(Message(topic, BODY)) for _ in range(count)]
        for future in futures:
            future.result()
        return count / (time.perf_counter() - begun)


def drained(server: Server, topic: str, expected: int) -> float:
    """Messages a second."""
    io = IoThread.shared()
    instance = ClientInstance(client_id(unique_instance_name()), ClientSettings.make(server.address))
    io.run(instance.start())
    try:
        begun = time.perf_counter()
        count = io.run(drain(instance, topic, "drain"))
        assert count >= expected, f"{count} of {expected} messages were found"
        return count / (time.perf_counter() - begun)
    finally:
        io.run(instance.stop())


def held_polls(server: Server) -> float:
    """The share of one CPU that the server takes while it holds many long polls of an empty topic."""
    topic, io = "quiet", IoThread.shared()
    with AdminClient(server.address) as admin:
        admin.create_topic(topic, queues=4)
    instance = ClientInstance(client_id(unique_instance_name()), ClientSettings.make(server.address))
    io.run(instance.start())

    async def hold() -> list[asyncio.Future[object]]:
        route = await instance.routes.refresh(topic)
        queue = route.read_queues[0]
        broker = instance.brokers.master(queue.broker_name)
        assert broker is not None
        fields = PullMessageRequestHeader(
            consumer_group="quiet",
            topic=topic,
            queue_id=queue.queue_id,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=2 | 4,
            commit_offset=0,
            suspend_timeout_millis=60_000,
            subscription="*",
            sub_version=1,
            expression_type="TAG",
        ).to_fields()
        polls = [
            instance.remoting.begin(broker.address, request(RequestCode.PULL_MESSAGE, fields), 90.0)
            for _ in range(POLLS)
        ]
        return list(polls)

    try:
        polls = io.run(hold())
        time.sleep(1.0)
        begun, cpu = time.perf_counter(), cpu_of(server.pids[0])
        time.sleep(POLLING_SECONDS)
        share = (cpu_of(server.pids[0]) - cpu) / (time.perf_counter() - begun)
        assert not any(poll.done() for poll in polls), "a poll was answered: they were not held"
        return share
    finally:
        io.run(instance.stop())


@dataclass(frozen=True, slots=True)
class Result:
    """One number of both, and their ratio."""

    name: str
    ours: float
    theirs: float
    unit: str
    target: float
    at_most: bool

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def reached(self) -> bool:
        return self.ratio <= self.target if self.at_most else self.ratio >= self.target

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        return (
            f"{self.name:>22}: {self.ours:>10,.2f} {self.unit}, RocketMQ {self.theirs:>10,.2f}: {self.ratio:6.3f} x"
            f" (target {sign} {self.target}: {'reached' if self.reached else 'MISSED'})"
        )


def starting(rounds: int) -> Iterator[Result]:
    """Start and memory: a fresh server each time."""
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    memory: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(rounds):
        for who, make in (("ours", embedded), ("theirs", rocketmq)):
            with make() as server:
                seconds[who].append(first_message(server))
                memory[who].append(resident_mib(server.pids))
                print(f"  {who}: {seconds[who][-1]:.2f} s to the first message, {memory[who][-1]:.0f} MiB", flush=True)
    median = statistics.median
    yield Result("first message", median(seconds["ours"]), median(seconds["theirs"]), "s", 0.1, True)
    yield Result("memory after start", median(memory["ours"]), median(memory["theirs"]), "MiB", 0.15, True)


def throughput(rounds: int, messages: int) -> Iterator[Result]:
    """Sends and drains, alternating between two servers that run all the time."""
    rates: dict[tuple[str, str], list[float]] = {}
    with embedded() as ours, rocketmq("benchmark") as theirs:
        for number in range(rounds + 1):  # the first warms up the JVM, and us
            for who, server in (("ours", ours), ("theirs", theirs)):
                with AdminClient(server.address) as admin:
                    admin.create_topic(f"t{number}", queues=4)
                    admin.create_topic(f"s{number}", queues=4)
                turn = {
                    "send_async, auto_batch": send(server, f"t{number}", messages, auto_batch=True),
                    "send_async, singly": send(server, f"s{number}", messages // 5, auto_batch=False),
                    "drain": drained(server, f"t{number}", messages),
                }
                shown = ", ".join(f"{name} {rate:,.0f}/s" for name, rate in turn.items())
                print(f"  {who}{' (warm-up)' if not number else ''}: {shown}", flush=True)
                if number:
                    for name, rate in turn.items():
                        rates.setdefault((name, who), []).append(rate)
    for name in turn:
        medians = [statistics.median(rates[name, who]) for who in ("ours", "theirs")]
        yield Result(name, *medians, "messages/s", 0.3, False)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--only", default="start,throughput,polls")
    arguments = parser.parse_args()
    wanted = set(arguments.only.split(","))
    results: list[Result] = []
    if "start" in wanted:
        results += starting(arguments.rounds)
    if "throughput" in wanted:
        results += throughput(arguments.rounds, arguments.messages)
    print()
    for result in results:
        print(result)
    if "polls" in wanted:
        with embedded() as server:
            share = held_polls(server)
        verdict = "reached" if share < 0.05 else "MISSED"
        print(f"{POLLS:,} held long polls take {share:.1%} of one CPU (target < 5 %: {verdict})")


if __name__ == "__main__":
    main()
