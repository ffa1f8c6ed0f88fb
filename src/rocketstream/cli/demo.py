"""`rocketstream demo`: orders through a broker, a push consumer and a Spark pipeline, and a report to look at."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from rocketstream.cli._console import clear_failures, output, print_json, problems, tell
from rocketstream.demo.settings import BILLING_GROUP, DEFAULT_REPORT, DemoSettings

if TYPE_CHECKING:
    from rocketstream.demo.run import Demo
    from rocketstream.demo.showing import LineDisplay, LiveDisplay

_INTERRUPTED = 130


def demo(
    messages: Annotated[int, typer.Option(help="How many messages are sent.")] = 20_000,
    report: Annotated[
        Path, typer.Option(dir_okay=False, help="The HTML file to write; tables and logs go beside it.")
    ] = DEFAULT_REPORT,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the broker running at the end, to look around, until Ctrl-C.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Run it on a real RocketMQ of this version, e.g. 5.5.0."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Other numbers are other orders.")] = 7,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Without the pipeline: needs neither Java nor pyspark.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Show everything at work: an hour of orders in a minute, and a report to look at.

    A broker is started; a shop sends orders, with late, repeated, broken and failing ones among them; a push consumer
    bills them, with retries and dead letters; a Spark pipeline parses, enriches and counts them per minute, into
    Parquet and back to a topic. At the end everything must add up: the exit code is 1 if it does not.
    """
    with clear_failures():
        settings = DemoSettings(
            messages=messages, report=report, keep=keep, version=cluster, seed=seed, spark=not no_spark
        )
        code = _run(settings, json)
    if code:
        raise typer.Exit(code)


def _run(settings: DemoSettings, json: bool) -> int:
    from rocketstream.demo.files import DemoFiles
    from rocketstream.demo.run import Demo  # all other commands would pay for these

    files = DemoFiles.prepared(settings.report)
    pipeline = None
    if settings.spark:
        from rocketstream.demo.spark_side import SparkSide

        pipeline = SparkSide.checked(files)
    display = _display(settings)
    running = Demo(settings, display, pipeline)
    if pipeline is not None:
        pipeline.attach(running.stream, running.expected)
    with _stop_politely():
        try:
            with display:
                outcome = running.run()
            code = _tell(running, files.report, json)
            if settings.keep and outcome.ended_early is None:
                _stay(running, json)
        finally:
            running.close()
    return code


def _display(settings: DemoSettings) -> LiveDisplay | LineDisplay:
    from rocketstream.demo.showing import LineDisplay, LiveDisplay

    kind = LiveDisplay if sys.stderr.isatty() else LineDisplay
    console = problems()
    # While Spark starts, what is written to standard error goes to its log: the display needs a way of its own.
    console.file = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="backslashreplace")
    return kind(console, spark=settings.spark)


def _tell(running: Demo, report: Path, json: bool) -> int:
    from rocketstream.demo.checks import check
    from rocketstream.demo.report.page import page
    from rocketstream.demo.showing import print_summary
    from rocketstream.demo.summary import summarize

    outcome = running.outcome
    complete = outcome.ended_early is None
    # Of half a run nothing has to hold yet.
    checks = check(running.expected, outcome) if complete or not outcome.interrupted else []
    summary = summarize(outcome)
    report.write_text(page(running.expected, outcome, summary, checks, running.wall()), "utf-8")
    if json:
        print_json(summary.to_dict(checks, outcome.ended_early, str(report)))
    else:
        out = output()
        print_summary(out, summary, checks, outcome.ended_early)
        out.print(f"Report: [bold]{escape(str(report))}[/]", soft_wrap=True)
        sys.stdout.flush()
    if outcome.interrupted:
        return _INTERRUPTED
    return 0 if complete and all(one.holds for one in checks) else 1


def _stay(running: Demo, json: bool) -> None:
    address = running.name_servers
    tell(f"The broker is still running, name server {address}. Press Ctrl-C to stop it. Look around, for instance:")
    if not json:
        for command in (f"lag {BILLING_GROUP}", f"messages '%DLQ%{BILLING_GROUP}'", "topics"):
            tell(f"  rocketstream {command} -n {address}")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


@contextlib.contextmanager
def _stop_politely() -> Iterator[None]:
    """A polite kill is like Ctrl-C."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
