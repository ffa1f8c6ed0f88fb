"""What was seen in a run of the demo: plain values that the summary, the checks and the report are made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rocketstream.demo.billing import BillingNotes
from rocketstream.demo.expectation import MinuteKey, MinuteRow
from rocketstream.demo.orders import OrderStream


@dataclass(frozen=True, slots=True)
class Sample:
    """Where everything was at one moment. Counts only grow; lags come and go."""

    seconds: float
    """Since the shop opened."""
    sent: int
    delivered: int
    """To the push consumer, for the first time."""
    billed: int
    retries: int
    given_up: int
    billing_lag: int
    """Messages that are stored and not yet delivered."""
    pipeline_rows: int = 0
    """Rows that the pipeline has read for its table of orders."""
    pipeline_lag: int = 0
    """Messages that are stored and not yet read by it."""
    results: int = 0
    """Messages on the topic of results."""


@dataclass(slots=True)
class PipelineSeen:
    """What the pipeline left behind, read back when it had ended."""

    rows_read: int = 0
    table_ids: Counter[str] = field(default_factory=Counter)
    """How often each event is in the table of orders."""
    minutes: dict[MinuteKey, MinuteRow] = field(default_factory=dict)
    """The table of results."""
    minute_rows: int = 0
    """Its rows: more than `minutes` has if one is there twice."""
    results: dict[MinuteKey, MinuteRow] = field(default_factory=dict)
    """What is on the topic of results."""
    result_messages: int = 0
    result_ids: int = 0
    """How many different row ids those messages have: less if some were sent twice."""
    unreadable_keys: Counter[str] = field(default_factory=Counter)
    """What could not be parsed, by the keys of its messages."""
    files: int = 0
    file_bytes: int = 0
    batches: int = 0


@dataclass(slots=True)
class Outcome:
    """A whole run. One that was interrupted has `ended_early` and no checks."""

    broker: str
    stream: OrderStream
    seed: int
    samples: list[Sample]
    billing: BillingNotes
    sent: int = 0
    sent_by_queue: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: float = 0.0
    """From the start of the broker to the last result, Spark's start included."""
    sending_seconds: float = 0.0
    opened_at: float = 0.0
    """When the shop opened, by the monotonic clock: what `billing.failures` is counted from."""
    billing_lag: int = 0
    dead_keys: Counter[str] = field(default_factory=Counter)
    """The dead letters, by the keys of their messages."""
    pipeline: PipelineSeen | None = None
    pauses: list[tuple[float, float]] = field(default_factory=list)
    """From when to when the push consumer was suspended, in seconds since the shop opened."""
    ended_early: str | None = None
    """Why it ended before everything had arrived."""
    interrupted: bool = False
    """Whether that was Ctrl-C."""

    @property
    def minutes(self) -> dict[MinuteKey, MinuteRow]:
        """What the pipeline counted; nothing without one."""
        return {} if self.pipeline is None else self.pipeline.minutes


def rates(samples: list[Sample], name: str, window: float = 1.0) -> list[tuple[float, float]]:
    """How fast a count grew, per second, over the last `window` seconds before each sample."""
    made: list[tuple[float, float]] = []
    first = 0
    for sample in samples[1:]:
        while first + 1 < len(samples) and samples[first + 1].seconds <= sample.seconds - window:
            first += 1
        begin = samples[first]
        elapsed = sample.seconds - begin.seconds
        if elapsed > 0:
            made.append((sample.seconds, (getattr(sample, name) - getattr(begin, name)) / elapsed))
    return made


def batch_rates(samples: list[Sample]) -> list[tuple[float, float]]:
    """How fast the pipeline read: the rows of a batch over the time since the one before it, as steps."""
    made: list[tuple[float, float]] = []
    begin = samples[0] if samples else None
    waiting: list[float] = []
    for sample in samples:
        waiting.append(sample.seconds)
        if begin is not None and sample.pipeline_rows > begin.pipeline_rows and sample.seconds > begin.seconds:
            rate = (sample.pipeline_rows - begin.pipeline_rows) / (sample.seconds - begin.seconds)
            made += [(at, rate) for at in waiting]
            begin, waiting = sample, []
    return made + [(at, 0.0) for at in waiting]


def percentile(values: list[int], share: float) -> int:
    """The smallest value that at least this share of them does not exceed; 0 of none."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
