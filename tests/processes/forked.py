"""A program with clients that forks: what its children may do, and that the parent does not notice them.

    python -m tests.processes.forked WAY NAME_SERVER TOPIC

Each way is a function below; it prints what it saw as JSON on the last line. A program of its own, because a test
runner has threads that must not be forked. `NO_UVLOOP` in the environment is for asyncio's own event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import json
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

if os.environ.get("NO_UVLOOP"):
    sys.modules["uvloop"] = None  # type: ignore[assignment]

import rocketstream
from rocketstream import (
    ConsumeResult,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    StartFrom,
    TransactionState,
    aio,
)
from rocketstream.broker import EmbeddedBroker
from rocketstream.errors import ForkedClientError, NotPicklableError, RocketStreamError

PATIENCE = 30
ADDRESS, TOPIC = sys.argv[2:4] if len(sys.argv) > 3 else ("", "")
# What a child may read: values that are the same everywhere.
READABLE = {"auto_commit", "core", "state", "client_id", "group", "metrics", "settings", "clock", "faults"}
READABLE_OF_BROKER = {"address", "name_server_address", "broker_address", "running", "node"}


class Heard:
    """A listener that notes bodies, until there are enough."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.changed = threading.Condition()

    def __call__(self, messages: Any, context: Any) -> ConsumeResult:
        with self.changed:
            self.bodies += [message.body.decode() for message in messages]
            self.changed.notify_all()
        return ConsumeResult.SUCCESS

    def until(self, body: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: body in self.bodies, PATIENCE), self.bodies


def consumer_of(group: str, heard: Heard) -> PushConsumer:
    consumer = PushConsumer(group, ADDRESS, listener=heard, start_from=StartFrom.FIRST)
    consumer.subscribe(TOPIC)
    return consumer


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns in a forked child; its traceback if it raises, and an error if it hangs."""
    reading, writing = os.pipe()
    on_main_thread = threading.current_thread() is threading.main_thread()
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)  # nobody waits for a child that hangs
        os.close(reading)
        try:
            said = json.dumps(work())
        except Exception:
            said = json.dumps(traceback.format_exc())
        os.write(writing, said.encode())
        os.close(writing)
        if not on_main_thread:
            os._exit(0)  # a pool's thread would wait for more work
        sys.exit(0)  # as programs end: with `atexit`, the collector, and `with` blocks
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status} and said {said!r}"
    return json.loads(said)


# --- every method ----------------------------------------------------------------------------------------------------


def clients() -> Iterator[tuple[str, Any, bool]]:
    """Every client that there is, plain and for loops, started and not; and whether it is to be started."""
    functions = {
        "execute": lambda message, arg: TransactionState.COMMIT,
        "check": lambda message: TransactionState.COMMIT,
    }
    for room, made in (("plain", rocketstream), ("aio", aio)):
        for name in aio.__all__:
            for started in (True, False):
                kind = getattr(made, name)
                settings = functions if name == "TransactionProducer" else {}
                client = kind(ADDRESS) if name == "AdminClient" else kind(f"f-{room}-{name}", ADDRESS, **settings)
                if name == "PushConsumer":
                    client.set_listener(Heard())
                yield f"{room} {name}{' started' if started else ''}", client, started


def arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """Something for every argument that has to be given."""
    known: dict[str, Any] = {
        "message": Message(TOPIC, b"x"),
        "messages": [Message(TOPIC, b"x")],
        "topic": TOPIC,
        "received": None,
        "body": b"x",
        "listener": Heard(),
        "queue": MessageQueue(TOPIC, "broker-a", 0),
        "queues": [MessageQueue(TOPIC, "broker-a", 0)],
        "offset": 0,
        "timestamp": 0,
        "moment": 0,
    }
    return {
        name: known.get(name, "x")
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


async def awaited(result: Any) -> Any:
    if inspect.isasyncgen(result) or hasattr(result, "__anext__"):
        return await anext(result)
    return await result if inspect.isawaitable(result) else result


def outcome(use: Callable[[], Any], on_loop: bool) -> str:
    """What came of a use of a client: the name of the error, or "nothing"."""

    async def on_a_loop() -> Any:
        return await awaited(use())

    try:
        if on_loop:
            asyncio.run(on_a_loop())
        else:
            result = use()
            if inspect.isgenerator(result):
                next(result)
    except ForkedClientError as error:
        text = str(error)
        assert "was made in process" in text, text
        assert "Create the client after the fork" in text, text
        return "ForkedClientError"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def uses(name: str, client: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every public method and property of a client, and its `with`."""
    readable = READABLE | (READABLE_OF_BROKER if isinstance(client, EmbeddedBroker) else set())
    for attribute in dir(type(client)):
        if attribute.startswith("_") or attribute in readable:
            continue
        static = inspect.getattr_static(client, attribute)
        if isinstance(static, property):
            yield f"{name}.{attribute}", lambda attribute=attribute: getattr(client, attribute)
        elif callable(static):
            method = getattr(client, attribute)
            yield f"{name}.{attribute}()", lambda method=method: method(**arguments(method))
    enter, leave = ("__aenter__", "__aexit__") if hasattr(client, "__aenter__") else ("__enter__", "__exit__")
    for one in (enter, leave):
        given = () if one == enter else (None, None, None)
        yield f"{name}.{one}()", lambda one=one, given=given: getattr(client, one)(*given)


@contextlib.contextmanager
def fork_at_a_bad_moment(producer: Producer, made: list[tuple[str, Any, bool]]) -> Iterator[None]:
    """A thread of the parent has a lock that a child would wait for, and checks run that no child ever sees end."""
    cores = [client.core for name, client, _ in made if name == "plain TransactionProducer started"]
    check: concurrent.futures.Future[None] = concurrent.futures.Future()
    check.set_running_or_notify_cancel()
    for core in cores:
        core._checking["asked"] = check
    assert len(cores) == 1
    with producer._gate._lock:
        yield
    for core in cores:
        del core._checking["asked"]


def every_method() -> dict[str, Any]:
    """Every use of every client in a child raises; its end leaves the parent's clients alone."""
    heard = Heard()
    with (
        EmbeddedBroker() as broker,
        Producer("f-sending", ADDRESS, send_timeout=10.0) as producer,
        consumer_of(f"{TOPIC}-parent", heard) as listening,
    ):
        made = list(clients())
        for _, client, started in made:
            if started and hasattr(client, "subscribe"):
                result = client.subscribe(TOPIC)
                asyncio.run(awaited(result)) if inspect.isawaitable(result) else None
            if started:
                result = client.start()
                asyncio.run(awaited(result)) if inspect.isawaitable(result) else None
        producer.send_async(Message(TOPIC, b"before")).result(PATIENCE)

        def child() -> dict[str, str]:
            others = [("EmbeddedBroker", broker), ("the sender", producer), ("the listening", listening)]
            seen = {}
            for name, client in [*((name, client) for name, client, _ in made), *others]:
                on_loop = hasattr(client, "__aenter__") and not isinstance(client, EmbeddedBroker)
                repr(client)
                for what, use in uses(name, client):
                    seen[what] = outcome(use, on_loop or "aclose" in what or "aenter" in what or "aexit" in what)
            return seen

        with fork_at_a_bad_moment(producer, made):
            seen = in_child(child)
        for _ in range(3):  # whatever the child's end closed would be missing now
            producer.send(Message(TOPIC, b"after"))
        heard.until("after")
        assert broker.running
        for _, client, _ in made:
            result = client.shutdown()
            asyncio.run(awaited(result)) if inspect.isawaitable(result) else None
    return {"seen": seen}


# --- a life of its own -----------------------------------------------------------------------------------------------


def send_and_hear(name: str) -> str:
    """New clients in a child: one sends, one hears it."""
    heard = Heard()
    with Producer(f"f-{name}", ADDRESS, send_timeout=10.0) as producer, consumer_of(f"{TOPIC}-{name}", heard):
        producer.send(Message(TOPIC, name.encode()))
        heard.until(name)
    return name


def own_life() -> dict[str, Any]:
    """Children of every kind make clients of their own, beside the parent's, which go on."""
    heard = Heard()
    results: dict[str, Any] = {}
    with Producer("f-parent", ADDRESS, send_timeout=10.0) as producer, consumer_of(f"{TOPIC}-parent", heard):
        producer.send(Message(TOPIC, b"before"))
        heard.until("before")
        results["os.fork"] = in_child(lambda: send_and_hear("forked"))
        results["grandchild"] = in_child(lambda: in_child(lambda: send_and_hear("grandchild")))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            results["thread"] = pool.submit(in_child, lambda: send_and_hear("from-a-thread")).result(PATIENCE)
        for method in ("fork", "forkserver", "spawn"):
            context = multiprocessing.get_context(method)
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
                results[method] = pool.submit(send_and_hear, method).result(PATIENCE)
            try:
                process = context.Process(target=print, args=(producer,))
                process.start()
                process.join(PATIENCE)
                results[f"{method} argument"] = "started"
            except NotPicklableError as error:
                results[f"{method} argument"] = str(error)
        producer.send(Message(TOPIC, b"after"))
        heard.until("after")
    return results


def how_a_block_ends(error: BaseException | None) -> str:
    """What comes out of a `with` block of the parent's in a child that leaves it."""
    reading, writing = os.pipe()
    child = -1
    seen = "nothing"
    try:
        with Producer("f-left", ADDRESS):
            child = os.fork()
            if child == 0 and error is not None:
                raise error
            if child > 0:
                os.waitpid(child, 0)
    except BaseException as raised:
        if child:
            raise
        seen = f"{type(raised).__name__}: {raised}"
    if child == 0:
        os.write(writing, seen.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def blocks() -> dict[str, Any]:
    """What ends a child is what ended it: the blocks that it leaves do not hide it, and do not hang."""
    return {
        "raised": how_a_block_ends(ValueError("of the child")),
        "exit": how_a_block_ends(SystemExit(3)),
        "left": how_a_block_ends(None),
    }


def pickled() -> dict[str, Any]:
    """Nobody gets a client by pickling it."""
    problems = {}
    for name, client, _ in clients():
        try:
            pickle.dumps(client)
            problems[name] = "was pickled"
        except RocketStreamError as error:
            problems[name] = type(error).__name__
    return problems


if __name__ == "__main__":
    ways = {one.__name__: one for one in (every_method, own_life, blocks, pickled)}
    print(json.dumps(ways[sys.argv[1]]()))
