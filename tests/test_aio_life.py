"""Clients on event loops: what cancelling a call leaves, how blocks end, several loops, the end of the process."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstream
from rocketstream import ConsumeResult, Message, StartFrom, TransactionState, aio
from rocketstream.broker import EmbeddedBroker
from rocketstream.cluster.client import ClientState
from rocketstream.errors import ClientStateError
from tests.scripted import eventually

HOME = Path(__file__).parents[1]
PATIENCE = 60.0
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


def succeed(messages: Any, context: Any) -> ConsumeResult:
    return ConsumeResult.SUCCESS


@pytest.mark.feature("asyncio/same-methods")
def test_every_client_is_there():
    """A client that is added to the plain ones and not here is noticed."""
    clients = {
        name
        for name in rocketstream.__all__
        if inspect.isclass(kind := getattr(rocketstream, name)) and hasattr(kind, "start") and hasattr(kind, "shutdown")
    }
    assert clients == set(aio.__all__)


# --- cancelled -------------------------------------------------------------------------------------------------------


def make(kind: str, address: str) -> Any:
    if kind == "AdminClient":
        return aio.AdminClient(address)
    if kind == "TransactionProducer":
        return aio.TransactionProducer("g", address, execute=lambda message, arg: COMMIT, check=lambda message: COMMIT)
    if kind == "PushConsumer":
        return aio.PushConsumer("g", address, listener=succeed)
    return getattr(aio, kind)("g", address)


def core_of(client: Any) -> Any:
    return client._core if hasattr(client, "_core") else client._plain.core


@pytest.fixture
async def orders(embedded_broker: EmbeddedBroker) -> EmbeddedBroker:
    async with aio.AdminClient(embedded_broker.address) as admin:
        await admin.create_topic("orders", 1)
    return embedded_broker


@pytest.fixture(params=aio.__all__)
async def face(request: pytest.FixtureRequest, orders: EmbeddedBroker) -> AsyncIterator[Any]:
    made = make(request.param, orders.address)
    if hasattr(made, "subscribe"):
        await made.subscribe("orders")
    yield made
    await made.shutdown()


class Gate:
    """Holds a coroutine of a core up, once it has done its work, until it is let go or cancelled."""

    def __init__(self, core: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self._go = asyncio.Event()
        self._io = core.io
        real = getattr(core, name)

        async def held(*arguments: Any) -> Any:
            result = await real(*arguments)
            self.entered.set()
            await self._go.wait()
            return result

        monkeypatch.setattr(core, name, held)

    def let_go(self) -> None:
        self._io.call_soon(self._go.set)


@pytest.mark.feature("asyncio/cancelled-calls")
async def test_a_start_that_is_cancelled_leaves_nothing_and_can_be_repeated(face, monkeypatch):
    core = core_of(face)
    with monkeypatch.context() as patched:
        gate = Gate(core, "on_start", patched)
        starting = asyncio.ensure_future(face.start())
        await eventually(gate.entered.is_set)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert core.state is ClientState.CREATE_JUST
        assert not core.has_instance, "its connections are given back"
    await face.start()
    assert core.state is ClientState.RUNNING


@pytest.mark.feature("asyncio/cancelled-calls")
async def test_a_shutdown_goes_on_when_nobody_waits_for_it(face, monkeypatch):
    core = core_of(face)
    await face.start()
    gate = Gate(core, "on_shutdown", monkeypatch)
    ending = asyncio.ensure_future(face.shutdown())
    await eventually(gate.entered.is_set)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert core.has_instance, "it is at it"
    gate.let_go()
    await face.shutdown()  # waits for the one that is under way
    await eventually(lambda: not core.has_instance)
    assert core.state is ClientState.SHUTDOWN_ALREADY


@pytest.mark.feature("asyncio/cancelled-calls")
async def test_a_call_that_is_cancelled_leaves_a_client_that_works(orders):
    async with aio.Producer("g", orders.address) as producer:
        calls: list[Callable[[], Any]] = [
            lambda: producer.send(Message("orders", b"cancelled")),
            lambda: producer.send_batch([Message("orders", b"cancelled")]),
            lambda: producer.request(Message("orders", b"cancelled"), timeout=30.0),
        ]
        for call in calls:
            with orders.faults.hold("SEND_MESSAGE") as held:
                calling = asyncio.ensure_future(call())
                await eventually(lambda held=held: held.caught == 1)
                calling.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await calling
            assert (await producer.send(Message("orders", b"after"))).queue.topic == "orders"
        requests = producer._plain.core.requests
        assert "0" in repr(requests) or not getattr(requests, "_waiting", ()), "nobody waits for a reply"


async def test_a_question_that_is_cancelled_while_the_client_starts(orders, monkeypatch):
    """The first question starts an operator's client; a cancelled one leaves it as it was."""
    admin = aio.AdminClient(orders.address)
    core = core_of(admin)
    with monkeypatch.context() as patched:
        gate = Gate(core, "on_start", patched)
        asking = asyncio.ensure_future(admin.topics())
        await eventually(gate.entered.is_set)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await eventually(lambda: core.state is ClientState.CREATE_JUST)
    assert "orders" in {topic.name for topic in await admin.topics()}
    await admin.close()


# --- blocks and groups of tasks --------------------------------------------------------------------------------------


@pytest.mark.feature("asyncio/structured-shutdown")
async def test_a_group_of_tasks_that_fails_ends_its_clients_in_order(rocketmq_cluster, topic, unique_group):
    """What a listener had begun is finished and counts; the failure is what comes out."""
    address = rocketmq_cluster.name_server_address
    began, ended = asyncio.Event(), []

    async def listen(messages, context):
        began.set()
        await asyncio.sleep(0.2)
        ended.extend(message.body for message in messages)
        return ConsumeResult.SUCCESS

    async def fail() -> None:
        await began.wait()
        raise ValueError("the other task")

    async def forever() -> None:
        await asyncio.Event().wait()

    consumer = aio.PushConsumer(unique_group, address, listener=listen, start_from=StartFrom.FIRST)
    await consumer.subscribe(topic)
    producer = aio.Producer("aio", address)

    async def work() -> None:
        async with producer, consumer, asyncio.TaskGroup() as tasks:
            tasks.create_task(forever())
            tasks.create_task(fail())
            await producer.send(Message(topic, b"begun"))

    with pytest.raises(ExceptionGroup) as raised:
        await work()
    assert [type(error) for error in raised.value.exceptions] == [ValueError]
    assert ended == [b"begun"]
    assert (producer.state, consumer.state) == (ClientState.SHUTDOWN_ALREADY,) * 2
    async with aio.AdminClient(address) as admin:
        for _ in range(100):  # its last words were one way
            progress = await admin.consumer_progress(unique_group, topic=topic)
            members = await admin.consumers(unique_group)
            if progress.lag == 0 and not members.members:
                break
            await asyncio.sleep(0.1)
        assert (progress.lag, members.members) == (0, ())


# --- several loops ---------------------------------------------------------------------------------------------------


@pytest.mark.feature("asyncio/several-loops")
def test_a_client_is_used_from_loop_after_loop_and_from_two_at_once(embedded_broker):
    address = embedded_broker.address

    async def begin() -> aio.Producer:
        async with aio.AdminClient(address) as admin:
            await admin.create_topic("orders", 1)
        producer = aio.Producer("g", address)
        await producer.start()
        return producer

    producer = asyncio.run(begin())
    sent: list[Any] = []

    async def send() -> None:
        sent.extend(await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(20))))

    threads = [threading.Thread(target=lambda: asyncio.run(send())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    asyncio.run(send())
    assert len({receipt.message_id for receipt in sent}) == 60
    asyncio.run(producer.shutdown())
    assert producer.state is ClientState.SHUTDOWN_ALREADY


@pytest.mark.feature("asyncio/several-loops")
def test_a_consumer_whose_loop_was_closed_can_be_ended_from_another(embedded_broker, caplog):
    """Its listener cannot run any more: nothing is consumed, nothing is lost, and the end does not hang."""
    address = embedded_broker.address
    heard: list[bytes] = []

    async def listen(messages, context):
        heard.extend(message.body for message in messages)
        return ConsumeResult.SUCCESS

    consumer = aio.PushConsumer("g", address, listener=listen, start_from=StartFrom.FIRST)

    async def begin() -> None:
        async with aio.AdminClient(address) as admin, aio.Producer("p", address) as producer:
            await admin.create_topic("orders", 1)
            await consumer.subscribe("orders")
            await consumer.start()
            await producer.send(Message("orders", b"first"))
            await eventually(lambda: heard == [b"first"])

    async def go_on() -> Any:
        async with aio.Producer("p", address) as producer, aio.AdminClient(address) as admin:
            await producer.send(Message("orders", b"second"))
            await eventually(lambda: "refused" in caplog.text or "closed" in caplog.text)
            await consumer.shutdown()
            return await admin.consumer_progress("g", topic="orders")

    asyncio.run(begin())
    progress = asyncio.run(go_on())
    assert heard == [b"first"]
    assert progress.lag == 1, "what nobody could consume is still there"


# --- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.feature("asyncio/transactions")
async def test_execute_and_check_may_be_async():
    """`execute` is awaited where `send` is, `check` on the loop that started the producer."""
    loop = asyncio.get_running_loop()
    checked: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue()
    held = asyncio.Event()

    async def execute(message, arg):
        assert asyncio.get_running_loop() is loop
        assert message.properties["__transactionId__"]
        if arg == "raise":
            raise ValueError("no")
        if arg == "hang":
            held.set()
            await asyncio.Event().wait()
        return arg

    async def check(message):
        await checked.put((message.body, asyncio.get_running_loop() is loop))
        return COMMIT

    impatient = {"transaction_timeout": 0.2, "transaction_check_interval": 0.2}
    async with EmbeddedBroker(**impatient) as broker, aio.AdminClient(broker.address) as admin:
        await admin.create_topic("orders", 1)
        async with aio.TransactionProducer("g", broker.address, execute=execute, check=check) as producer:
            for arg in (COMMIT, ROLLBACK):
                receipt = await producer.send(Message("orders", arg.name.encode()), arg)
                assert receipt.transaction_state is arg
                assert receipt.transaction_id == receipt.message_id
            for arg in ("raise", "no state"):
                receipt = await producer.send(Message("orders", arg.encode()), arg)
                assert receipt.transaction_state is UNKNOWN
            cancelled = asyncio.ensure_future(producer.send(Message("orders", b"hang"), "hang"))
            await asyncio.wait_for(held.wait(), PATIENCE)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            asked = [await asyncio.wait_for(checked.get(), PATIENCE) for _ in range(3)]
            assert sorted(asked) == [(b"hang", True), (b"no state", True), (b"raise", True)]
            bodies: set[bytes] = set()
            async for messages in admin.read("orders", "earliest", step=0.1, idle=PATIENCE):
                bodies |= {message.body for message in messages}
                if len(bodies) == 4:
                    break
            assert bodies == {b"COMMIT", b"raise", b"no state", b"hang"}, "what was rolled back is not delivered"
    with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
        await producer.send(Message("orders", b"late"), COMMIT)


# --- the end of the process ------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys, threading
from rocketstream import ConsumeResult, Message, StartFrom, aio

address, way = sys.argv[1:]
began, may_end = threading.Event(), threading.Event()

def listen(messages, context):
    began.set()
    may_end.wait(1.0)
    return ConsumeResult.SUCCESS

async def main():
    consumer = aio.PushConsumer("g", address, listener=listen, start_from=StartFrom.FIRST)
    await consumer.subscribe("orders")
    async with aio.Producer("p", address) as producer:
        await producer.send(Message("orders", b"x"))
        if way == "interrupt":
            async with consumer:
                await asyncio.to_thread(began.wait, 30)
                print("began", flush=True)
                await asyncio.Event().wait()
        else:
            await consumer.start()
            await asyncio.to_thread(began.wait, 30)
            print("began", flush=True)
            ending = asyncio.ensure_future(consumer.shutdown())
            await asyncio.sleep(0)
            ending.cancel()

asyncio.run(main())
"""


@pytest.mark.feature("asyncio/structured-shutdown")
@pytest.mark.parametrize("way", ["interrupt", "cancelled shutdown"])
async def test_the_end_of_the_process_waits_for_what_is_under_way(orders, tmp_path, way):
    """Ctrl-C in `asyncio.run`; and a shutdown that nobody waits for any more: what was begun is finished and counts."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(program), orders.address, way),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=HOME,
    )
    assert process.stdout is not None
    assert (await asyncio.wait_for(process.stdout.readline(), PATIENCE)) == b"began\n"
    if way == "interrupt":
        process.send_signal(signal.SIGINT)
    _, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    interrupted = way == "interrupt"
    assert (process.returncode != 0) is interrupted, errors.decode()
    assert (b"KeyboardInterrupt" in errors) is interrupted
    async with aio.AdminClient(orders.address) as admin:
        assert (await admin.consumer_progress("g", topic="orders")).lag == 0
        assert (await admin.consumers("g")).members == ()
