"""One process of `rocketstream run`: find the consumer, start it, stay until a signal, shut it down.

The rule of this file: what the user's program raises is shown as it is, with its traceback; what rocketstream raises is
one sentence. As a process of several (`python -m rocketstream.cli._worker`) it tells its parent over a socket how the
start went, and ends when the parent is gone, whatever that died of.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, NoReturn, TypeAlias

from rocketstream import aio
from rocketstream.cli._run_metrics import Endpoint, served_here
from rocketstream.clock import Clock, SystemClock
from rocketstream.cluster.client import ClientState
from rocketstream.consumer.push_consumer import PushConsumer
from rocketstream.errors import ConfigurationError, RocketStreamError
from rocketstream.metrics.registry import registry
from rocketstream.metrics.transport import encode_samples
from rocketstream.stop_event import StopEvent

log = logging.getLogger("rocketstream.cli")

Consumer: TypeAlias = PushConsumer | aio.PushConsumer

FAILED, USAGE, INTERRUPTED = 1, 2, 130
_ENDS = "the consumer ends; its listeners get %g s, unless there is a second Ctrl-C"
_LOG_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


# --- the user's program ----------------------------------------------------------------------------------------------


def find(target: str) -> Consumer | Coroutine[Any, Any, Any]:
    """The consumer that `module:attribute` names, or what makes it on a loop; `ConfigurationError` if it is neither."""
    module_name, colon, path = target.partition(":")
    if not colon or not module_name or not path or ":" in path:
        raise ConfigurationError(f"{target!r} must be MODULE:CONSUMER, for example shop.billing:consumer")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    found: Any = _import(module_name, here)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ConfigurationError(f"{target!r}: module {module_name!r} has no attribute {path!r}") from None
    if callable(found) and not isinstance(found, Consumer):
        try:
            inspect.signature(found).bind()
        except TypeError:
            raise ConfigurationError(
                f"{target!r} is no PushConsumer, nor a function without arguments that returns one, but {found!r}"
            ) from None
        found = found()
    return found if inspect.iscoroutine(found) else checked(target, found)


def checked(target: str, found: object) -> Consumer:
    """It, if it is a consumer that can be started."""
    if not isinstance(found, Consumer):
        raise ConfigurationError(f"{target!r} is no PushConsumer, nor a function that returns one, but {found!r}")
    if found.state is not ClientState.CREATE_JUST:
        raise ConfigurationError(
            f"{target!r} is {found.state.value} already: `rocketstream run` starts it, and ends it. Keep start() and"
            ' run() under `if __name__ == "__main__":`'
        )
    return found


def _import(name: str, here: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that is there and imports one that is not is the program's own mistake, shown with its traceback.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise ConfigurationError(
            f"there is no module {name!r}, neither in {here} nor among what is installed"
        ) from None


def set_up_logging(level: str | None) -> None:
    """Log to standard error, unless the program has set up logging of its own; a level that was asked for holds."""
    logging.basicConfig(format=_LOG_FORMAT, level=(level or "info").upper())
    if level is not None:
        logging.getLogger().setLevel(level.upper())


# --- its life --------------------------------------------------------------------------------------------------------


class StopSignals:
    """Tells the first signal from a second Ctrl-C.

    A terminal's Ctrl-C often comes twice, because `timeout`, `uv run` and the like pass on what the whole process group
    has got already; that is still the first. And a service manager may say SIGTERM twice and mean nothing by it.
    """

    SAME = 1.0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: float | None = None

    def is_first(self) -> bool:
        """Whether this is the first signal; asked once per signal."""
        if self._first is not None:
            return False
        self._first = self._clock.monotonic()
        return True

    def is_impatient(self, number: int) -> bool:
        """Whether one that is not the first means: at once."""
        since = self._first if self._first is not None else self._clock.monotonic()
        return number == signal.SIGINT and self._clock.monotonic() - since >= self.SAME


class _Stopped(BaseException):
    """A signal came before the consumer was up."""


class _Signals:
    """SIGINT and SIGTERM: they break off a start, end what runs, and a second SIGINT ends the process at once."""

    def __init__(self) -> None:
        self._stop = StopEvent()
        self._stops = StopSignals(SystemClock())
        self.starting = True

    def install(self) -> None:
        """Handle them from now on."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def wait(self) -> None:
        """Until one comes."""
        self._stop.wait()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stops.is_first():
            self._stop.set()
            if self.starting:
                raise _Stopped
        elif self._stops.is_impatient(number):
            os._exit(INTERRUPTED)


def live(target: str, shutdown_timeout: float, level: str | None, started: Callable[[], None]) -> None:
    """Find the consumer, start it, stay until SIGINT or SIGTERM, shut it down."""
    signals = _Signals()
    signals.install()
    consumer = None
    try:
        found = find(target)
        set_up_logging(level)
        if not isinstance(found, PushConsumer):
            asyncio.run(_live_on_loop(target, found, shutdown_timeout, started))
            return
        consumer = found
        signals.install()  # the program may have set handlers of its own
        consumer.start()
        signals.starting = False
    except _Stopped:
        if consumer is not None:  # the signal may have come just after the start
            consumer.shutdown(shutdown_timeout)
        return
    started()
    signals.wait()
    log.info(_ENDS, shutdown_timeout)
    consumer.shutdown(shutdown_timeout)


async def _live_on_loop(
    target: str,
    found: aio.PushConsumer | Coroutine[Any, Any, Any],
    shutdown_timeout: float,
    started: Callable[[], None],
) -> None:
    stop, stops = asyncio.Event(), StopSignals(SystemClock())
    starting = asyncio.ensure_future(_start_on_loop(target, found))

    def on_signal(number: int) -> None:
        if stops.is_first():
            stop.set()
            starting.cancel()
        elif stops.is_impatient(number):
            os._exit(INTERRUPTED)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    try:
        consumer = await starting
    except asyncio.CancelledError:
        return
    started()
    await stop.wait()
    log.info(_ENDS, shutdown_timeout)
    await consumer.shutdown(shutdown_timeout)


async def _start_on_loop(target: str, found: aio.PushConsumer | Coroutine[Any, Any, Any]) -> aio.PushConsumer:
    if not isinstance(found, aio.PushConsumer):
        made = checked(target, await found)
        if not isinstance(made, aio.PushConsumer):
            raise ConfigurationError(f"{target!r} is an `async def`: it must return a rocketstream.aio.PushConsumer")
        found = made
    await found.start()
    return found


def run_here(
    target: str,
    shutdown_timeout: float,
    level: str | None,
    endpoint: Endpoint | None = None,
    tell: Callable[[str], None] = print,
) -> int:
    """Run the consumer in this process; the exit code. What rocketstream raises is for the caller to tell."""
    try:
        with served_here(endpoint, tell):
            live(target, shutdown_timeout, level, lambda: None)
    except RocketStreamError:
        raise
    except Exception:
        traceback.print_exc()
        return FAILED
    return 0


# --- as one of several -----------------------------------------------------------------------------------------------


class _Parent:
    """The other end of the socket."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # or a process that the program starts would keep the socket open
        self._socket = socket.socket(fileno=descriptor)
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, name="rocketstream-run-parent", daemon=True).start()

    def tell(self, **what: Any) -> None:
        """Say something; a parent that is gone is seen to by `_watch`."""
        try:
            with self._lock:
                self._socket.sendall(json.dumps(what).encode() + b"\n")
        except OSError:
            return

    def _watch(self) -> None:
        try:
            for line in self._socket.makefile("rb"):
                self._answer(json.loads(line))
        except OSError:
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    def _answer(self, asked: dict[str, Any]) -> None:
        """The one question there is: for the metrics of this process."""
        self.tell(event="metrics", number=asked["number"], samples=encode_samples(registry.collect()))


def main(arguments: list[str]) -> NoReturn:
    """`_worker TARGET SHUTDOWN_TIMEOUT LEVEL DESCRIPTOR`, as the supervisor starts it."""
    target, shutdown_timeout, level, descriptor = arguments
    parent = _Parent(int(descriptor))
    code = 0
    try:
        live(target, float(shutdown_timeout), level or None, lambda: parent.tell(event="started"))
    except RocketStreamError as problem:
        code = USAGE if isinstance(problem, ConfigurationError) else FAILED
        parent.tell(event="failed", why=str(problem))
    except Exception as problem:
        traceback.print_exc()
        code = FAILED
        parent.tell(event="failed", why=f"{type(problem).__name__}: {problem}")
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
