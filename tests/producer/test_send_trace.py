"""How much time a trace may take, and what a producer's does when there is none left."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rocketstream.message import Message, MessageQueue
from rocketstream.producer.allowance import Allowance
from rocketstream.producer.receipt import SendReceipt, SendStatus
from rocketstream.producer.send_trace import SendTrace
from rocketstream.producer.trace import TraceDispatcher
from tests.busy_clock import BusyClock


def test_an_allowance():
    """20 ms at most; 3 % of what is computed, half of what is not."""
    allowance = Allowance(100.0, 7.0, idle_share=0.5)
    assert allowance.spend(0.015, 100.0, 7.0, late=False) == 0.0
    assert allowance.spend(0.015, 100.0, 7.0, late=False) == pytest.approx(2 / 3), "10 ms too much, 10 to go on with"
    assert allowance.spend(0.0, 100.1, 7.1, late=False) > 0.0, "100 ms of work bring 3 ms"
    assert allowance.spend(0.0, 100.5, 7.5, late=False) == 0.0
    assert allowance.spend(0.006, 100.5, 7.5, late=False) > 0.0
    assert allowance.spend(0.0, 100.6, 7.5, late=True) > 0.0, "nobody was idle"
    assert allowance.spend(0.0, 100.7, 7.5, late=False) == 0.0
    assert allowance.spend(0.019, 900.0, 7.5, late=False) == 0.0, "saved up to a bound"
    assert allowance.spend(0.002, 900.0, 7.5, late=False) > 0.0
    assert allowance.spend(9.0, 900.0, 7.5, late=False) == 1.0, "it is looked again after a second"


async def test_a_producer_that_is_too_busy_is_traced_in_part():
    busy = BusyClock()
    written: list[Message] = []

    async def send(message: Message) -> None:
        written.append(message)

    trace = SendTrace("g", TraceDispatcher("traces", busy, send), cpu=lambda: busy._now)
    out = SimpleNamespace(message=Message("t", b"x"), count=1, fields={"f": "0"}, body=b"x")
    receipt = SendReceipt(SendStatus.OK, "ID", "OFFSET-ID", MessageQueue("t", "a", 0), 1)

    def sent(times: int) -> int:
        before = trace.dispatcher.dropped
        for _ in range(times):
            trace.sent(out, "a:1", busy.monotonic(), receipt, {})
        return trace.dispatcher.dropped - before

    assert sent(100) == 0, "time that is not spent is no reason"
    busy.step = 0.002  # each look at the clock takes so long: a record takes several of them
    assert 80 < sent(100) < 100, "a few, then no more"
    busy.step = 0.0
    assert sent(10) == 10, "the pause is not over"
    busy._now += 10.0
    assert sent(10) == 0
    await trace.dispatcher.end()
    assert written
