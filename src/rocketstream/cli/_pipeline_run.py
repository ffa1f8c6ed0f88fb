"""A pipeline as a program: Spark's life, signals, and progress on the terminal.

The rule of this file: whatever happens is one sentence and an exit code; Spark's own words go to its log, which is
kept when something failed, or when somebody asked for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from rocketstream.cli._console import cell, output, print_json_line, problems, table, tell
from rocketstream.cli._worker import StopSignals
from rocketstream.clock import SystemClock
from rocketstream.spark.pipeline import (
    Pipeline,
    PipelineFailedError,
    PipelineFileError,
    PipelineRun,
    QueryProgress,
    RunProgress,
    open_session,
)
from rocketstream.spark.pipeline.model import Trigger

INTERRUPTED = 130
_LIVE_EVERY = 0.5


class _Signals:
    """SIGINT and SIGTERM end a run gently; a second SIGINT ends the process at once."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.number: int | None = None
        self._stops = StopSignals(SystemClock())
        self.starting = True

    def install(self) -> None:
        """Handle them from now on; PySpark puts a handler of its own in when a session starts."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stops.is_first():
            self.number = number
            self.stop.set()
            if self.starting:
                raise KeyboardInterrupt
        elif self._stops.is_impatient(number):
            os._exit(INTERRUPTED)

    def exit_code(self) -> int:
        """SIGTERM is how a service ends; Ctrl-C tells a shell's loop to end, too."""
        return INTERRUPTED if self.number == signal.SIGINT else 0


class Showing:
    """Progress: a table in its place on a terminal, lines elsewhere, documents with --json."""

    def __init__(self, *, json: bool, interval: float, alone: bool = True) -> None:
        self.json = json
        self._interval = interval
        self._out = output()
        shown = sys.stdout.isatty() and alone and not json
        self.live = Live(console=self._out, auto_refresh=False) if shown else None
        self.every = interval if self.live is None else min(interval, _LIVE_EVERY)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """While something is shown."""
        with self.live or contextlib.nullcontext():
            yield

    def show(self, name: str, progress: RunProgress, note: str = "") -> None:
        """How far it is, now."""
        if self.json:
            print_json_line({"pipeline": name, "note": note or None, **progress.to_dict()})
        elif self.live is not None:
            self.live.update(_table(name, progress, note), refresh=True)
        else:
            for query in progress.queries:
                print(_line(query), flush=True)

    def remark(self, sentence: str) -> None:
        """Something that is not progress."""
        if not self.json:
            tell(sentence)


class Running:
    """One run of the command."""

    def __init__(
        self,
        pipeline: Pipeline,
        master: str | None,
        conf: Mapping[str, str],
        available_now: bool,
        stop_timeout: float,
        log: Path | None,
        verbose: bool,
    ) -> None:
        if available_now:
            now = Trigger(available_now=True)
            pipeline = replace(pipeline, sinks=tuple(replace(sink, trigger=now) for sink in pipeline.sinks))
        self._pipeline = pipeline
        self._master = master or conf.get("spark.master") or pipeline.master
        self._conf = {**pipeline.spark, **conf}
        self._stop_timeout = stop_timeout
        self._log = log
        self._verbose = verbose
        self._signals = _Signals()

    def check(self) -> None:
        """Have Spark check the queries."""
        with self._spark() as spark:
            PipelineRun(self._pipeline, spark).check()

    def run(self, showing: Showing) -> int:
        """Run it to its end; the exit code."""
        from rocketstream.cli.pipeline import tell_mistakes

        showing.remark(f"{self._pipeline.name}: Spark starts")
        try:
            with self._spark() as spark:
                run = PipelineRun(self._pipeline, spark)
                try:
                    run.start()
                    self._signals.starting = False
                    showing.remark(f"{self._pipeline.name}: runs until Ctrl-C, or until all is done")
                    return self._follow(run, showing)
                except KeyboardInterrupt:  # while it was starting
                    run.stop(self._stop_timeout)
                    return self._signals.exit_code()
        except PipelineFileError as error:
            tell_mistakes(error, showing.json)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            return self._signals.exit_code() if self._signals.number else INTERRUPTED

    def _follow(self, run: PipelineRun, showing: Showing) -> int:
        name, over, code = self._pipeline.name, False, 0
        try:
            with showing.shown():
                while not over:
                    over = self._wait(run, showing.every)
                    if self._signals.stop.is_set():
                        break
                    showing.show(name, run.progress())
                if not over:
                    note = f"ends after the batches under way ({self._stop_timeout:g} s at most; Ctrl-C: at once)"
                    if showing.live is None:
                        showing.remark(f"{name} {note}")
                    showing.show(name, run.progress(), note)
                    if not run.stop(self._stop_timeout):
                        showing.remark("a batch was broken off: the next run does it again")
                    code = self._signals.exit_code()
                    showing.show(name, run.progress(), "stopped")
        except PipelineFailedError as error:
            if self._verbose:
                problems().print(error.details, markup=False, soft_wrap=True)
            raise
        _summary(showing, name, run.progress())
        return code

    def _wait(self, run: PipelineRun, seconds: float) -> bool:
        """In small steps, so that a signal is seen soon."""
        clock = SystemClock()
        deadline = clock.monotonic() + seconds
        while not self._signals.stop.is_set():
            left = deadline - clock.monotonic()
            if run.wait(max(0.0, min(0.1, left))):
                return True
            if left <= 0:
                return False
        return False

    @contextlib.contextmanager
    def _spark(self) -> Iterator[Any]:
        """A session of our own, and its end; its log is kept if somebody wants it, or may need it."""
        log = self._log
        if log is None and not self._verbose:
            handle, path = tempfile.mkstemp(prefix=f"rocketstream-{os.getpid()}-", suffix=".log")
            os.close(handle)
            log = Path(path)
        self._signals.install()
        needless = False
        try:
            spark = open_session(self._pipeline.name, master=self._master, conf=self._conf, log=log)
            self._signals.install()
            try:
                yield spark
            finally:
                with contextlib.suppress(Exception):  # it may be gone already
                    spark.stop()
            needless = True
        except (PipelineFileError, KeyboardInterrupt):
            needless = True
            raise
        finally:
            if log is not None and not needless:
                tell(f"Spark's log: {log}")
            elif log is not None and self._log is None:
                log.unlink(missing_ok=True)


def _line(query: QueryProgress) -> str:
    lag = "unknown" if query.lag is None else str(query.lag)
    took = "" if query.batch_seconds is None else f", last batch {query.batch_seconds:.1f} s"
    bad = f", {query.bad_rows} bad" if query.bad_rows else ""
    speed = f"{query.rows_per_second:.0f} rows/s"
    return f"{query.name}: {query.state}, {query.rows} rows, {speed}, lag {lag}{took}{bad}"


def _table(name: str, progress: RunProgress, note: str) -> RenderableType:
    numbers = ("rows", "rows/s", "lag", "batches", "last batch", "bad rows")
    shown = table("query", "state", *numbers, numbers=numbers)
    for query in progress.queries:
        took = None if query.batch_seconds is None else f"{query.batch_seconds:.1f} s"
        lag = "-" if query.lag is None else f"[yellow]{query.lag}[/]" if query.lag else "0"
        counts = (f"{query.rows}", f"{query.rows_per_second:.0f}", lag, f"{query.batches}", cell(took))
        shown.add_row(cell(query.name), query.state, *counts, f"[red]{query.bad_rows}[/]" if query.bad_rows else "0")
    head = f"Pipeline [bold]{escape(name)}[/]: {progress.dead_letters} dead letters"
    return Group(Text.from_markup(f"{head}; {escape(note)}" if note else head), shown)


def _summary(showing: Showing, name: str, progress: RunProgress) -> None:
    lag = "unknown" if progress.lag is None else progress.lag
    showing.remark(f"{name}: {progress.rows} rows read, {progress.dead_letters} dead letters, lag {lag}")
