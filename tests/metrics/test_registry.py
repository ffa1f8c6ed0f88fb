"""The registry: equal labels are one, counts outlive their client, and nobody who hangs holds up the others."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading

import pytest

from rocketstream.metrics import catalogue
from rocketstream.metrics import registry as registry_module
from rocketstream.metrics.registry import Registry
from rocketstream.metrics.values import HistogramValue, Sample
from rocketstream.remoting.io_thread import IoThread

OK = (catalogue.PRODUCER_MESSAGES, ("g", "t", "ok"))
LAG = (catalogue.CONSUMER_LAG, ("g", "t"))
SECONDS = (catalogue.PRODUCER_SEND_SECONDS, ("g", "t"))


class Client:
    """Somebody who measures."""

    def __init__(self, *samples: Sample) -> None:
        self.samples = list(samples)
        self.asked_on: list[threading.Thread] = []

    def collect_metrics(self) -> list[Sample]:
        self.asked_on.append(threading.current_thread())
        return self.samples


@pytest.fixture
def registry() -> Registry:
    return Registry()


def collected(registry: Registry) -> dict[tuple[object, ...], object]:
    return {(sample.metric, sample.labels): sample.value for sample in registry.collect()}


async def test_equal_labels_are_added_up(registry):
    first = Client(Sample(*OK, 3), Sample(*LAG, 5), Sample(*SECONDS, HistogramValue((1, 0), 0.1)))
    second = Client(Sample(*OK, 4), Sample(*LAG, 6), Sample(*SECONDS, HistogramValue((2, 1), 0.2)))
    registry.add(first)
    registry.add(second)
    assert collected(registry) == {OK: 7, LAG: 11, SECONDS: HistogramValue((3, 1), pytest.approx(0.3))}


async def test_what_was_counted_stays_and_what_there_was_goes(registry):
    client = Client(Sample(*OK, 3), Sample(*LAG, 5), Sample(*SECONDS, HistogramValue((1, 0), 0.1)))
    registry.add(client)
    registry.remove(client)
    registry.remove(client)
    kept = {OK: 3, SECONDS: HistogramValue((1, 0), 0.1)}
    assert collected(registry) == kept
    again = Client(Sample(*OK, 2))
    registry.add(again)
    assert collected(registry) == {**kept, OK: 5}
    assert repr(registry) == "<Registry of 1 sources, 2 totals of those that have ended>"


async def test_what_is_kept_is_bounded(registry, monkeypatch, caplog):
    monkeypatch.setattr(registry_module, "MAX_ENDED", 3)
    for n in range(10):
        client = Client(Sample(*OK, 1), Sample(catalogue.PRODUCER_RETRIES, ("g", str(n)), 1))
        registry.add(client)
        registry.remove(client)
    kept = collected(registry)
    assert kept[OK] == 10, "what is there already goes on"
    assert len(kept) == 2
    (told,) = caplog.records
    assert "2 totals of clients that have ended are kept" in told.getMessage()


async def test_who_was_never_added_leaves_nothing(registry):
    registry.remove(Client(Sample(*OK, 3)))
    assert collected(registry) == {}


async def test_a_client_that_is_gone_is_not_held(registry):
    registry.add(Client(Sample(*OK, 3)))
    gc.collect()
    assert collected(registry) == {}


def test_a_client_is_asked_on_its_own_event_loop(registry):
    io = IoThread("metrics-test")
    client = Client(Sample(*OK, 3))

    async def add() -> None:
        registry.add(client)

    io.run(add())
    assert collected(registry) == {OK: 3}
    assert [thread.name for thread in client.asked_on] == ["metrics-test"]
    io.stop()
    assert collected(registry) == {}, "its loop is closed"


def test_who_does_not_answer_or_raises_is_left_out(registry, monkeypatch, caplog):
    monkeypatch.setattr(registry_module, "ASK_TIMEOUT", 0.05)
    io, other = IoThread("metrics-hangs"), IoThread("metrics-works")
    hangs, works, raises = Client(Sample(*OK, 1)), Client(Sample(*OK, 2)), Client()
    raises.samples = None  # type: ignore[assignment]

    async def add(client: Client) -> None:
        registry.add(client)

    io.run(add(hangs))
    other.run(add(raises))
    other.run(add(works))
    go_on = threading.Event()
    io.call_soon(go_on.wait)
    try:
        assert collected(registry) == {OK: 2}
    finally:
        go_on.set()
        io.stop()
        other.stop()
    told = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert told == [
        (logging.WARNING, f"{hangs!r} did not tell its metrics within 0.05 s: they are left out this time"),
        (logging.ERROR, f"{raises!r} could not tell its metrics: they are left out this time"),
    ]


async def test_last_counts_that_cannot_be_had_do_not_stop_an_end(registry, caplog):
    client = Client()
    client.samples = None  # type: ignore[assignment]
    registry.add(client)
    registry.remove(client)
    assert collected(registry) == {}
    assert "the last counts of" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_begins_anew():
    async def add() -> None:
        registry_module.registry.add(client)

    client = Client(Sample(*OK, 3))
    asyncio.run(add())
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, repr(registry_module.registry).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as told:
        assert told.read() == b"<Registry of 0 sources, 0 totals of those that have ended>"
    asyncio.run(_remove(client))


async def _remove(client: Client) -> None:
    registry_module.registry._sources.pop(id(client))
