"""The trace of sends: written on the I/O thread right after a broker's answer, while that holds nobody up.

The rule of this file: a producer at full speed keeps it. Writing gets a small share of the time (`Allowance`); sends
beyond that are not traced, but counted as dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from rocketstream.producer.allowance import Allowance
from rocketstream.producer.outgoing import Outgoing
from rocketstream.producer.receipt import SendReceipt
from rocketstream.producer.trace import TraceDispatcher, publish_traces

# Of the time that the process has nothing to do: a caller that waits for its broker sends again once it has its answer.
_IDLE_SHARE: Final = 0.08
# Sending records takes about as long as writing them.
_WHOLE: Final = 2.0


class SendTrace:
    """Writes the records of sends, if there is time for it."""

    def __init__(
        self, group: str, dispatcher: TraceDispatcher, *, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self.dispatcher = dispatcher
        self._group = group
        self._cpu = cpu
        self._allowance = Allowance(dispatcher.clock.monotonic(), cpu(), idle_share=_IDLE_SHARE)
        self._closed_until = 0.0

    def __repr__(self) -> str:
        return f"<SendTrace of group {self._group}, {self.dispatcher!r}>"

    def sent(
        self, out: Outgoing, address: str, begun: float, receipt: SendReceipt, answered: Mapping[str, str]
    ) -> None:
        """A send has ended; `answered` are the fields of the broker's answer."""
        trace = self.dispatcher
        now = trace.clock.monotonic()
        if not trace.has_room:
            trace.drop(out.count, trace.why_no_room)
        elif now < self._closed_until:
            trace.drop(out.count, "the producer is too busy to trace everything")
        else:
            for record in publish_traces(out, address, receipt, answered, self._group, trace.clock, begun):
                trace.record(record)
            ended = trace.clock.monotonic()
            self._closed_until = ended + self._allowance.spend((ended - now) * _WHOLE, ended, self._cpu())
