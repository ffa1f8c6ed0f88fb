"""100,000 messages while the broker is killed and restarted twice (issue 4, "must show" 2).

The rule under test: what was acknowledged is in the store, where the receipt says; what raised says which address it
tried and why it failed; and what says that it cannot have been stored has not been.

The broker flushes asynchronously, as by default: SIGKILL ends the process, not the page cache that its files are mapped
from, so what it has acknowledged survives. (A power failure would need SYNC_FLUSH.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import pytest

from rocketstream import Message, Producer, SendReceipt, SendStatus
from rocketstream.errors import BrokerError, ConnectError, RemotingError, SendFailedError
from rocketstream.remoting.io_thread import IoThread
from rocketstream.testing import RocketMQCluster
from rocketstream.testing.plugin import VERSIONS, require_real
from tests.bare_client import BareClient, eventually
from tests.stored import stored

MESSAGES = 100_000
BATCH = 50
KILLS = (30_000, 60_000)  # when so many messages have an outcome
CONFIG = {
    # Only the outages are to fail sends, not a machine that is busy with other things.
    "waitTimeMillsInSendQueue": 60_000,
    "sendThreadPoolQueueCapacity": 100_000,
    # So that reading everything back takes seconds.
    "maxTransferCountOnMessageInMemory": 1024,
    "maxTransferBytesOnMessageInMemory": 4 * 1024 * 1024,
    "maxTransferCountOnMessageInDisk": 1024,
    "maxTransferBytesOnMessageInDisk": 4 * 1024 * 1024,
}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    chosen = request.config.getoption("--rocketmq-version")
    if chosen and request.param not in chosen:
        pytest.skip(f"not among the chosen versions {chosen}")
    require_real(request.param)
    return str(request.param)


class Outcomes:
    """What became of each message: a receipt with its place in the batch, or an error."""

    def __init__(self) -> None:
        self.stored: dict[int, tuple[SendReceipt, int]] = {}
        self.failed: dict[int, BaseException] = {}
        self.second: list[int] = []
        self._changed = threading.Condition()

    def add(self, numbers: Sequence[int], receipt: SendReceipt | None, error: BaseException | None) -> None:
        with self._changed:
            for place, number in enumerate(numbers):
                if number in self.stored or number in self.failed:
                    self.second.append(number)
                elif error is not None:
                    self.failed[number] = error
                elif receipt is not None:
                    self.stored[number] = receipt, place
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self.stored) + len(self.failed)

    def wait_for(self, count: int, timeout: float = 120.0) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self) >= count, timeout), f"{len(self)} of {count} outcomes"


class Sender(threading.Thread):
    """Sends its numbers, each once. After a failure it waits until the broker is up: else it would fail with all."""

    def __init__(self, producer: Producer, topic: str, numbers: range, outcomes: Outcomes, up: threading.Event) -> None:
        super().__init__(daemon=True)
        self._producer = producer
        self._topic = topic
        self._numbers = numbers
        self._outcomes = outcomes
        self._up = up
        self._failed = False

    def message(self, number: int) -> Message:
        return Message(self._topic, b"%d " % number + b"x" * 80, keys=str(number))

    def run(self) -> None:
        for start in range(0, len(self._numbers), self.step):
            if self._failed:
                self._failed = False
                self._up.wait(120.0)
            numbers = self._numbers[start : start + self.step]
            try:
                self.send(numbers)
            except Exception as error:
                self.ended(numbers, None, error)

    step = 1

    def send(self, numbers: Sequence[int]) -> None:
        self.ended(numbers, self._producer.send(self.message(numbers[0])), None)

    def ended(self, numbers: Sequence[int], receipt: SendReceipt | None, error: BaseException | None) -> None:
        if error is not None:
            self._failed = True
        self._outcomes.add(numbers, receipt, error)


class BatchSender(Sender):
    step = BATCH

    def send(self, numbers: Sequence[int]) -> None:
        (receipt,) = self._producer.send_batch([self.message(number) for number in numbers])
        self.ended(numbers, receipt, None)


class AsyncSender(Sender):
    def send(self, numbers: Sequence[int]) -> None:
        future = self._producer.send_async(self.message(numbers[0]))

        def done(future: Future[SendReceipt]) -> None:
            error = future.exception()
            self.ended(numbers, None if error else future.result(), error)

        future.add_done_callback(done)


def senders(make: Callable[[type[Sender], range], Sender]) -> Iterator[Sender]:
    """Four threads with 80,000 asynchronous sends, eight with 10,000 synchronous ones, two with 200 batches."""
    for thread in range(4):
        yield make(AsyncSender, range(thread * 20_000, (thread + 1) * 20_000))
    for thread in range(8):
        yield make(Sender, range(80_000 + thread * 1_250, 80_000 + (thread + 1) * 1_250))
    for thread in range(2):
        yield make(BatchSender, range(90_000 + thread * 5_000, 90_000 + (thread + 1) * 5_000))


def number_of(body: bytes) -> int:
    return int(body.split()[0])


@pytest.mark.feature("produce/outages")
@pytest.mark.slow(50, "kills a broker twice and starts it again")
def test_what_was_acknowledged_is_stored_over_two_outages(version: str, unique_topic: str, unique_group: str) -> None:
    outcomes, up = Outcomes(), threading.Event()
    up.set()
    with RocketMQCluster(version, broker_config=CONFIG) as cluster:
        (broker,) = cluster.brokers
        client = BareClient(cluster.name_server_address, IoThread.shared())
        try:
            client.create_topic(broker.address, unique_topic, queues=8)
            with Producer(
                unique_group, name_servers=cluster.name_server_address, send_timeout=10.0, max_async_messages=1_000
            ) as producer:
                threads = list(senders(lambda kind, numbers: kind(producer, unique_topic, numbers, outcomes, up)))
                for thread in threads:
                    thread.start()
                for reached in KILLS:
                    outcomes.wait_for(reached)
                    up.clear()
                    broker.kill()
                    broker.start()
                    up.set()
                for thread in threads:
                    thread.join(120.0)
                    assert not thread.is_alive()
                outcomes.wait_for(MESSAGES)
            eventually(lambda: len(stored(client, unique_topic)) >= len(outcomes.stored))
            messages = stored(client, unique_topic)
        finally:
            client.close()

    assert len(outcomes) == MESSAGES
    assert outcomes.second == [], "each send has one outcome"
    print(f"{len(outcomes.stored)} acknowledged, {len(outcomes.failed)} failed, {len(messages)} stored")

    by_place = {(message.queue, message.queue_offset): message for message in messages}
    for number, (receipt, place) in outcomes.stored.items():
        assert receipt.status is SendStatus.OK
        message = by_place[receipt.queue, receipt.queue_offset + place]
        assert number_of(message.body) == number
        assert message.message_id == receipt.message_id.split(",")[place]

    assert len(outcomes.failed) < MESSAGES // 10
    there = {number_of(message.body) for message in messages}
    print(f"{len(outcomes.failed.keys() & there)} of those that failed are stored")
    doubts = {is_in_doubt(error, broker.address, number in there) for number, error in outcomes.failed.items()}
    assert doubts == {True, False}, "it shows nothing without sends that were under way and sends that were not"


def is_in_doubt(error: BaseException, address: str, is_stored: bool) -> bool:
    """What a failed send says of itself: whether it may be stored. It names the broker and each attempt's reason."""
    assert isinstance(error, SendFailedError), repr(error)
    assert error.attempts
    for where, cause in error.attempts:
        assert where == address
        assert isinstance(cause, RemotingError | BrokerError), repr(cause)
        reason = str(cause).removeprefix(address).strip(": ")
        assert reason, f"{cause!r} gives no reason"
        assert f"{address}: {reason}" in str(error)
    if is_stored:
        assert error.maybe_stored, f"{error} but it is stored"
    if all(isinstance(cause, ConnectError) for _, cause in error.attempts):
        assert not error.maybe_stored, f"{error}: nobody got it, but it says that it may be stored"
    return error.maybe_stored
