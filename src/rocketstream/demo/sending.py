"""The shop of the demo: sends the order stream at its pace.

The rule of this file: the messages of a simulated minute are all stored before those of the next but one are sent. So
however busy the machine is, no message is later than the stream says, and the pipeline's watermark drops nothing.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections import Counter
from collections.abc import Sequence

from rocketstream.clock import Clock
from rocketstream.demo.billing import FAILURES
from rocketstream.demo.orders import OrderStream, Planned
from rocketstream.demo.settings import TOPIC
from rocketstream.message import Message
from rocketstream.producer.producer import Producer
from rocketstream.producer.receipt import SendReceipt

_SLICES = 5  # a minute's messages go out in so many parts, not in one burst

Sent = list[concurrent.futures.Future[SendReceipt]]


class Shop:
    """Sends in a thread of its own, from `open` until the stream ends or `stop` is called."""

    def __init__(
        self, stream: OrderStream, name_servers: str, clock: Clock, seconds_per_minute: float, topic: str = TOPIC
    ) -> None:
        self.sent = 0
        """Messages that are stored."""
        self.by_queue: Counter[tuple[str, int]] = Counter()
        """The same by broker and queue id."""
        self.minute = 0
        """The simulated minute that is being sent."""
        self.begun_at: float | None = None
        self.ended_at: float | None = None
        """When the last message, the closing tick, was stored."""
        self.problem: Exception | None = None
        self._stream = stream
        self._producer = Producer("demo-shop", name_servers)
        self._clock = clock
        self._pace = seconds_per_minute
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-shop", daemon=True)

    def start(self) -> None:
        """Connect, and send the opening tick."""
        self._producer.start()
        self._send([self._stream.opening])[0].result()

    def open(self) -> None:
        """Begin to send orders."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending and disconnect; harmless when repeated."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(10.0)
        self._producer.shutdown(5.0)

    @property
    def seconds(self) -> float:
        """How long it has been sending, or was."""
        if self.begun_at is None:
            return 0.0
        return (self._clock.monotonic() if self.ended_at is None else self.ended_at) - self.begun_at

    @property
    def done(self) -> bool:
        """Whether everything is stored."""
        return self.ended_at is not None

    def _run(self) -> None:
        try:
            self._send_stream()
        except Exception as problem:
            self.problem = problem

    def _send_stream(self) -> None:
        self.begun_at = begun = self._clock.monotonic()
        before: Sent = []
        for minute, messages in enumerate(self._stream.minutes()):
            self.minute = minute
            sent: Sent = []
            for i in range(_SLICES):
                due = begun + (minute + i / _SLICES) * self._pace
                if self._stopped.wait(max(0.0, due - self._clock.monotonic())):
                    return
                sent += self._send(messages[i * len(messages) // _SLICES : (i + 1) * len(messages) // _SLICES])
            self._note(before)
            before = sent
        self._note(before)
        for future in self._send([self._stream.closing]):
            future.result()
        self.ended_at = self._clock.monotonic()

    def _send(self, messages: Sequence[Planned]) -> Sent:
        # What happens to one order stays in one queue, in its order.
        return [self._producer.send_async(self._message(one), sharding_key=one.order_id) for one in messages]

    def _message(self, one: Planned) -> Message:
        properties = {FAILURES: str(one.failures)} if one.failures else None
        return Message(self._topic, one.body, tags=one.tag, keys=one.key, properties=properties)

    def _note(self, sent: Sent) -> None:
        for future in sent:
            queue = future.result().queue
            self.by_queue[queue.broker_name, queue.queue_id] += 1
            self.sent += 1
