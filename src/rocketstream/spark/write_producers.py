"""The producers of a Spark process: one per cluster and way of sending, kept between tasks and micro-batches.

Spark forks its Python workers and uses them again for the next batch. A producer that was made before a fork stays
with the parent; the child makes its own.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Final

from rocketstream.clock import SystemClock
from rocketstream.cluster.client import start_and_wait
from rocketstream.errors import NameServerError, RocketStreamError
from rocketstream.producer.core import ProducerCore
from rocketstream.producer.settings import ProducerSettings
from rocketstream.spark.link import LinkSettings
from rocketstream.spark.write_options import WriteOptions

log = logging.getLogger("rocketstream.spark")

_PAUSE: Final = 0.5
_Key = tuple[int, LinkSettings, ProducerSettings]

_producers: dict[_Key, ProducerCore] = {}
_lock = threading.Lock()


def _forget() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that does not exist in the child may have held it
    _producers.clear()  # their threads and connections stayed with the parent


os.register_at_fork(after_in_child=_forget)


def running_producer(options: WriteOptions, patience: float = 0.0) -> ProducerCore:
    """This process's producer for a write, started; waits for a name server for at most `patience` seconds."""
    key = os.getpid(), options.link, options.producer_settings()
    with _lock:
        found = _producers.get(key)
        if found is not None and found.is_running:
            return found
        core = ProducerCore(options.link.client_settings(), key[2])
        _start(core, patience)
        _producers[key] = core
        return core


def _start(core: ProducerCore, patience: float) -> None:
    clock = SystemClock()
    begun = clock.monotonic()
    while True:
        try:
            start_and_wait(core)
            return
        except NameServerError as error:
            waited = clock.monotonic() - begun
            if waited >= patience:
                raise
            log.info("%s; trying again", error)
        core.io.run(clock.sleep(_PAUSE), core.what)


def close_producers() -> None:
    """Shut this process's producers down; the next write makes new ones."""
    with _lock:
        cores = [core for (pid, _, _), core in _producers.items() if pid == os.getpid()]
        _producers.clear()
    for core in cores:
        try:
            core.io.run(core.shutdown(), core.what)
        except RocketStreamError as error:
            log.info("%s could not be shut down: %s", core.what, error)
