"""Capture the golden frames of `tests/wire/golden/frames` again: `python -m tests.interop.capture_golden`.

RocketMQ's own Java client talks to RocketMQ's own brokers, of both versions and crosswise, through a recording proxy.
Of each kind of frame one request and its response are kept, next to what the Java client was asked to send and what
its consumer made of it. It takes a minute or two; `tests/wire/test_golden.py` then checks every file.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rocketstream.testing.cluster import RocketMQCluster
from rocketstream.testing.cluster_proxy import ClusterProxy
from rocketstream.testing.recording import Direction, Recorded
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command
from tests.interop.java_peer import JavaPeer

FRAMES = Path(__file__).parents[1] / "wire" / "golden" / "frames"
VERSIONS = ("5.5.0", "4.9.7")
SERIALIZE_TYPE = "rocketmq.serialize.type"

# What the Java client is asked to send: every kind of text, a flag, a compressed body, a batch.
PLAIN: dict[str, Any] = {
    "body": "grüße 🚀",
    "tags": "paid",
    "keys": "k1 k2",
    "properties": {"region": "eu", "größe": "订单"},
    "flag": 7,
}
COMPRESSED = {"body": "compress me " * 200, "tags": "big"}
BATCH = {"bodies": ["batch 0", "batch 1", "batch 2"], "tags": "several"}
MESSAGES = 2 + len(BATCH["bodies"])
COMPRESS_OVER = 1024


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A request and its response, if it has one."""

    request: Recorded
    response: Recorded | None
    asked: Command
    answered: Command | None


def exchanges(recorded: list[Recorded]) -> Iterator[Exchange]:
    """The requests of both sides, each with the answer to it."""
    answers: dict[tuple[int, Direction, int], Recorded] = {}
    for item in recorded:
        command = item.command
        if command is not None and command.is_response:
            answers[item.connection, item.direction, command.opaque] = item
    for item in recorded:
        command = item.command
        if command is None or command.is_response:
            continue
        back: Direction = "down" if item.direction == "up" else "up"
        answer = None if command.is_one_way else answers.get((item.connection, back, command.opaque))
        if command.is_one_way or answer is not None:
            yield Exchange(item, answer, command, answer.command if answer else None)


def answered(exchange: Exchange) -> bool:
    """Whether it was answered with success."""
    return exchange.answered is not None and exchange.answered.code == ResponseCode.SUCCESS


def wanted(topic: str, group: str) -> dict[str, Callable[[Exchange], bool]]:
    """What is kept, by name: of several frames of a kind the last one that fits."""
    mine = group.encode()

    def about(code: RequestCode, **fields: str) -> Callable[[Exchange], bool]:
        return lambda it: it.asked.code == code and all(it.asked.fields.get(k) == v for k, v in fields.items())

    def both(*conditions: Callable[[Exchange], bool]) -> Callable[[Exchange], bool]:
        return lambda it: all(condition(it) for condition in conditions)

    tagged = "TAGS\x01{}".format
    sent = RequestCode.SEND_MESSAGE_V2
    return {
        "route": both(about(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic), answered),
        "heartbeat": both(about(RequestCode.HEART_BEAT), answered, lambda it: mine in it.asked.body),
        "send": both(about(sent, b=topic), answered, lambda it: tagged("paid") in it.asked.fields["i"]),
        "send compressed": both(about(sent, b=topic), answered, lambda it: tagged("big") in it.asked.fields["i"]),
        "send batch": both(about(RequestCode.SEND_BATCH_MESSAGE, b=topic), answered),
        "pull": both(about(RequestCode.PULL_MESSAGE, topic=topic, queueOffset="0"), answered),
        "query offset": about(RequestCode.QUERY_CONSUMER_OFFSET, topic=topic, consumerGroup=group),
        "update offset": about(RequestCode.UPDATE_CONSUMER_OFFSET, topic=topic, commitOffset=str(MESSAGES)),
        "lock": both(about(RequestCode.LOCK_BATCH_MQ), answered, lambda it: topic.encode() in it.asked.body),
        "unlock": both(about(RequestCode.UNLOCK_BATCH_MQ), lambda it: topic.encode() in it.asked.body),
        "consumer list": both(about(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group), answered),
        "members changed": about(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup=group),
        "unregister": both(about(RequestCode.UNREGISTER_CLIENT, consumerGroup=group), answered),
    }


def pick(proxy: ClusterProxy, topic: str, group: str) -> dict[str, Exchange]:
    """What has been seen so far of what is wanted."""
    seen = [exchange for part in proxy.proxies for exchange in exchanges(list(part.recorded))]
    found: dict[str, Exchange] = {}
    for name, fits in wanted(topic, group).items():
        for exchange in seen:
            if fits(exchange):
                found[name] = exchange
    return found


def capture(cluster: RocketMQCluster, client_version: str, encoding: str) -> dict[str, Any]:
    """One session of a Java client, as what is stored of it."""
    label = f"{client_version}-{encoding.lower()}".replace(".", "-")
    topic, group = f"golden-{label}", f"golden-group-{label}"
    with (
        ClusterProxy(cluster.name_server_address, record=True) as proxy,
        JavaPeer(client_version, proxy.name_server_address, jvm_properties={SERIALIZE_TYPE: encoding}) as peer,
    ):
        (broker,) = peer.create_topic(topic, queues=1)
        queue = (broker, 0)
        receipts = [
            *peer.produce(topic, [PLAIN["body"].encode()], queue=queue, **{k: PLAIN[k] for k in PLAIN if k != "body"}),
            *peer.produce(
                topic, [COMPRESSED["body"].encode()], queue=queue, tags=COMPRESSED["tags"], compress_over=COMPRESS_OVER
            ),
            *peer.produce(
                topic, [body.encode() for body in BATCH["bodies"]], queue=queue, tags=BATCH["tags"], batch=MESSAGES
            ),
        ]
        # One more than there are: it goes on until the time is over, so that all offsets are known when it leaves.
        consumed = peer.consume(group, topic, count=MESSAGES + 1, timeout=5.0, orderly=True)
        assert len(consumed) == MESSAGES
        missing = set(wanted(topic, group))
        for _ in range(100):  # what a shutting consumer sends one-way may still be on its way
            found = pick(proxy, topic, group)
            missing = set(wanted(topic, group)) - set(found)
            if not missing:
                break
            time.sleep(0.1)
        if missing:
            raise SystemExit(f"client {client_version} on {cluster.version}, {encoding}: never seen: {sorted(missing)}")
    return {
        "client": client_version,
        "broker": cluster.version,
        "encoding": encoding,
        "topic": topic,
        "group": group,
        "broker_name": broker,
        "broker_address": cluster.brokers[0].address,
        "sent": {"plain": PLAIN, "compressed": COMPRESSED, "batch": BATCH},
        "receipts": [dataclasses.asdict(receipt) for receipt in receipts],
        "consumed": [
            {**dataclasses.asdict(message), "body": message.body.decode()}
            for message in sorted(consumed, key=lambda message: message.queue_offset)
        ],
        "frames": {
            name: {
                "from": "client" if found[name].request.direction == "up" else "broker",
                "request": found[name].request.data.hex(),
                "response": found[name].response.data.hex() if found[name].response else None,
            }
            for name in wanted(topic, group)
        },
    }


def main() -> None:
    """Capture every combination and write one file for each."""
    FRAMES.mkdir(parents=True, exist_ok=True)
    for broker_version in VERSIONS:
        with RocketMQCluster(broker_version) as cluster:
            for client_version in VERSIONS:
                store(capture(cluster, client_version, "JSON"))
        # RocketMQ 4.9 answers in the encoding it was asked in, 5.x in its own; so the broker is told to use it too.
        with RocketMQCluster(broker_version, broker_jvm_properties={SERIALIZE_TYPE: "ROCKETMQ"}) as cluster:
            store(capture(cluster, broker_version, "ROCKETMQ"))


def store(session: dict[str, Any]) -> None:
    """Write a session's file."""
    path = FRAMES / "client-{client}-broker-{broker}-{encoding}.json".format(**session).lower()
    path.write_text(json.dumps(session, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    size = max(len(frame["response"] or "") // 2 for frame in session["frames"].values())
    print(f"{path.name}: {len(session['frames'])} kinds, the largest response has {size} bytes")


if __name__ == "__main__":
    main()
