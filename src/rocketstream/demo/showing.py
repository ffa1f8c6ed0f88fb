"""The demo on a terminal: a picture that moves while it runs, and a summary at the end.

The rule of this file: a terminal gets a picture in its place, anything else gets a line now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rocketstream.demo.checks import Check
from rocketstream.demo.expectation import Expectation
from rocketstream.demo.outcome import Sample, batch_rates, rates
from rocketstream.demo.summary import Summary

_BLOCKS = "▁▂▃▄▅▆▇█"
_PLAIN_EVERY = 3.0
_SPARKS = 48


class LineDisplay:
    """A line when something begins, and one every few seconds."""

    def __init__(self, console: Console, *, spark: bool) -> None:
        self._console = console
        self._spark = spark
        self._last = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to be done."""

    def say(self, line: str) -> None:
        """Tell what happens next."""
        self._console.print(escape(line), soft_wrap=True)

    def wait(self, doing: str) -> None:
        """Nothing moves yet."""

    def show(self, sample: Sample, expected: Expectation, doing: str) -> None:
        """Show where everything is."""
        if sample.seconds - self._last < _PLAIN_EVERY:
            return
        self._last = sample.seconds
        parts = [
            f"{sample.seconds:5.1f} s",
            f"sent {sample.sent:,}",
            f"billed {sample.billed:,}",
            f"retries {sample.retries:,}",
            f"dead letters {sample.given_up:,}",
            f"lag {sample.billing_lag:,}",
        ]
        if self._spark:
            spark = f"{sample.pipeline_rows:,} rows, lag {sample.pipeline_lag:,}, {sample.results:,} results"
            parts.append(f"Spark: {spark}")
        self._console.print(f"{', '.join(parts)}: {escape(doing)}", soft_wrap=True)


class LiveDisplay:
    """Bars and curves in their place."""

    def __init__(self, console: Console, *, spark: bool) -> None:
        self._console = console
        self._spark = spark
        self._samples: list[Sample] = []
        self._spinner = Spinner("dots")
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        """Tell what happens next, above the picture."""
        self._live.console.print(Text(f"· {line}", style="dim"))

    def wait(self, doing: str) -> None:
        """Nothing moves yet but this."""
        self._spinner.update(text=Text(f" {doing}"))
        self._live.update(self._spinner, refresh=True)

    def show(self, sample: Sample, expected: Expectation, doing: str) -> None:
        """Draw the picture anew."""
        self._samples.append(sample)
        self._live.update(picture(self._samples, expected, doing, spark=self._spark), refresh=True)


def picture(samples: list[Sample], expected: Expectation, doing: str, *, spark: bool) -> RenderableType:
    """How far everything is, as bars, with the curves of the last seconds."""
    sample = samples[-1]
    bars = Table.grid(padding=(0, 2))
    for _ in range(4):
        bars.add_column(no_wrap=True)
    behind = f"lag {sample.billing_lag:,}" if sample.billing_lag else ""
    _row(bars, "sent", sample.sent, expected.messages, "blue", "", _curve(samples, "sent"))
    _row(bars, "billed", sample.billed, len(expected.handled_ids), "cyan", behind, _curve(samples, "delivered"))
    tries = f"{sample.retries:,} retries"
    _row(bars, "dead letters", sample.given_up, len(expected.dead_keys), "red", tries, "")
    if spark:
        lag = "" if not sample.pipeline_lag else f"lag {sample.pipeline_lag:,}"
        curve = _blocks(batch_rates(samples))
        _row(bars, "read by Spark", sample.pipeline_rows, expected.topic_messages, "yellow", lag, curve)
        _row(bars, "results", sample.results, len(expected.minutes), "magenta", "", "")
    head = Text.assemble((f"{sample.seconds:5.1f} s  ", "bold"), doing)
    return Group(Text(""), head, Text(""), bars, Text(""))


def _row(bars: Table, name: str, value: int, whole: int, colour: str, note: str, curve: str) -> None:
    bar = ProgressBar(total=whole, completed=min(value, whole), width=26, complete_style=colour, finished_style=colour)
    bars.add_row(
        name,
        bar,
        f"[bold]{value:>8,}[/] [dim]of {whole:,}[/]",
        Text("  ".join(filter(None, (curve, note))), style=colour),
    )


def _curve(samples: list[Sample], name: str) -> str:
    """How fast a count grows, in blocks: the newest on the right."""
    return _blocks(rates(samples, name))


def _blocks(points: list[tuple[float, float]]) -> str:
    values = [rate for _, rate in points][-_SPARKS:]
    most = max(values, default=0.0)
    if most <= 0:
        return ""
    blocks = "".join(_BLOCKS[min(len(_BLOCKS) - 1, int(value / most * len(_BLOCKS)))] for value in values)
    return f"{blocks} {values[-1]:,.0f}/s"


def print_summary(console: Console, summary: Summary, checks: Sequence[Check], ended_early: str | None) -> None:
    """The numbers, and what was checked."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(justify="right", style="bold cyan", no_wrap=True)
    table.add_column(style="dim")
    for fact in summary.facts:
        table.add_row(fact.name, fact.value, escape(fact.detail))
    console.print(table)
    console.print()
    for check in checks:
        sign = "[green]✓[/]" if check.holds else "[bold red]✗[/]"
        console.print(f"{sign} {escape(check.title)} [dim]({escape(check.detail)})[/]", soft_wrap=True)
    failed = sum(not check.holds for check in checks)
    if ended_early is not None:
        console.print(f"[bold yellow]Not complete: {escape(ended_early)}.[/]", soft_wrap=True)
    elif failed:
        console.print(f"[bold red]{failed} of {len(checks)} checks do not hold.[/]")
    else:
        console.print(f"[bold green]Everything adds up: all {len(checks)} checks hold.[/]")
