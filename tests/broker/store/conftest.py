"""Stores to test: in memory and in files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store import open_store
from rocketstream.broker.store.log_store import LogStore
from rocketstream.clock import ManualClock
from tests.broker.store.stores import OpenStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opened() -> Iterator[list[LogStore]]:
    stores: list[LogStore] = []
    yield stores
    for store in stores:
        store.close()


@pytest.fixture(params=["memory", "files"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock, opened: list[LogStore]) -> OpenStore:
    """Opens a store of either kind, with these settings."""

    def open_it(**settings: Any) -> LogStore:
        data = tmp_path if request.param == "files" else None
        store = open_store(BrokerSettings(data=data, **settings), clock, "127.0.0.1:10911")
        opened.append(store)
        return store

    return open_it


@pytest.fixture
def file_store(tmp_path: Path, clock: ManualClock, opened: list[LogStore]) -> OpenStore:
    """Opens the store in a directory; one that was opened before is closed."""

    def open_it(*, close: bool = True, **settings: Any) -> LogStore:
        if close and opened:
            opened.pop().close()
        store = open_store(BrokerSettings(**({"data": tmp_path} | settings)), clock, "127.0.0.1:10911")
        opened.append(store)
        return store

    return open_it
