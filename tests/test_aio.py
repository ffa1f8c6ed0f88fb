"""The clients for event loops: the same methods as the plain ones, and they work on the real brokers."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading

import pytest

import rocketstream
from rocketstream import Message, TransactionState, aio
from rocketstream.admin.errors import NotFoundError
from rocketstream.errors import ClientStateError, ConfigurationError, ReplyTimeoutError, UnsupportedByBrokerError

# What a plain producer has for its faces, and `send_async`: on a loop that is a `send` that is not awaited yet.
NOT_FOR_LOOPS = {"core", "ready", "ready_batch", "ready_half", "ready_request", "send_async", "submit"}


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.feature("asyncio/same-methods")
@pytest.mark.parametrize("name", aio.__all__)
def test_every_method_is_there_with_the_same_arguments(name):
    plain, face = getattr(rocketstream, name), getattr(aio, name)
    assert public_names(face) - NOT_FOR_LOOPS == public_names(plain) - NOT_FOR_LOOPS
    for method in public_names(face):
        ours, theirs = inspect.getattr_static(face, method), inspect.getattr_static(plain, method)
        if ours is theirs:  # what needs no waiting is written once
            continue
        if isinstance(theirs, property):
            assert isinstance(ours, property)
            continue
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters, method
        assert inspect.iscoroutinefunction(ours) or inspect.isasyncgenfunction(ours), method


@pytest.fixture
def address(rocketmq_cluster) -> str:
    return rocketmq_cluster.name_server_address


async def first(admin: aio.AdminClient, topic: str):
    """The first message of a topic, once it is there."""
    async for messages in admin.read(topic, "earliest", step=0.1):
        if messages:
            return messages[0]
    raise AssertionError("it ends only when told to")


@pytest.mark.feature("asyncio/producer")
async def test_a_request_is_replied_to(address, topic):
    async with (
        aio.Producer("aio-asking", address, send_timeout=10.0) as asking,
        aio.Producer("aio-answering", address, send_timeout=10.0) as answering,
        aio.AdminClient(address) as admin,
    ):
        reply = asyncio.ensure_future(asking.request(Message(topic, b"wer da?"), timeout=30.0))
        request = await first(admin, topic)
        await answering.reply(request, b"nur ich", tags="reply", properties={"n": "1"})
        received = await reply
        assert (received.body, received.tags, received.properties["n"]) == (b"nur ich", "reply", "1")
        with pytest.raises(ReplyTimeoutError, match="no reply came within 2 s"):  # which must be enough for the send
            await asking.request(Message(topic, b"nobody answers"), timeout=2.0)


async def test_what_was_not_asked_cannot_be_replied_to(address, topic):
    async with aio.Producer("aio", address, send_timeout=10.0) as producer, aio.AdminClient(address) as admin:
        await producer.send(Message(topic, b"just so"))
        with pytest.raises(ConfigurationError, match="so it was not sent with request"):
            await producer.reply(await first(admin, topic), b"?")


async def test_recalling(address, topic, rocketmq_cluster):
    """It reaches the broker: this one does not do it, for two reasons."""
    async with aio.Producer("aio", address, send_timeout=10.0) as producer:
        with pytest.raises(ConfigurationError, match="is not a recall handle"):
            await producer.recall(topic, "nonsense")
        if rocketmq_cluster.version.startswith("5."):
            receipt = await producer.send(Message(topic, b"timer", delay=3600))
            with pytest.raises(UnsupportedByBrokerError, match="recallMessageEnable=true"):
                await producer.recall(topic, receipt.recall_handle)
        else:
            with pytest.raises(UnsupportedByBrokerError, match="need RocketMQ 5"):
                await producer.send(Message(topic, b"timer", delay=3600))
    with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
        await producer.recall(topic, "nonsense")


USER: contextvars.ContextVar[str] = contextvars.ContextVar("USER")


@pytest.mark.feature("asyncio/transactions")
async def test_transactions(address, topic, unique_group):
    """`execute` may block: it runs on a thread, with the caller's context, while the loop goes on."""
    on_thread, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    seen: list[tuple[object, str, bool]] = []

    def execute(message, arg):
        seen.append((arg, USER.get(), threading.current_thread() is threading.main_thread()))
        loop.call_soon_threadsafe(on_thread.set)
        assert may_end.wait(30)
        return arg

    settings = {"execute": execute, "check": lambda message: TransactionState.UNKNOWN}
    async with (
        aio.TransactionProducer(unique_group, address, **{"send_timeout": 10.0, **settings}) as producer,
        aio.AdminClient(address) as admin,
    ):
        USER.set("somebody")
        committing = asyncio.ensure_future(
            producer.send(Message(topic, b"committed", keys="k"), TransactionState.COMMIT)
        )
        await on_thread.wait()
        assert await admin.peek(topic) == [], "the local part has not ended"
        may_end.set()
        receipt = await committing
        assert receipt.transaction_state is TransactionState.COMMIT
        rolled_back = await producer.send(Message(topic, b"rolled back"), TransactionState.ROLLBACK)
        assert rolled_back.transaction_state is TransactionState.ROLLBACK
        message = await first(admin, topic)
        assert (message.body, message.message_id) == (b"committed", receipt.message_id)
        assert "RUNNING" in repr(producer)
    assert seen == [(TransactionState.COMMIT, "somebody", False), (TransactionState.ROLLBACK, "somebody", False)]
    with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
        await producer.send(Message(topic, b"late"), TransactionState.COMMIT)


@pytest.mark.feature("asyncio/admin")
async def test_an_operator(address, unique_topic, unique_group):
    async with aio.AdminClient(address) as admin, aio.Producer("aio", address, send_timeout=10.0) as producer:
        route = await admin.create_topic(unique_topic, 2, permission="RW")
        assert await admin.route(unique_topic) == route
        assert unique_topic in {topic.name for topic in await admin.topics()}
        queue = (await producer.queues(unique_topic))[1]
        receipts = [await producer.send(Message(unique_topic, b"%d" % n, keys="k"), queue=queue) for n in range(3)]
        parts = [messages async for messages in admin.read(unique_topic, "earliest", idle=0.3, step=0.1)]
        assert [message.body for part in parts for message in part] == [b"0", b"1", b"2"]
        assert [message.body for message in await admin.peek(unique_topic, 2)] == [b"1", b"2"]
        ranges = [(one.queue_id, one.messages) for one in await admin.queue_ranges(unique_topic)]
        assert ranges == [(0, 0), (1, 3)]
        assert (await admin.message(receipts[0].offset_message_id)).body == b"0"
        (broker,) = (await admin.cluster()).brokers
        assert (await admin.broker_config(broker.address))["brokerName"] == broker.broker_name
        assert isinstance(await admin.groups(lag=False), list)
        for ask in (admin.consumers, admin.consumer_progress):
            with pytest.raises(NotFoundError, match=unique_group):
                await ask(unique_group)
        with pytest.raises(NotFoundError, match=unique_group):
            await admin.reset_offset(unique_group, unique_topic, "earliest")
        assert await admin.messages_by_key(unique_topic, "never") == []
        await admin.delete_topic(unique_topic)
        assert repr(admin).startswith("<aio <AdminClient RUNNING")
    with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
        await admin.topics()
