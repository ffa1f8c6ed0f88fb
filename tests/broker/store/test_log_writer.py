"""When what was appended is on the disk, and what happens when it can't be put there."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketstream.broker.refusal import Refusal
from rocketstream.broker.store import log_writer
from rocketstream.broker.store.log_store import LogStore
from rocketstream.broker.store.log_writer import FLUSH_INTERVAL
from rocketstream.clock import ManualClock
from rocketstream.wire.codes import ResponseCode
from tests.broker.store.stores import OpenStore, bodies, message


class Syncs:
    """Stands for the disk: counts what is synced, and can hold it or refuse it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.sizes: list[int] = []
        """How long the log was at each sync."""
        self.error: OSError | None = None
        self._directory = directory
        monkeypatch.setattr(log_writer, "_sync", self._sync)

    def _sync(self, file: int) -> None:
        if self.error is not None:
            raise self.error
        os.fsync(file)
        self.sizes.append(sum(path.stat().st_size for path in (self._directory / "log").glob("*.log")))


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Syncs:
    return Syncs(monkeypatch, tmp_path)


async def until(condition: Callable[[], bool]) -> None:
    """The writer's thread takes real time; a test that waits in vain is ended by its time-out."""
    while not condition():  # noqa: ASYNC110 - it is a thread that makes it true
        await asyncio.sleep(0.001)


async def send(store: LogStore, body: str) -> None:
    waiting = store.durable(store.append(message(body)).position)
    if waiting is not None:
        await waiting


async def test_nobody_waits_where_nothing_is_promised(any_store: OpenStore) -> None:
    store = any_store(flush="async")
    assert store.durable(store.append(message()).position) is None


async def test_senders_of_one_turn_share_a_sync(file_store: OpenStore, syncs: Syncs) -> None:
    store = file_store()
    await asyncio.gather(*(send(store, str(number)) for number in range(100)))
    assert syncs.sizes == [store.size]


async def test_it_is_on_the_disk_when_the_waiting_ends(file_store: OpenStore, syncs: Syncs) -> None:
    store = file_store(segment_size=4096)

    async def sender(name: int) -> None:
        for number in range(20):
            stored = store.append(message(f"{name}-{number}"))
            waiting = store.durable(stored.position)
            assert waiting is not None
            await waiting
            assert syncs.sizes[-1] >= stored.position + stored.size
            assert store.durable(stored.position) is None

    await asyncio.gather(*(sender(name) for name in range(8)))
    assert len(syncs.sizes) < 160
    assert len(bodies(store)) == 160


async def test_a_sender_that_gives_up_does_not_take_others_along(file_store: OpenStore) -> None:
    store = file_store()
    senders = [asyncio.ensure_future(send(store, str(number))) for number in range(3)]
    await asyncio.sleep(0)
    senders[1].cancel()
    results = await asyncio.gather(*senders, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), asyncio.CancelledError, type(None)]


@pytest.mark.parametrize("flush", ["sync", "async"])
async def test_what_nobody_waits_for_is_written_soon(
    file_store: OpenStore, syncs: Syncs, clock: ManualClock, flush: str
) -> None:
    store = file_store(flush=flush)
    store.append(message("one"))
    store.append(message("two"))
    await clock.advance(FLUSH_INTERVAL / 2)
    assert not syncs.sizes
    await clock.advance(FLUSH_INTERVAL / 2)
    await until(lambda: bool(syncs.sizes))
    assert syncs.sizes == [store.size]
    await clock.settle()
    assert not clock.pending
    store.append(message("three"))
    await clock.advance(FLUSH_INTERVAL)
    await until(lambda: len(syncs.sizes) == 2)
    assert syncs.sizes[1] == store.size


async def test_closing_writes_everything_and_lets_waiters_go(file_store: OpenStore, syncs: Syncs) -> None:
    store = file_store()
    waiting = store.durable(store.append(message("one")).position)
    assert waiting is not None
    store.close()
    await waiting
    assert syncs.sizes == [store.size]
    assert bodies(file_store()) == [b"one"]


async def test_a_complete_segment_gives_its_memory_back(file_store: OpenStore) -> None:
    store = file_store(segment_size=4096)
    for number in range(100):
        await send(store, str(number))
    assert [segment.settled for segment in store._log.segments[-2:]] == [True, False]
    assert [len(segment.view) == segment.end for segment in store._log.segments[:-1]] == [True] * len(
        store._log.segments[:-1]
    )
    assert len(bodies(store)) == 100


async def test_a_disk_that_fails_refuses_everybody(
    file_store: OpenStore, syncs: Syncs, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store()
    await send(store, "kept")
    syncs.error = OSError(errno.ENOSPC, "No space left on device")
    results = await asyncio.gather(*(send(store, str(number)) for number in range(3)), return_exceptions=True)
    for result in results:
        assert isinstance(result, Refusal)
        assert result.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "No space left on device" in result.remark
    assert "nothing is taken any more" in caplog.text
    syncs.error = None
    # Nobody knows what is on the disk: it must not be believed again.
    with pytest.raises(Refusal, match="No space left"):
        store.append(message("later"))
    with pytest.raises(Refusal, match="No space left"):
        store.durable(store.size)
    assert bodies(store)[0] == b"kept"


async def test_a_disk_that_fails_at_the_close_says_so(
    file_store: OpenStore, syncs: Syncs, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store()
    store.append(message())
    syncs.error = OSError(errno.EIO, "Input/output error")
    store.close()
    assert "nothing is taken any more" in caplog.text


async def test_a_disk_that_is_too_slow_slows_the_senders(
    file_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "MAX_UNWRITTEN", 10_000)
    store = file_store(segment_size=4096, flush="async")

    def fill() -> None:
        for number in range(1000):
            store.append(message(str(number)))

    with pytest.raises(Refusal, match="too slow") as refused:
        fill()
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    taken = store.max_offset("orders", 0)
    await until(lambda: store._log.segments[0].settled)
    assert store.append(message(str(taken))).queue_offset == taken


async def test_an_abandoned_store_writes_nothing_more(
    file_store: OpenStore, syncs: Syncs, opened: list[LogStore]
) -> None:
    store = file_store()
    await send(store, "acknowledged")
    store.append(message("lost"))
    waiting = store.durable(store.append(message("lost, too")).position)
    assert waiting is not None
    store.abandon()
    with pytest.raises(Refusal, match="shut down"):
        await waiting
    opened.clear()
    assert bodies(file_store()) == [b"acknowledged"]


@pytest.mark.parametrize("end", ["close", "abandon"])
async def test_nothing_is_taken_after_the_end(any_store: OpenStore, end: str) -> None:
    store = any_store()
    store.append(message("one"))
    getattr(store, end)()
    with pytest.raises(Refusal, match="shut down") as refused:
        store.append(message("two"))
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert bodies(store) == [b"one"]
