"""Drain a topic: our remoting and record decoder against the Java push consumer, alternating, in one run.

    python benchmarks/drain.py [--messages 500000] [--rounds 3] [--version 5.5.0]

What is compared: messages per second from the first to the last message, and CPU seconds of the client's process per
message, for the same topic on the same broker at its default limits (32 messages a pull). Ours pulls every queue with
one request in flight each and decodes all records; Java is a push consumer with a consume batch of 32 that only
counts. The process of the broker shares the machine with both, so only the ratios mean something.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.rounds import Round, cpu_seconds
from rocketstream.cluster.client_id import client_id, unique_instance_name
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.settings import ClientSettings
from rocketstream.message import MessageQueue
from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.replies import read_pull_result
from rocketstream.testing import RocketMQCluster
from rocketstream.wire.codes import PullStatus, RequestCode
from rocketstream.wire.command import request
from rocketstream.wire.headers.pull import PullMessageRequestHeader
from rocketstream.wire.record_decoder import decode_records
from tests.interop.java_peer import JavaPeer

PULL = RequestCode.PULL_MESSAGE


def pull_fields(queue: MessageQueue, group: str, ask: int) -> dict[str, str]:
    """The header of a pull of a queue's first messages that the broker answers at once."""
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=0,
        max_msg_nums=ask,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=1,
        expression_type="TAG",
    ).to_fields()


async def drain_queue(instance: ClientInstance, address: str, group: str, queue: MessageQueue) -> int:
    """Pull a queue to its end, decoding every record; return how many there were."""
    fields = pull_fields(queue, group, 32)
    begin = instance.remoting.begin
    count = offset = 0
    pull = begin(address, request(PULL, fields), 30.0)
    while True:
        result = read_pull_result(address, PULL, await pull)
        if result.status is not PullStatus.FOUND:
            return count
        fields["queueOffset"] = str(result.next_offset)
        pull = begin(address, request(PULL, fields), 30.0)
        await asyncio.sleep(0)  # the next pull leaves; its messages are read while we decode these
        decoded = decode_records(result.body, queue=queue, min_offset=result.min_offset, max_offset=result.max_offset)
        assert not decoded.corrupt
        messages = decoded.messages
        assert messages[0].queue_offset == offset
        assert messages[-1].queue_offset + 1 == result.next_offset
        count += len(messages)
        offset = result.next_offset


async def drain(instance: ClientInstance, topic: str, group: str) -> int:
    """All queues of a topic at once."""
    route = await instance.routes.refresh(topic)
    pulls = []
    for queue in route.read_queues:
        broker = instance.brokers.master(queue.broker_name)
        assert broker is not None
        pulls.append(drain_queue(instance, broker.address, group, queue))
    return sum(await asyncio.gather(*pulls))


def ours(io: IoThread, instance: ClientInstance, topic: str, group: str) -> Round:
    cpu, begun = cpu_seconds(), time.perf_counter()
    messages = io.run(drain(instance, topic, group))
    return Round("ours", messages, time.perf_counter() - begun, cpu_seconds() - cpu)


def javas(peer: JavaPeer, topic: str, group: str, messages: int) -> Round:
    count = peer.consume_count(group, topic, count=messages, timeout=300.0, batch_size=32, pull_batch_size=32)
    assert count.complete, f"Java got {count.messages} of {messages} messages"
    return Round("Java", count.messages, count.seconds, count.cpu_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--json", action="store_true", help="print the result as JSON on the last line")
    arguments = parser.parse_args()

    topic = "drain"
    io = IoThread.shared()
    print(f"starting RocketMQ {arguments.version} ({io!r}) ...", flush=True)
    with (
        RocketMQCluster(arguments.version, profile="benchmark") as cluster,
        JavaPeer(arguments.version, cluster.name_server_address) as peer,
    ):
        peer.create_topic(topic, arguments.queues)
        print(f"filling {topic!r} with {arguments.messages:,} messages of {arguments.size} B ...", flush=True)
        peer.produce(topic, count=arguments.messages, size=arguments.size, batch=100, receipts=False, timeout=600.0)
        instance = ClientInstance(client_id(unique_instance_name()), ClientSettings.make(cluster.name_server_address))
        io.run(instance.start())
        rounds: list[Round] = []
        try:
            io.run(drain(instance, topic, "warm-up"))
            javas(peer, topic, "java-warm-up", arguments.messages)
            for number in range(arguments.rounds):
                for result in (
                    ours(io, instance, topic, f"ours-{number}"),
                    javas(peer, topic, f"java-{number}", arguments.messages),
                ):
                    assert result.messages == arguments.messages
                    rounds.append(result)
                    print(result, flush=True)
        finally:
            io.run(instance.stop())

    medians = {
        who: (
            statistics.median(r.rate for r in rounds if r.who == who),
            statistics.median(r.cpu_micros for r in rounds if r.who == who),
        )
        for who in ("ours", "Java")
    }
    ratio = medians["ours"][0] / medians["Java"][0]
    cpu_ratio = medians["Java"][1] / medians["ours"][1]
    print(f"median of {arguments.rounds}: ours {ratio:.2f} x Java's messages/s, Java {cpu_ratio:.2f} x our CPU/message")
    if arguments.json:
        print(json.dumps({"ratio": ratio, "cpu_ratio": cpu_ratio, "medians": medians}))


if __name__ == "__main__":
    main()
