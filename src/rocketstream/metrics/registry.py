"""The one registry of a process: who measures, and what those who have ended had measured.

The rule of this file: nothing happens until somebody asks. Clients count for themselves; asked, each is looked at on
its own event loop, and equal labels are added up: two producers of a group are one line. What a client has counted
stays when it ends, so that counters never fall; what it has at a moment goes with it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
import weakref
from collections.abc import Iterable
from typing import Protocol

from rocketstream.metrics.values import HistogramValue, Kind, Metric, Sample, Value

log = logging.getLogger("rocketstream.metrics")

_Totals = dict[tuple[Metric, tuple[str, ...]], Value]

MAX_ENDED = 50_000
"""So many totals are kept of clients that have ended, that is of some thousand groups and topics."""
ASK_TIMEOUT = 2.0
"""An event loop that does not answer for so long is left out of an answer."""


class Source(Protocol):
    """Somebody who measures."""

    def collect_metrics(self) -> Iterable[Sample]:
        """What it has now; called on its event loop."""


class Registry:
    """Who measures in this process. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[int, tuple[weakref.ref[Source], asyncio.AbstractEventLoop]] = {}
        self._ended: _Totals = {}
        self._told_full = False

    def __repr__(self) -> str:
        return f"<Registry of {len(self._sources)} sources, {len(self._ended)} totals of those that have ended>"

    def add(self, source: Source) -> None:
        """Look at a source from now on; called on its event loop."""
        with self._lock:
            self._sources[id(source)] = (weakref.ref(source), asyncio.get_running_loop())

    def remove(self, source: Source) -> None:
        """A source ends: its counts are kept. Called on its event loop; harmless for one that was never added."""
        if id(source) not in self._sources:
            return
        last: list[Sample] = []
        try:
            last = [sample for sample in source.collect_metrics() if sample.metric.kind is not Kind.GAUGE]
        except Exception:
            log.exception("the last counts of %r are lost", source)
        with self._lock:  # both at once: whoever asks now finds its counts here or there, not nowhere
            del self._sources[id(source)]
            if len(self._ended) + len(last) > MAX_ENDED:
                last = [sample for sample in last if (sample.metric, sample.labels) in self._ended]
                self._tell_full()
            _add(self._ended, last)

    def _tell_full(self) -> None:
        if not self._told_full:
            self._told_full = True
            log.warning(
                "%d totals of clients that have ended are kept, and no more: those of further groups and topics are"
                " forgotten with their client. Is a group or a topic made up for each message?",
                len(self._ended),
            )

    def collect(self) -> list[Sample]:
        """Everything that is measured in this process, now; blocks for a moment."""
        with self._lock:
            totals = dict(self._ended)
            sources = list(self._sources.values())
        for reference, loop in sources:
            source = reference()
            if source is not None:
                _add(totals, _ask(source, loop))
        return [Sample(metric, labels, value) for (metric, labels), value in totals.items()]

    def forget(self) -> None:
        """Begin anew: in a forked child, which has none of its parent's clients."""
        self._lock = threading.Lock()
        self._sources.clear()
        self._ended.clear()


def _ask(source: Source, loop: asyncio.AbstractEventLoop) -> list[Sample]:
    answer: concurrent.futures.Future[list[Sample]] = concurrent.futures.Future()

    def look() -> None:
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(list(source.collect_metrics()))
            except BaseException as error:
                answer.set_exception(error)

    try:
        if _runs_here(loop):
            look()
        else:
            loop.call_soon_threadsafe(look)
        return answer.result(ASK_TIMEOUT)
    except TimeoutError:
        answer.cancel()
        log.warning("%r did not tell its metrics within %g s: they are left out this time", source, ASK_TIMEOUT)
    except RuntimeError as error:
        log.debug("%r is not asked for its metrics: %s", source, error)  # its event loop is closed
    except Exception:
        log.exception("%r could not tell its metrics: they are left out this time", source)
    return []


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _add(totals: _Totals, samples: Iterable[Sample]) -> None:
    for metric, labels, value in samples:
        key = (metric, labels)
        before = totals.get(key)
        if before is None:
            totals[key] = value
        elif isinstance(before, HistogramValue):
            assert isinstance(value, HistogramValue)
            totals[key] = before.plus(value)
        else:
            assert not isinstance(value, HistogramValue)
            totals[key] = before + value


registry = Registry()
"""The process's own."""

os.register_at_fork(after_in_child=registry.forget)
