"""Planning a stream's micro-batches: where it begins, how far each batch reads, and what its group is told.

The rules of this file, each from how Spark really calls a source:
- Spark asks some fifty times a second while nothing comes: what brokers say is kept for a moment.
- It compares offsets as text: a queue that was there once stays in them, whatever becomes of it.
- `start` is what the batch before has finished: only that is written to the group, never what is being read.
- It asks where to begin again if the first batch did not finish, and "latest" has moved by then: so a stream that
  begins at the end pins that place with a first batch of nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rocketstream.clock import Clock, SystemClock
from rocketstream.message import MessageQueue
from rocketstream.spark.group_offsets import GroupOffsets
from rocketstream.spark.link import Link
from rocketstream.spark.offsets import Offsets
from rocketstream.spark.options import Place, ReadOptions
from rocketstream.spark.planning import check_filters, known_starts, missing, place_offsets, queues_of
from rocketstream.spark.ranges import QueueRange, admit, plan_partitions, ranges_between
from rocketstream.spark.slots import slots

log = logging.getLogger("rocketstream.spark")

_ROUTES_KEPT = 1.0
"""For how many seconds the queues of a topic are taken to be the same."""
_LEAST_KEPT = 0.01
_KEPT_FACTOR = 10.0
"""Ends of queues are kept for ten times as long as it took to ask for them."""


class StreamPlanner:
    """Plans one stream; lives as long as its query, in one process of the driver."""

    def __init__(self, options: ReadOptions, link: Link, clock: Clock | None = None) -> None:
        self._options = options
        self._link = link
        self._clock = clock or SystemClock()
        self._initial: Offsets | None = None
        self._pinned = False
        self._target: Offsets | None = None
        self._queues: list[MessageQueue] = []
        self._queues_until = 0.0
        self._firsts: Offsets = {}
        self._ends: Offsets = {}
        self._ends_until = 0.0
        self._short: dict[MessageQueue, tuple[float, int]] = {}
        """Queues that end before what was read: since when, and at which offset at the lowest."""
        self._checked = False
        self.group = GroupOffsets(link, options.group) if options.group and options.commit_offsets else None

    # --- where -----------------------------------------------------------------------------------------------------

    def initial(self) -> Offsets:
        """Where the stream begins; always the same in one process."""
        if self._initial is None:
            place = self._options.starting or Place("latest")
            self._initial = place_offsets(self._link, self._options, place, self._current_queues())
            log.info("a stream of %d queues begins at %s", len(self._initial), place)
        return self._initial

    def latest(self, start: Mapping[MessageQueue, int], limit: int | None) -> Offsets:
        """Where the next batch ends, which begins at `start`; the same as `start` if there is nothing to read."""
        if self.group is not None and start != self._initial:
            self.group.finished(start)
        if self._pins(start):
            return dict(start)
        available = self._current_ends() if self._target is None else self._target
        begin = known_starts(self._link, start, available)
        end = {**start, **admit(begin, available, limit), **self._fallen_back(start, available)}
        if self.group is not None and end == start:
            self.group.flush()  # the last batch, as far as can be known: nothing follows that would write it
        return end

    def _pins(self, start: Mapping[MessageQueue, int]) -> bool:
        """Whether this is the first batch of a stream that begins at the end."""
        first, self._pinned = not self._pinned, True
        place = self._options.starting or Place("latest")
        moves = place.name == "latest" and place.millis is None
        return first and moves and self._initial is not None and start == self._initial

    def report(self) -> Offsets:
        """The ends of all queues, for the progress report."""
        return self._current_ends()

    def prepare_available_now(self) -> None:
        """From now on there is nothing to read beyond what there is now."""
        self._ends_until = self._queues_until = 0.0
        self._target = dict(self._current_ends())

    def _fallen_back(self, start: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> Offsets:
        """Where to go on in queues that end before what was read: lost with a disk, or a topic that was made anew.

        A broker that comes back from a crash may need a moment to find its last messages, so this is an error, or a
        step back, only when it stays so. The step goes back to the lowest end that was seen: what came since is new.
        """
        now = self._clock.monotonic()
        short = {queue: end for queue, end in ends.items() if end < start.get(queue, 0)}
        self._short = {
            queue: (since, min(lowest, end))
            for queue, end in short.items()
            for since, lowest in [self._short.get(queue, (now, end))]
        }
        stay = {queue: lowest for queue, (since, lowest) in self._short.items() if now - since >= self._options.outage}
        for queue, lowest in stay.items():
            why = f"they were read, and its messages end at {short[queue]} now: was the topic made anew?"
            missing(QueueRange(queue, lowest, start[queue]), why, fail=self._options.fail_on_data_loss)
        return stay

    # --- what -----------------------------------------------------------------------------------------------------

    def partitions(self, start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[list[QueueRange]]:
        """The ranges of each task of a batch."""
        begin = known_starts(self._link, start, end)
        ranges = [self._still_there(one) for one in ranges_between(begin, end)]
        return plan_partitions(ranges, slots(len(ranges)), self._options.min_partitions)

    def _still_there(self, wanted: QueueRange) -> QueueRange:
        """A range without what retention has taken of it; that is an error, or is said."""
        queue, start, end = wanted
        if queue not in self._firsts:  # a batch that is planned again by a new process
            self._firsts |= self._link.min_offsets([queue])
        first = self._firsts[queue]
        if start < first:
            gone = QueueRange(queue, start, min(first, end))
            missing(gone, f"its messages begin at {first}", fail=self._options.fail_on_data_loss)
        return QueueRange(queue, max(start, first), end)

    # --- what brokers say, kept for a moment ---------------------------------------------------------------------

    def _current_queues(self) -> list[MessageQueue]:
        now = self._clock.monotonic()
        if now >= self._queues_until:
            found = queues_of(self._link, self._options)
            new = sorted(set(found) - set(self._queues))
            if self._queues and new:
                log.info("%d queues are new: %s", len(new), ", ".join(map(str, new[:8])))
            self._queues, self._queues_until = found, self._clock.monotonic() + _ROUTES_KEPT
            if found and not self._checked:
                check_filters(self._link, self._options, found)
                self._checked = True
        return self._queues

    def _current_ends(self) -> Offsets:
        now = self._clock.monotonic()
        if now >= self._ends_until:
            self._firsts, self._ends = self._link.limits(self._current_queues())
            took = self._clock.monotonic() - now
            self._ends_until = now + took + max(took * _KEPT_FACTOR, _LEAST_KEPT)
        return self._ends

    def stop(self) -> None:
        """Write what is still to be written."""
        if self.group is not None:
            self.group.flush()
