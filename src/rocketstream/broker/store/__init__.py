"""Where the embedded broker keeps messages: a log of records, and an index that finds them by queue, key and time."""

from __future__ import annotations

from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.backing import Backing, Memory
from rocketstream.broker.store.log_store import LogStore
from rocketstream.clock import Clock


def open_store(settings: BrokerSettings, clock: Clock, store_host: str) -> LogStore:
    """A store, opened: in the settings' directory, or in memory without one. `store_host` is the broker's ip:port."""
    backing: Backing
    if settings.data is None:
        backing = Memory(settings)
    else:
        # Imported when needed: file locks are not on every system, memory is.
        from rocketstream.broker.store.files import LogFiles

        backing = LogFiles(settings, clock, settings.data)
    store = LogStore(settings, clock, store_host, backing)
    store.open()
    return store
