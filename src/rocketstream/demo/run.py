"""The demo from its beginning to its end: broker, shop, billing, pipeline, and what they left behind.

The rule of this file: what was started is stopped, in the opposite order, however it ends. Ctrl-C ends it with what was
seen until then. Only this thread waits; the shop, the consumer and the pipeline run in threads of their own.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Protocol

from rocketstream.admin.client import AdminClient
from rocketstream.broker.embedded import EmbeddedBroker
from rocketstream.clock import Clock, SystemClock
from rocketstream.consumer.push_consumer import PushConsumer
from rocketstream.consumer.start_from import StartFrom
from rocketstream.demo.billing import Billing
from rocketstream.demo.expectation import Expectation, expect
from rocketstream.demo.orders import STATUSES, TICK, make_stream
from rocketstream.demo.outcome import Outcome, PipelineSeen, Sample
from rocketstream.demo.reading import read_topic
from rocketstream.demo.sending import Shop
from rocketstream.demo.settings import (
    BILLING_GROUP,
    DEAD_LETTER_TOPIC,
    MAX_RETRIES,
    PAUSE,
    QUEUES,
    RESULT_TOPIC,
    TOPIC,
    DemoSettings,
)
from rocketstream.errors import RocketStreamError
from rocketstream.testing.cluster import RocketMQCluster

_STEP = 0.25
DEAD_LETTERS = f"%DLQ%{BILLING_GROUP}"


class DemoError(RocketStreamError):
    """The demo could not be run; the text says what failed."""


class Display(Protocol):
    """Who shows how far the demo is."""

    def say(self, line: str) -> None:
        """Tell what happens next."""

    def wait(self, doing: str) -> None:
        """Show that something is awaited before anything moves."""

    def show(self, sample: Sample, expected: Expectation, doing: str) -> None:
        """Show where everything is."""


class PipelineSide(Protocol):
    """The Spark pipeline, as the demo needs it."""

    @property
    def doing(self) -> str:
        """What it does now, in a few words."""

    @property
    def problem(self) -> Exception | None:
        """Why it can't go on."""

    def start(self, name_servers: str) -> None:
        """Start it, in a thread of its own."""

    @property
    def running(self) -> bool:
        """Whether all its queries have read something."""

    def progress(self) -> tuple[int, bool]:
        """Rows that it has read for its table of orders, and whether everything is written."""

    def close(self) -> None:
        """Stop it; harmless when repeated."""

    def collect(self) -> PipelineSeen:
        """Let it finish its batches, stop it, and tell what it left behind."""


class Demo:
    """One run."""

    def __init__(
        self,
        settings: DemoSettings,
        display: Display,
        pipeline: PipelineSide | None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._display = display
        self._pipeline = pipeline
        self._clock: Clock = clock if clock is not None else SystemClock()
        # The hour before now: what a person reads in the report has just happened.
        start = datetime.fromtimestamp(self._clock.wall(), UTC) - timedelta(minutes=60)
        self.stream = make_stream(settings.messages, settings.seed, start)
        self.expected = expect(self.stream, MAX_RETRIES)
        self.name_servers = ""
        self._billing = Billing(self._clock)
        self._began = self._clock.monotonic()
        self._samples: list[Sample] = []
        self._pause = threading.Event()
        self.outcome = Outcome(
            broker=f"RocketMQ {settings.version}" if settings.version else "the embedded broker",
            stream=self.stream,
            seed=settings.seed,
            samples=self._samples,
            billing=self._billing.notes(),
        )
        self._things = ExitStack()
        self._workers = ExitStack()

    # --- life -------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run it to its end, or to Ctrl-C. The broker stays until `close`."""
        try:
            self._run()
        except KeyboardInterrupt:
            self._display.say("stopping everything; Ctrl-C once more leaves at once")
            self.outcome.ended_early = "it was interrupted"
            self.outcome.interrupted = True
        finally:
            self.outcome.billing = self._billing.notes()
            self.outcome.seconds = self._clock.monotonic() - self._began
            self._workers.close()
        return self.outcome

    def wall(self) -> float:
        """The time of day, in seconds since the epoch."""
        return self._clock.wall()

    def close(self) -> None:
        """Stop everything that still runs; harmless when repeated."""
        self._workers.close()
        self._things.close()

    def _run(self) -> None:
        self.name_servers = self._start_broker()
        admin = self._things.enter_context(AdminClient(self.name_servers))
        for topic in (TOPIC, RESULT_TOPIC, DEAD_LETTER_TOPIC):
            admin.create_topic(topic, queues=QUEUES)
        if self._pipeline is not None:
            self._display.say("starting Spark and the pipeline")
            self._workers.callback(self._pipeline.close)
            self._pipeline.start(self.name_servers)
        consumer = self._start_billing()
        shop = Shop(self.stream, self.name_servers, self._clock, self._settings.seconds_per_minute)
        self._workers.callback(shop.stop)
        shop.start()
        self._await_pipeline()
        self._display.say(f"sending {len(self.stream.messages):,} messages: {60} simulated minutes of orders")
        self.outcome.opened_at = self._clock.monotonic()
        shop.open()
        self._watch(shop, consumer, admin)
        self._collect(shop, consumer, admin)

    def _start_broker(self) -> str:
        if self._settings.version is None:
            self._display.say("starting the embedded broker")
            return self._things.enter_context(EmbeddedBroker()).name_server_address
        self._display.say(f"starting RocketMQ {self._settings.version}")
        cluster = RocketMQCluster(self._settings.version, progress=self._display.say)
        return self._things.enter_context(cluster).name_server_address

    def _start_billing(self) -> PushConsumer:
        self._display.say(f"starting the push consumer {BILLING_GROUP}")
        consumer = PushConsumer(
            BILLING_GROUP,
            self.name_servers,
            listener=self._billing,
            start_from=StartFrom.FIRST,
            max_reconsume_times=MAX_RETRIES,
            persist_offset_interval=1.0,
        )
        # With ticks, of no use here: a message at the end of a queue that nobody wants would look like a lag for long.
        consumer.subscribe(TOPIC, " || ".join((*STATUSES, TICK)))
        self._workers.callback(consumer.shutdown, 10.0)
        consumer.start()
        return consumer

    def _await_pipeline(self) -> None:
        """The shop opens when everybody is there; a JVM takes some seconds."""
        deadline = self._clock.monotonic() + self._settings.patience
        while self._pipeline is not None and not self._pipeline.running:
            if self._pipeline.problem is not None:
                raise DemoError(f"the demo failed: {self._pipeline.problem}") from self._pipeline.problem
            if self._clock.monotonic() > deadline:
                raise DemoError(f"Spark was not ready after {self._settings.patience:.0f} s: {self._pipeline.doing}")
            self._display.wait(self._pipeline.doing)
            self._pause.wait(_STEP)

    # --- while it runs ----------------------------------------------------------------------------------------------

    def _watch(self, shop: Shop, consumer: PushConsumer, admin: AdminClient) -> None:
        """Take samples and show them until everything has arrived, or patience ends."""
        results = 0
        while True:
            for problem in (shop.problem, self._pipeline.problem if self._pipeline is not None else None):
                if problem is not None:
                    raise DemoError(f"the demo failed: {problem}") from problem
            if self._pipeline is not None and len(self._samples) % 4 == 0:
                results = _stored(admin, RESULT_TOPIC)
            self._pause_billing(shop, consumer)
            sample = self._sample(shop, results)
            self.outcome.sent, self.outcome.billing_lag = sample.sent, sample.billing_lag
            self.outcome.sent_by_queue = Counter(shop.by_queue)
            self.outcome.sending_seconds = shop.seconds
            waits_for = self._waits_for(shop, sample)
            self._display.show(sample, self.expected, waits_for or "everything has arrived")
            if waits_for is None:
                return
            if shop.ended_at is not None and self._clock.monotonic() - shop.ended_at > self._settings.patience:
                self.outcome.ended_early = f"{self._settings.patience:.0f} s after the last order it was {waits_for}"
                return
            self._pause.wait(_STEP)

    def _pause_billing(self, shop: Shop, consumer: PushConsumer) -> None:
        now = self._clock.monotonic() - self.outcome.opened_at
        begin, end = PAUSE
        if not self.outcome.pauses and begin <= shop.minute < end:
            consumer.suspend()
            self.outcome.pauses.append((now, 0.0))
        elif self.outcome.pauses and not self.outcome.pauses[-1][1] and shop.minute >= end:
            consumer.resume()
            self.outcome.pauses[-1] = (self.outcome.pauses[-1][0], now)

    def _sample(self, shop: Shop, results: int) -> Sample:
        delivered, billed, retries, given_up = self._billing.counts()
        rows = self._pipeline.progress()[0] if self._pipeline is not None else 0
        # Not what waits in the retry topic: it does so on purpose.
        behind = max(0, shop.sent - delivered)
        sample = Sample(
            seconds=self._clock.monotonic() - self.outcome.opened_at,
            sent=shop.sent,
            delivered=delivered,
            billed=billed,
            retries=retries,
            given_up=given_up,
            billing_lag=behind,
            pipeline_rows=rows,
            pipeline_lag=max(0, shop.sent + 1 - rows) if self._pipeline is not None else 0,
            results=results,
        )
        self._samples.append(sample)
        return sample

    def _waits_for(self, shop: Shop, sample: Sample) -> str | None:
        """What is still to come, the first of it; None when all is there."""
        if not shop.done:
            return f"sending minute {shop.minute + 1} of 60"
        if self._billing.finished < self.expected.messages or self._billing.ticks < 2:
            waiting = self.expected.messages - self._billing.finished
            return f"waiting for retries: {waiting:,} to go" if waiting else "waiting for billing to see the end"
        if self._pipeline is None:
            return None
        if sample.pipeline_lag:
            return f"waiting for the pipeline ({self._pipeline.doing}): {sample.pipeline_lag:,} messages behind"
        if sample.results < len(self.expected.minutes) or not self._pipeline.progress()[1]:
            return "waiting for the last windows to close"
        return None

    # --- what it left behind ----------------------------------------------------------------------------------------

    def _collect(self, shop: Shop, consumer: PushConsumer, admin: AdminClient) -> None:
        outcome = self.outcome
        self._display.say("reading what was left behind")
        consumer.shutdown(10.0)  # and with it its offsets are stored
        outcome.billing_lag = admin.consumer_progress(BILLING_GROUP, topic=TOPIC).lag or 0
        dead_letters = read_topic(admin, DEAD_LETTERS, len(self.expected.dead_keys))
        outcome.dead_keys = Counter(message.keys or "" for message in dead_letters)
        if self._pipeline is not None:
            outcome.pipeline = self._pipeline.collect()


def _stored(admin: AdminClient, topic: str) -> int:
    return sum(queue.messages for queue in admin.queue_ranges(topic))
