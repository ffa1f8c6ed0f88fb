"""RocketMQ's own Java client as a peer: what it sends we must read, what we send it must read.

    with JavaPeer("5.5.0", cluster.name_server_address) as peer:
        peer.produce("orders", bodies=[b"1", b"2"], tags="paid")
        peer.consume("group", "orders", count=2)

The program is `java/*.java`; it is compiled once per source and version into the user's cache. It dies with us.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from rocketstream.message import MessageQueue
from tests.interop.java_program import JavaPeerError, JavaProgram, compile_peer
from tests.interop.java_values import (
    JavaCount,
    JavaMessage,
    JavaReceipt,
    JavaReply,
    JavaSends,
    JavaTransactions,
    read_message,
    read_messages,
    read_receipt,
)

__all__ = ["JavaCount", "JavaMember", "JavaMessage", "JavaPeer", "JavaPeerError", "JavaReceipt", "compile_peer"]

_T = TypeVar("_T")
TransactionState = Literal["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]  # Java's spelling


class JavaPeer(JavaProgram):
    """The Java client of one RocketMQ version, in a process of its own."""

    def ping(self) -> None:
        """Return once it answers."""
        self.call("ping")

    def create_topic(self, topic: str, queues: int = 8, *, perm: int = 6) -> list[str]:
        """Create a topic on every master and return their names, once the name servers know all of them."""
        return list(self.call("create-topic", topic=topic, queues=queues, perm=perm)["brokers"])

    def produce(
        self,
        topic: str,
        bodies: Sequence[bytes] = (),
        *,
        count: int | None = None,
        size: int = 100,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int | None = None,
        delay_level: int | None = None,
        timer_delay_ms: int | None = None,
        timer_deliver_ms: int | None = None,
        sharding_key: str | None = None,
        queue: tuple[str, int] | None = None,
        mode: Literal["sync", "async", "oneway"] = "sync",
        batch: int = 0,
        compress_over: int = 4096,
        compress_type: Literal["ZLIB", "LZ4", "ZSTD"] = "ZLIB",
        namespace: str | None = None,
        receipts: bool = True,
        timeout: float = 60.0,
    ) -> list[JavaReceipt]:
        """Send `bodies`, or `count` messages of `size` bytes; `batch` many in one request unless that is 0.

        `queue` is (broker name, queue id). A batch gives one receipt. Without `receipts`, which are many for a
        benchmark, and one-way the list is empty.
        """
        answer = self.call(
            "produce",
            timeout=timeout,
            topic=topic,
            bodies=[base64.b64encode(body).decode() for body in bodies],
            count=len(bodies) if count is None else count,
            size=size,
            tags=tags,
            keys=keys,
            properties=dict(properties) if properties is not None else None,
            flag=flag,
            delayLevel=delay_level,
            timerDelayMs=timer_delay_ms,
            timerDeliverMs=timer_deliver_ms,
            mode=mode,
            shardingKey=sharding_key,
            brokerName=queue[0] if queue is not None else None,
            queueId=queue[1] if queue is not None else None,
            batch=batch,
            compressOver=compress_over,
            compressType=compress_type,
            namespace=namespace,
            receipts=receipts,
        )
        return [read_receipt(receipt) for receipt in answer["receipts"]]

    def recall(self, topic: str, handle: str) -> str:
        """Take a timer message back; returns its id."""
        return str(self.call("recall", topic=topic, handle=handle)["msgId"])

    def produce_by_keys(self, topic: str, sharding_keys: Sequence[str], *, timeout: float = 60.0) -> list[JavaReceipt]:
        """Send one message per key with Java's `SelectMessageQueueByHash`."""
        answer = self.call("produce-by-keys", timeout=timeout, topic=topic, shardingKeys=list(sharding_keys))
        return [read_receipt(receipt) for receipt in answer["receipts"]]

    def produce_benchmark(
        self,
        topic: str,
        mode: Literal["sync", "batch", "async"],
        *,
        count: int,
        size: int,
        batch: int = 100,
        in_flight: int = 1000,
        timeout: float = 300.0,
    ) -> JavaSends:
        """Send `count` messages: one after the other, in batches, or with at most `in_flight` unanswered."""
        answer = self.call(
            "produce-benchmark",
            timeout=timeout,
            topic=topic,
            mode=mode,
            count=count,
            size=size,
            batch=batch,
            inFlight=in_flight,
        )
        return JavaSends(answer["messages"], float(answer["seconds"]), float(answer["cpuSeconds"]))

    def transact(
        self, group: str, topic: str, executed: Sequence[TransactionState], *, timeout: float = 30.0, **what: Any
    ) -> list[JavaReceipt]:
        """Send one transactional message per state, whose body it is; wait until `checks` of them were checked back."""
        transacting = self.start_transacting(group, topic, executed, timeout=timeout, **what)
        return transacting.result(timeout + 30.0).receipts

    def start_transacting(
        self,
        group: str,
        topic: str,
        executed: Sequence[TransactionState],
        *,
        checked: TransactionState = "COMMIT_MESSAGE",
        checks: int = 0,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int | None = None,
        timeout: float = 30.0,
    ) -> Future[JavaTransactions]:
        """The same without waiting for it."""
        answer = self.submit(
            "transact",
            timeout=timeout,
            group=group,
            topic=topic,
            executed=list(executed),
            checked=checked,
            checks=checks,
            tags=tags,
            keys=keys,
            properties=dict(properties) if properties is not None else None,
            flag=flag,
        )

        def convert(done: dict[str, Any]) -> JavaTransactions:
            if done["checksLeft"]:
                raise JavaPeerError(f"{done['checksLeft']} of {checks} checks did not come within {timeout} s")
            return JavaTransactions(
                [read_receipt(one) for one in done["receipts"]], [read_message(one) for one in done["asked"]]
            )

        return _converted(answer, convert)

    def start_request(self, topic: str, body: bytes, *, timeout: float = 30.0) -> Future[dict[str, Any]]:
        """Send a request; `reply_of` has its reply."""
        return self.submit("request", topic=topic, body=base64.b64encode(body).decode(), timeout=timeout)

    def reply_of(self, asking: Future[dict[str, Any]], timeout: float = 60.0) -> JavaReply:
        """Wait for the reply to a request of `start_request`."""
        answer = asking.result(timeout)
        return JavaReply(base64.b64decode(answer["body"]), answer["properties"])

    def start_replying(self, group: str, topic: str, *, count: int, timeout: float = 60.0) -> Future[dict[str, Any]]:
        """Answer "reply to " + body to each request of a topic, until there were `count`; "left" says how many not."""
        return self.submit("reply", group=group, topic=topic, count=count, timeout=timeout)

    def consume(self, group: str, topic: str, *, count: int, timeout: float = 30.0, **how: Any) -> list[JavaMessage]:
        """Consume from the first offset until there are `count` messages or `timeout` seconds are over."""
        return self.start_consuming(group, topic, count=count, timeout=timeout, **how).result(timeout + 30.0)

    def start_consuming(
        self,
        group: str,
        topic: str,
        *,
        count: int,
        different: bool = False,
        timeout: float = 30.0,
        expression: str = "*",
        sql: bool = False,
        orderly: bool = False,
        batch_size: int = 1,
        failures: Mapping[str, int] | None = None,
        failure_level: int = 0,
        max_reconsume_times: int = -1,
        suspend_millis: int = 1000,
        broadcasting: bool = False,
        broker_rebalance: bool = False,
        instance: str | None = None,
        namespace: str | None = None,
    ) -> Future[list[JavaMessage]]:
        """The same without waiting for it.

        It waits for `count` messages; with `different`, for so many of which each has another body.
        A message whose body is among `failures` fails until it was consumed again that often, and is to be tried again
        after the delay `failure_level` (0: the broker says, -1: never); an orderly one after `suspend_millis`.
        `broker_rebalance` asks the broker for queues, and how to get at them; only RocketMQ 5 can.
        """
        answer = self.submit(
            "consume",
            group=group,
            topic=topic,
            count=count,
            different=different,
            timeout=timeout,
            expression=expression,
            sql=sql,
            orderly=orderly,
            batchSize=batch_size,
            failures=dict(failures or {}),
            failureLevel=failure_level,
            maxReconsumeTimes=max_reconsume_times,
            suspendMillis=suspend_millis,
            broadcasting=broadcasting,
            brokerRebalance=broker_rebalance,
            instance=instance,
            namespace=namespace,
        )
        return _converted(answer, read_messages)

    def lite_pull(
        self, group: str, topic: str, *, count: int, expression: str = "*", sql: bool = False, timeout: float = 30.0
    ) -> list[JavaMessage]:
        """Poll with the lite pull consumer, as a member of its group, then commit what was polled."""
        return read_messages(
            self.call(
                "lite-pull", timeout=timeout, group=group, topic=topic, count=count, expression=expression, sql=sql
            )
        )

    def start_lite_pulling(
        self, group: str, topic: str, *, count: int, timeout: float = 60.0
    ) -> Future[list[JavaMessage]]:
        """The same without waiting for it."""
        answer = self.submit("lite-pull", group=group, topic=topic, count=count, timeout=timeout)
        return _converted(answer, read_messages)

    def lite_count(
        self, group: str, topic: str, *, count: int, pull_batch_size: int = 32, timeout: float = 300.0
    ) -> JavaSends:
        """Poll from the first offset, counting only: the other side of a benchmark."""
        answer = self.call(
            "lite-count", timeout=timeout, group=group, topic=topic, count=count, pullBatchSize=pull_batch_size
        )
        if not answer["complete"]:
            raise JavaPeerError(f"Java polled {answer['messages']} of {count} messages in {timeout:g} s")
        return JavaSends(answer["messages"], float(answer["seconds"]), float(answer["cpuSeconds"]))

    def lite_read(self, group: str, topic: str, *, count: int, offset: int, timeout: float = 30.0) -> list[JavaMessage]:
        """Read all queues from an offset on with a lite pull consumer that is assigned them; nothing is committed."""
        return read_messages(
            self.call("lite-read", timeout=timeout, group=group, topic=topic, count=count, offset=offset)
        )

    def consume_count(
        self,
        group: str,
        topic: str,
        *,
        count: int,
        timeout: float = 120.0,
        batch_size: int = 32,
        pull_batch_size: int = 32,
        broker_rebalance: bool = False,
    ) -> JavaCount:
        """Consume from the first offset, counting only: the other side of a benchmark."""
        answer = self.call(
            "consume-count",
            timeout=timeout,
            group=group,
            topic=topic,
            count=count,
            batchSize=batch_size,
            pullBatchSize=pull_batch_size,
            brokerRebalance=broker_rebalance,
        )
        return JavaCount(
            complete=answer["complete"],
            messages=answer["messages"],
            seconds=float(answer["seconds"]),
            cpu_seconds=float(answer["cpuSeconds"]),
            seconds_since_start=float(answer["secondsSinceStart"]),
            cpu_seconds_since_start=float(answer["cpuSecondsSinceStart"]),
        )

    def start_member(self, name: str, group: str, topic: str, strategy: str, **settings: Any) -> JavaMember:
        """Start a member of a group that stays until it is told to leave; `settings` are those of its strategy."""
        answer = self.call("member-start", name=name, group=group, topic=topic, strategy=strategy, **settings)
        return JavaMember(self, name, answer["clientId"])

    def produce_steadily(self, topic: str, *, count: int, rate: int, size: int) -> int:
        """Send at a steady rate; a body begins with its microseconds since the epoch. Returns how many sends failed."""
        timeout = count / rate + 60.0
        return int(
            self.call("produce-steadily", timeout=timeout, topic=topic, count=count, rate=rate, size=size)["failed"]
        )

    def consume_latency(self, group: str, topic: str, *, count: int, skip: int, timeout: float) -> list[int]:
        """How old, in microseconds, messages of `produce_steadily` were when the listener got them."""
        answer = self.call("consume-latency", timeout=timeout, group=group, topic=topic, count=count, skip=skip)
        if not answer["complete"]:
            raise JavaPeerError(f"Java got {len(answer['ages']) + skip} of {count} messages in {timeout:g} s")
        return list(answer["ages"])


@dataclass(frozen=True, slots=True)
class JavaMember:
    """A consumer of a group in that program."""

    peer: JavaPeer
    name: str
    client_id: str

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues of its topic that it has now."""
        answer = self.peer.call("member-assignment", name=self.name)
        return tuple(sorted(MessageQueue(*queue) for queue in answer["queues"]))

    @property
    def received(self) -> list[str]:
        """The bodies that its listener got so far."""
        return list(self.peer.call("member-received", name=self.name)["bodies"])

    def shutdown(self) -> None:
        """Leave the group in order."""
        self.peer.call("member-stop", name=self.name)


def _converted(answer: Future[dict[str, Any]], convert: Callable[[dict[str, Any]], _T]) -> Future[_T]:
    """What an answer means, once it is there."""
    converted: Future[_T] = Future()

    def done(answered: Future[dict[str, Any]]) -> None:
        try:
            converted.set_result(convert(answered.result()))
        except BaseException as problem:
            converted.set_exception(problem)

    answer.add_done_callback(done)
    return converted
