"""The numbers of a run that a person wants to know, for the terminal, for JSON and for the report alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocketstream.demo.checks import Check
from rocketstream.demo.outcome import Outcome, percentile, rates
from rocketstream.demo.settings import MAX_RETRIES


@dataclass(frozen=True, slots=True)
class Fact:
    """One number, with its name and a few words."""

    name: str
    value: str
    detail: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of a run."""

    broker: str
    seconds: float
    produced: int
    sending_seconds: float
    billed: int
    delivered: int
    billing_lag: int
    peak_sent: float
    """Messages per second, in the busiest second."""
    peak_delivered: float
    latency_p50: int
    latency_p99: int
    retries: int
    dead_letters: int
    duplicates: int
    pipeline: dict[str, Any] | None

    @property
    def facts(self) -> list[Fact]:
        """The same, for people."""
        pace = f"messages in {self.sending_seconds:.1f} s, {self.peak_sent:,.0f}/s at most"
        facts = [
            Fact("Time", f"{self.seconds:.0f} s", f"from nothing to the last result, on {self.broker}"),
            Fact("Sent", f"{self.produced:,}", pace),
            Fact("Billed", f"{self.billed:,}", f"orders; {self.peak_delivered:,.0f} deliveries/s at most"),
            Fact(
                "Latency",
                f"{self.latency_p50} ms",
                f"for half of the deliveries; 99 %: {self.latency_p99:,} ms, a pause in it",
            ),
            Fact("Lag", f"{self.billing_lag:,}", "messages at the end, of the billing group"),
            Fact("Retries", f"{self.retries:,}", "deliveries of what had failed before"),
            Fact("Dead letters", f"{self.dead_letters:,}", f"messages that failed {MAX_RETRIES + 1} times"),
            Fact("Repeated", f"{self.duplicates:,}", "messages that came twice and were billed once"),
        ]
        return facts if self.pipeline is None else facts + _pipeline_facts(self.pipeline)

    def to_dict(self, checks: Sequence[Check], ended_early: str | None, report: str) -> dict[str, Any]:
        """It, for JSON; the names are a promise to scripts."""
        return {
            "broker": self.broker,
            "complete": ended_early is None,
            "ended_early": ended_early,
            "ok": ended_early is None and all(check.holds for check in checks),
            "seconds": round(self.seconds, 2),
            "produced": self.produced,
            "sending_seconds": round(self.sending_seconds, 2),
            "delivered": self.delivered,
            "billed": self.billed,
            "lag": self.billing_lag,
            "peak_sent_per_second": round(self.peak_sent),
            "peak_delivered_per_second": round(self.peak_delivered),
            "latency_p50_ms": self.latency_p50,
            "latency_p99_ms": self.latency_p99,
            "retries": self.retries,
            "dead_letters": self.dead_letters,
            "duplicates_dropped": self.duplicates,
            "pipeline": self.pipeline,
            "checks": [{"title": one.title, "holds": one.holds, "detail": one.detail} for one in checks],
            "report": report,
        }


def summarize(seen: Outcome) -> Summary:
    """The numbers of a run, also of one that ended early."""
    billing = seen.billing
    delivered = billing.deliveries - billing.retries
    # Before the dead letters are read back: those that failed for the last time.
    dead = sum(seen.dead_keys.values()) or billing.given_up
    peak_sent = max((rate for _, rate in rates(seen.samples, "sent")), default=0.0)
    peak_delivered = max((rate for _, rate in rates(seen.samples, "delivered")), default=0.0)
    p50, p99 = percentile(billing.latencies, 0.5), percentile(billing.latencies, 0.99)
    return Summary(
        broker=seen.broker,
        seconds=seen.seconds,
        produced=seen.sent,
        sending_seconds=seen.sending_seconds,
        billed=len(billing.handled),
        delivered=delivered,
        billing_lag=seen.billing_lag,
        peak_sent=peak_sent,
        peak_delivered=peak_delivered,
        latency_p50=p50,
        latency_p99=p99,
        retries=billing.retries,
        dead_letters=dead,
        duplicates=billing.duplicates,
        pipeline=_pipeline(seen),
    )


def _pipeline_facts(pipeline: dict[str, Any]) -> list[Fact]:
    dropped = f"{pipeline['duplicates_dropped']:,} repeated ones dropped"
    size = f"{pipeline['files']:,} files, {pipeline['bytes'] / 1024:,.0f} KiB"
    return [
        Fact("Pipeline", f"{pipeline['rows_read']:,}", f"rows read, two of them ticks; {dropped}"),
        Fact("Parquet", f"{pipeline['orders']:,}", f"orders in {size}"),
        Fact("Results", f"{pipeline['results']:,}", "counts per minute back on a topic"),
        Fact("Set aside", f"{pipeline['unreadable']:,}", "bodies that could not be parsed"),
    ]


def _pipeline(seen: Outcome) -> dict[str, Any] | None:
    left = seen.pipeline
    if left is None:
        return None
    orders = sum(left.table_ids.values())
    unreadable = sum(left.unreadable_keys.values())
    return {
        "rows_read": left.rows_read,
        "orders": orders,
        "minute_rows": left.minute_rows,
        "results": left.result_messages,
        "unreadable": unreadable,
        # What was read, and is neither in the table nor set aside; ticks are no orders.
        "duplicates_dropped": max(0, left.rows_read - orders - unreadable - 2) if left.rows_read else 0,
        "files": left.files,
        "bytes": left.file_bytes,
        "batches": left.batches,
    }
