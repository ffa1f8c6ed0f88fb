"""The push consumer for event loops: listeners on the loop, cancellation that leaves nothing, signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from rocketstream import ConsumeResult, Message, StartFrom, aio
from rocketstream.cluster.client import ClientState
from rocketstream.errors import ClientStateError, ConfigurationError
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from tests.scripted import ScriptedBroker, ScriptedNameServer, eventually

PATIENCE = 60.0


# --- on the real brokers ---------------------------------------------------------------------------------------------


@pytest.fixture
def address(rocketmq_cluster) -> str:
    return rocketmq_cluster.name_server_address


async def until(ask: Callable[[], Awaitable[Any]], expected: Callable[[Any], bool]) -> None:
    """Ask again until the answer is as expected; the last one is shown if it never is."""
    for _ in range(600):
        answer = await ask()
        if expected(answer):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"still {answer!r}")


@pytest.mark.feature("asyncio/push-consumer")
async def test_messages_reach_an_async_listener_on_the_loop(address, topic, unique_group):
    loop = asyncio.get_running_loop()
    got: asyncio.Queue[tuple[bytes, asyncio.AbstractEventLoop]] = asyncio.Queue()

    async def listen(messages, context):
        for message in messages:
            await got.put((message.body, asyncio.get_running_loop()))
        return ConsumeResult.SUCCESS

    consumer = aio.PushConsumer(unique_group, address, listener=listen, start_from=StartFrom.FIRST)
    await consumer.subscribe(topic)
    async with aio.Producer("aio", address) as producer, aio.AdminClient(address) as admin:
        async with consumer:
            (queue,) = await consumer.assignment
            assert queue.topic == topic
            for number in range(3):
                await producer.send(Message(topic, b"%d" % number))
            bodies = [await asyncio.wait_for(got.get(), PATIENCE) for _ in range(3)]
            assert bodies == [(b"%d" % number, loop) for number in range(3)]
            status = await consumer.status()
            assert (status.group, status.state) == (unique_group, "RUNNING")
            # And the retries', whose topic a broker makes when the group first comes, and tells of in its own time.
            await until(consumer.status, lambda status: len(status.queues) == 2)
        assert consumer.state is ClientState.SHUTDOWN_ALREADY
        assert await consumer.assignment == ()
        assert (await admin.consumer_progress(unique_group, topic=topic)).lag == 0
        # That it leaves was said one way: the broker has it, and may still be at work on it.
        await until(partial(admin.consumers, unique_group), lambda there: there.members == ())
    await consumer.shutdown()


@pytest.mark.feature("asyncio/push-consumer")
async def test_plain_handlers_have_threads_and_async_ones_the_loop(address, client, broker, unique_topic, unique_group):
    topics = [f"{unique_topic}-plain", f"{unique_topic}-async"]
    for topic in topics:
        client.create_topic(broker, topic)
    consumer = aio.PushConsumer(unique_group, address, start_from=StartFrom.FIRST)
    ran: dict[str, threading.Thread] = {}

    @consumer.handler(topics[0])
    def plain(message):
        ran[message.topic] = threading.current_thread()

    @consumer.handler(topics[1])
    async def asynchronous(message):
        ran[message.topic] = threading.current_thread()

    async with aio.Producer("aio", address) as producer, consumer:
        for topic in topics:
            await producer.send(Message(topic, b"x"))
        await eventually(lambda: len(ran) == 2)
    assert ran[topics[1]] is threading.main_thread()
    assert ran[topics[0]] is not threading.main_thread()


async def test_subscriptions_change_while_it_runs(address, client, broker, unique_topic, unique_group):
    topics = [f"{unique_topic}-a", f"{unique_topic}-b"]
    for topic in topics:
        client.create_topic(broker, topic)
    consumer = aio.PushConsumer(
        unique_group, address, listener=lambda messages, context: ConsumeResult.SUCCESS, rebalance_interval=0.2
    )

    async def has(*wanted: str) -> None:
        for _ in range(2000):
            if {queue.topic for queue in await consumer.assignment} == set(wanted):
                return
            await asyncio.sleep(0.02)
        raise AssertionError(await consumer.assignment)

    await consumer.subscribe(topics[0])
    async with consumer:
        await has(topics[0])
        await consumer.subscribe(topics[1], "some || tags")
        await has(*topics)
        await consumer.unsubscribe(topics[0])
        await has(topics[1])
        await consumer.suspend()
        assert (await consumer.status()).paused
        await consumer.resume()
        assert not (await consumer.status()).paused


# --- scripted --------------------------------------------------------------------------------------------------------


class GroupBroker(ScriptedBroker):
    """A broker with empty queues and no other members; `silent` codes are not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: set[int] = set()
        self.members: list[str] = []
        self.unregistered = 0
        answers: dict[int, Callable[[Command], Command]] = {
            RequestCode.HEART_BEAT: self._ok,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list,
            RequestCode.QUERY_CONSUMER_OFFSET: lambda command: self._offset(command, 0),
            RequestCode.GET_MAX_OFFSET: lambda command: self._offset(command, 0),
            RequestCode.GET_MIN_OFFSET: lambda command: self._offset(command, 0),
            RequestCode.UPDATE_CONSUMER_OFFSET: self._ok,
        }
        for code, answer in answers.items():
            self.on(code, self._unless_silent(answer))
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            self.on(code, lambda command: None)  # a long poll

    def _unless_silent(self, answer: Callable[[Command], Command]) -> Callable[[Command], Command | None]:
        return lambda command: None if command.code in self.silent else answer(command)

    def _unregister(self, command: Command) -> Command:
        self.unregistered += command.fields.get("consumerGroup") == "g"
        return self._ok(command)

    def _list(self, command: Command) -> Command:
        body = json.dumps({"consumerIdList": self.members})
        return response(command, ResponseCode.SUCCESS, body=body.encode())

    @staticmethod
    def _offset(command: Command, offset: int) -> Command:
        answer = response(command, ResponseCode.SUCCESS)
        answer.fields["offset"] = str(offset)
        return answer


@pytest.fixture
async def name_server() -> AsyncIterator[ScriptedNameServer]:
    async with ScriptedNameServer() as server:
        yield server


@pytest.fixture
async def scripted(name_server: ScriptedNameServer) -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as broker:
        for topic in ("orders", "%RETRY%g"):
            name_server.set_route(topic, {"a": {0: broker.address}}, queues=1)
        yield broker


def succeed(messages: Any, context: Any) -> ConsumeResult:
    return ConsumeResult.SUCCESS


@pytest.fixture
async def consumer(name_server: ScriptedNameServer, scripted: GroupBroker) -> AsyncIterator[aio.PushConsumer]:
    made = aio.PushConsumer("g", name_server.address, listener=succeed)
    scripted.members.append(made.client_id)
    await made.subscribe("orders")
    yield made
    await made.shutdown(0.0)


def consume_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rocketstream-consume")]


async def test_a_cancelled_start_leaves_nothing_and_can_be_repeated(consumer, scripted):
    scripted.silent = {int(RequestCode.GET_CONSUMER_LIST_BY_GROUP)}
    starting = asyncio.ensure_future(consumer.start())
    await eventually(lambda: scripted.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) > 0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert consumer.state is ClientState.CREATE_JUST
    assert scripted.unregistered == 1, "the broker had its heartbeat, and is told that it is gone"
    await eventually(lambda: not scripted.peers)
    assert consume_threads() == []

    scripted.silent = set()
    async with consumer:
        assert [queue.topic for queue in await consumer.assignment] == ["orders"]


async def test_a_start_that_was_through_when_it_was_cancelled_is_taken_back(consumer, scripted, monkeypatch):
    """It has ended on the I/O thread, and the loop hears of that after it was cancelled."""
    loop = asyncio.get_running_loop()
    start = consumer.core.start

    async def start_and_cancel() -> None:
        await start()
        loop.call_soon_threadsafe(starting.cancel)

    monkeypatch.setattr(consumer.core, "start", start_and_cancel)
    starting = asyncio.ensure_future(consumer.start())
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert consumer.state is ClientState.SHUTDOWN_ALREADY
    assert scripted.unregistered == 1


async def test_cancelling_one_start_does_not_end_another(consumer, scripted):
    async with consumer:
        with pytest.raises(ClientStateError, match="cannot start: it is RUNNING"):
            await consumer.start()
        second = asyncio.ensure_future(consumer.start())
        await asyncio.sleep(0)
        second.cancel()
        with contextlib.suppress(asyncio.CancelledError, ClientStateError):
            await second
        assert consumer.state is ClientState.RUNNING


async def test_a_shutdown_goes_on_when_nobody_waits_for_it(consumer, scripted):
    await consumer.start()
    scripted.silent = {int(RequestCode.UNREGISTER_CLIENT)}
    ending = asyncio.ensure_future(consumer.shutdown())
    await eventually(lambda: scripted.count(RequestCode.UNREGISTER_CLIENT) > 0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    await consumer.shutdown()  # waits for the one that is under way
    await eventually(lambda: not scripted.peers)


async def test_a_running_listener_is_waited_for(consumer, scripted):
    """Closing waits on the I/O thread, so the loop goes on and the listener can end."""
    began, may_end = asyncio.Event(), asyncio.Event()
    ended: list[bool] = []

    async def listen(messages, context):
        began.set()
        await may_end.wait()
        ended.append(True)
        return ConsumeResult.SUCCESS

    consumer.set_listener(listen)
    await consumer.start()
    core = consumer.core

    async def give_work() -> None:
        (request,) = [one for queue, one in core.rebalancer.requests.items() if queue.topic == "orders"]
        core.consumption.submit(request.process_queue, [_Stub()])

    await core.io.bridge(give_work())
    await asyncio.wait_for(began.wait(), PATIENCE)
    ending = asyncio.ensure_future(consumer.shutdown())
    await eventually(lambda: consumer.state is ClientState.SHUTDOWN_ALREADY)
    assert not ending.done()
    may_end.set()
    await ending
    assert ended == [True]


class _Stub:
    """As much of a message as a process queue looks at."""

    queue_offset = 0
    body_size = 1
    consume_started = None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
async def test_run_ends_with_a_signal(consumer, scripted, number):
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    running = asyncio.ensure_future(consumer.run())
    await eventually(lambda: consumer.state is ClientState.RUNNING)
    os.kill(os.getpid(), number)
    await asyncio.wait_for(running, PATIENCE)
    assert consumer.state is ClientState.SHUTDOWN_ALREADY
    assert scripted.unregistered == 1
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


async def test_a_signal_breaks_off_a_start(consumer, scripted):
    scripted.silent = {int(RequestCode.GET_CONSUMER_LIST_BY_GROUP)}
    running = asyncio.ensure_future(consumer.run())
    await eventually(lambda: scripted.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) > 0)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, PATIENCE)
    assert consumer.state is ClientState.CREATE_JUST


@pytest.mark.parametrize("state", [ClientState.START_FAILED, ClientState.RUNNING], ids=lambda state: state.value)
async def test_run_ends_when_it_is_cancelled(consumer, scripted, state):
    if state is ClientState.START_FAILED:
        scripted.silent = {int(RequestCode.GET_CONSUMER_LIST_BY_GROUP)}
    running = asyncio.ensure_future(consumer.run())
    await eventually(lambda: consumer.state is state)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert consumer.state in (ClientState.CREATE_JUST, ClientState.SHUTDOWN_ALREADY)
    await eventually(lambda: not scripted.peers)


async def test_run_ends_when_it_is_cancelled_just_as_it_has_started(consumer, monkeypatch):
    start = consumer.start

    async def start_and_cancel() -> None:
        await start()
        # Comes after the end of this start, and before `run` hears of that.
        asyncio.get_running_loop().call_soon(running.cancel)

    monkeypatch.setattr(consumer, "start", start_and_cancel)
    running = asyncio.ensure_future(consumer.run())
    with pytest.raises(asyncio.CancelledError):
        await running
    assert consumer.state is ClientState.SHUTDOWN_ALREADY


async def test_run_waits_for_an_end_that_is_under_way(consumer, monkeypatch):
    running = asyncio.ensure_future(consumer.run())
    await eventually(lambda: consumer.state is ClientState.RUNNING)
    shutdown, go_on = consumer.core.shutdown, threading.Event()

    async def slow(timeout: float | None = None) -> None:
        await shutdown(timeout)
        await asyncio.to_thread(go_on.wait, 30.0)

    monkeypatch.setattr(consumer.core, "shutdown", slow)
    ending = asyncio.ensure_future(consumer.shutdown())
    await eventually(lambda: consumer.state is ClientState.SHUTDOWN_ALREADY)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=0.2)
    assert not done
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    await ending


async def test_run_elsewhere_than_on_the_main_thread(consumer, scripted):
    """Signals are the main thread's; there it ends by being cancelled."""
    main = asyncio.get_running_loop()
    task: asyncio.Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = main.create_future()

    async def elsewhere() -> None:
        running = asyncio.ensure_future(consumer.run())
        main.call_soon_threadsafe(task.set_result, (asyncio.get_running_loop(), running))
        with contextlib.suppress(asyncio.CancelledError):
            await running

    thread = asyncio.ensure_future(asyncio.to_thread(asyncio.run, elsewhere()))
    loop, running = await task
    await eventually(lambda: consumer.state is ClientState.RUNNING)
    loop.call_soon_threadsafe(running.cancel)
    await thread
    assert consumer.state is ClientState.SHUTDOWN_ALREADY


async def test_what_is_wrong_is_said_at_once(name_server):
    consumer = aio.PushConsumer("g", name_server.address)
    with pytest.raises(ConfigurationError, match="subscribe"):
        await consumer.start()
    with pytest.raises(ConfigurationError, match="illegal characters"):
        await consumer.subscribe("a b")
    await consumer.subscribe("orders")
    with pytest.raises(ConfigurationError, match="listener=None"):
        await consumer.start()
    await consumer.shutdown()
    assert consumer.state is ClientState.CREATE_JUST
    assert "CREATE_JUST, subscribed to orders" in repr(consumer)
