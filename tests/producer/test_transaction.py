"""Transactions with scripted brokers: what no healthy broker shows, and what happens on which thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rocketstream import Message, ReceivedMessage, SendStatus, TransactionProducer, TransactionState
from rocketstream.errors import BrokerError, ConfigurationError
from rocketstream.producer import transaction
from rocketstream.testing.scripted_server import Peer
from rocketstream.wire.codes import RequestCode, ResponseCode, RpcFlag
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.transaction import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocketstream.wire.properties import decode_properties, encode_properties
from rocketstream.wire.record import encode_record
from tests.producer.peers import StoringBroker
from tests.scripted import ScriptedNameServer, eventually

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


class TransactionBroker(StoringBroker):
    """Keeps the ends of transactions and asks about them."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[Command] = []
        self.on(RequestCode.END_TRANSACTION, self.ends.append)

    def end(self, index: int = -1) -> EndTransactionRequestHeader:
        return EndTransactionRequestHeader.from_fields(self.ends[index].fields)

    def ask(self, message_id: str = "1", group: str = "g", body: bytes | None = None) -> None:
        """Ask about a half message over the first connection."""
        header = CheckTransactionStateRequestHeader(
            topic="t", tran_state_table_offset=3, commit_log_offset=77, msg_id=message_id, bname="a"
        )
        properties = encode_properties({"PGROUP": group, "UNIQ_KEY": message_id})
        if body is None:
            body = encode_record(topic="t", body=b"half", properties=properties)
        command = request(RequestCode.CHECK_TRANSACTION_STATE, header, body)
        command.flag |= RpcFlag.ONE_WAY
        self.first_peer().send(command)

    def first_peer(self) -> Peer:
        return self.peers[0]


@pytest.fixture
async def broker(name_server: ScriptedNameServer) -> AsyncIterator[TransactionBroker]:
    async with TransactionBroker() as server:
        name_server.set_route("t", {"a": {0: server.address}})
        yield server


@pytest.fixture
async def producer(name_server: ScriptedNameServer, broker: TransactionBroker) -> AsyncIterator[Callable[..., Any]]:
    """Start producers on the I/O thread; they are shut down at the end."""
    producers: list[TransactionProducer] = []

    async def producer(
        execute: Any = lambda message, arg: COMMIT,
        check: Any = lambda message: COMMIT,
        group: str = "g",
        **settings: Any,
    ) -> TransactionProducer:
        made = TransactionProducer(group, name_server.address, execute=execute, check=check, **settings)
        await asyncio.to_thread(made.start)
        producers.append(made)
        return made

    yield producer
    for one in producers:
        await asyncio.to_thread(one.shutdown, 5.0)


async def send(producer: TransactionProducer, *args: Any, **others: Any) -> Any:
    return await asyncio.to_thread(producer.send, Message("t", b"x"), *args, **others)


async def test_a_half_message_its_end_and_a_heartbeat_before_both(producer, broker):
    sender = await producer()
    receipt = await send(sender)
    await eventually(lambda: len(broker.ends) == 1)
    codes = [command.code for command in broker.received]
    assert codes == [RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION]
    (half,) = broker.sends
    assert half.fields["f"] == "4"  # prepared
    properties = decode_properties(half.fields["i"])
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "g")
    (end,) = broker.ends
    assert end.is_one_way
    assert end.remark is None
    assert broker.end() == EndTransactionRequestHeader(
        topic="t",
        producer_group="g",
        tran_state_table_offset=receipt.queue_offset,
        commit_log_offset=1,  # of the offset id
        commit_or_rollback=8,
        from_transaction_check=False,
        msg_id=receipt.message_id,
        transaction_id="TX",
        bname="a",
    )
    assert (receipt.transaction_state, receipt.transaction_id) == (COMMIT, "TX")
    # The broker knows us now; the next one costs no heartbeat.
    await send(sender)
    assert broker.count(RequestCode.HEART_BEAT) == 1


async def test_a_lost_connection_is_introduced_again(producer, broker):
    sender = await producer()
    await send(sender)
    broker.first_peer().cut()
    await eventually(lambda: not broker.peers)
    await send(sender)
    codes = [command.code for command in broker.received]
    assert codes[3:5] == [RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2]


@pytest.mark.parametrize("code", ["FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"])
async def test_what_is_stored_less_safely_is_rolled_back_without_executing(producer, broker, code):
    executed: list[Message] = []
    sender = await producer(execute=lambda message, arg: executed.append(message))
    broker.always = ResponseCode[code]
    receipt = await send(sender)
    assert (receipt.status, receipt.transaction_state) == (SendStatus[code], ROLLBACK)
    await eventually(lambda: len(broker.ends) == 1)
    assert broker.end().commit_or_rollback == 12
    assert executed == []


async def test_a_half_message_that_is_refused_is_an_error_and_nothing_is_executed(producer, broker):
    executed: list[Message] = []
    sender = await producer(execute=lambda message, arg: executed.append(message))
    broker.always = (ResponseCode.MESSAGE_ILLEGAL, "no such luck")
    with pytest.raises(BrokerError, match="no such luck"):
        await send(sender)
    assert (executed, broker.ends) == ([], [])


@pytest.mark.parametrize("verdict", [None, "COMMIT", True, 8])
async def test_a_verdict_that_is_none_is_unknown(producer, broker, caplog, verdict):
    sender = await producer(execute=lambda message, arg: verdict)
    receipt = await send(sender)
    assert receipt.transaction_state is UNKNOWN
    await eventually(lambda: len(broker.ends) == 1)
    assert broker.end().commit_or_rollback == 0
    assert broker.ends[0].remark == f"execute returned {type(verdict).__name__}"
    assert f"returned {verdict!r}, which is no TransactionState" in caplog.text


async def test_an_execute_that_raises_is_logged_whole_and_told_to_the_broker(producer, broker, caplog):
    def execute(message: Message, arg: Any) -> TransactionState:
        raise ValueError("no money")

    sender = await producer(execute=execute)
    assert (await send(sender)).transaction_state is UNKNOWN
    await eventually(lambda: len(broker.ends) == 1)
    assert broker.ends[0].remark == "execute raised ValueError: no money"
    (logged,) = (record for record in caplog.records if record.exc_info)
    assert isinstance(logged.exc_info[1], ValueError)


async def test_execute_runs_on_the_callers_thread_and_a_blocking_call_in_it_works(producer, broker):
    threads: list[int] = []

    def execute(message: Message, arg: Any) -> TransactionState:
        threads.append(threading.get_ident())
        assert sender.queues("t")
        return COMMIT

    sender = await producer(execute=execute)

    def call() -> int:
        sender.send(Message("t", b"x"))
        return threading.get_ident()

    caller = await asyncio.to_thread(call)
    assert threads == [caller]


async def test_execute_sees_the_transactions_id_and_the_callers_message_stays_as_it_is(producer, broker):
    seen: list[str] = []

    def execute(message: Message, arg: Any) -> TransactionState:
        seen.append(message.properties["__transactionId__"])
        return COMMIT

    sender = await producer(execute=execute)
    message = Message("t", b"x", properties={"mine": "1"})
    receipt = await asyncio.to_thread(sender.send, message)
    assert seen == [receipt.message_id]
    assert message.properties == {"mine": "1"}


async def test_an_end_that_cannot_be_sent_is_logged_and_the_receipt_stands(
    name_server, producer, broker, caplog, monkeypatch
):
    sender = await producer()

    async def lost(*_: Any) -> None:
        raise ConnectionError("no line")

    monkeypatch.setattr(sender.core, "_send_end", lost)
    receipt = await send(sender)
    assert receipt.transaction_state is COMMIT
    assert f"of message {receipt.message_id} is COMMIT, but broker a could not be told (it will ask): no line" in (
        caplog.text
    )


@pytest.mark.parametrize("delay", [{"delay_level": 3}, {"delay": 5}, {"deliver_at": 4_000_000_000_000}])
async def test_a_delayed_message_is_refused(producer, broker, delay):
    sender = await producer()
    with pytest.raises(ConfigurationError, match=r"the message for topic 't' is delayed: .* cannot have delay_level"):
        await asyncio.to_thread(sender.send, Message("t", b"x", **delay))
    assert broker.sends == []


async def _coroutine(*_: Any) -> TransactionState:
    return COMMIT


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"execute": None}, "execute=None cannot be called"),
        ({"check": "x"}, "check='x' cannot be called"),
        ({"execute": _coroutine}, "is a coroutine function: it runs on a thread"),
        ({"check": _coroutine}, "is a coroutine function: it runs on a thread"),
        ({"check_threads": 0}, "check_threads=0 must be a number from 1 to 1000"),
        ({"check_threads": True}, "check_threads=True must be a number from 1 to 1000"),
        ({"nonsense": 1}, "unknown settings nonsense"),
    ],
)
def test_wrong_settings(settings, text):
    given = {"execute": print, "check": print, **settings}
    with pytest.raises(ConfigurationError, match=text):
        TransactionProducer("g", "127.0.0.1:1", **given)


# --- questions ------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_to_whoever_asked(producer, broker):
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        assert threading.current_thread().name.startswith("rocketstream-check")
        return ROLLBACK

    sender = await producer(check=check)
    await send(sender)
    broker.ask("AB12")
    await eventually(lambda: len(broker.ends) == 2)
    assert [(message.topic, message.message_id, message.body) for message in asked] == [("t", "AB12", b"half")]
    assert broker.end() == EndTransactionRequestHeader(
        topic="t",
        producer_group="g",
        tran_state_table_offset=3,
        commit_log_offset=77,
        commit_or_rollback=12,
        from_transaction_check=True,
        msg_id="AB12",
        bname="a",
    )


@pytest.mark.parametrize(
    ("check", "remark"),
    [(lambda message: 1 / 0, "check raised ZeroDivisionError: division by zero"), (id, "check returned int")],
)
async def test_a_check_without_a_verdict_is_unknown(producer, broker, check, remark):
    sender = await producer(check=check)
    await send(sender)
    broker.ask()
    await eventually(lambda: len(broker.ends) == 2)
    assert (broker.end().commit_or_rollback, broker.end().from_transaction_check) == (0, True)
    assert broker.ends[-1].remark == remark


async def test_questions_that_are_nobodys_or_damaged_are_logged(producer, broker, caplog):
    sender = await producer()
    await send(sender)
    broker.ask(group="others")
    broker.ask(body=b"\0" * 100)
    await eventually(lambda: "no TransactionProducer of group 'others' is here" in caplog.text)
    await eventually(lambda: "the processor of CHECK_TRANSACTION_STATE" in caplog.text)
    broker.ask()
    await eventually(lambda: len(broker.ends) == 2)


async def test_a_slow_check_holds_up_nothing_else_and_is_not_asked_twice(producer, broker):
    asked: list[str] = []
    go_on = threading.Event()

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.message_id)
        assert go_on.wait(60)
        return COMMIT

    slow = await producer(check=check, instance_name="shared")
    quick = await producer(group="quick", instance_name="shared")
    await send(slow)
    try:
        for _ in range(20):
            broker.ask("1")
        broker.ask("2")
        broker.ask("3", group="quick")
        await eventually(lambda: len(broker.ends) == 2)
        assert (broker.end().msg_id, broker.end().producer_group) == ("3", "quick")
        await send(quick)
        assert asked == ["1"]
    finally:
        go_on.set()
    await eventually(lambda: len(broker.ends) == 5)
    assert asked == ["1", "2"]
    broker.ask("1")  # later on it may be asked again
    await eventually(lambda: asked == ["1", "2", "1"])


async def test_more_questions_than_may_wait_are_left_to_the_brokers_next_try(producer, broker, monkeypatch, caplog):
    monkeypatch.setattr(transaction, "MAX_CHECKS_WAITING", 2)
    go_on = threading.Event()
    sender = await producer(check=lambda message: COMMIT if go_on.wait(60) else None)
    await send(sender)
    try:
        for message_id in "123":
            broker.ask(message_id)
        await eventually(lambda: "that of message 3 is left to the broker's next question" in caplog.text)
    finally:
        go_on.set()
    await eventually(lambda: [broker.end(index).msg_id for index in range(1, len(broker.ends))] == ["1", "2"])


async def test_a_running_check_is_answered_before_the_producer_ends(producer, broker):
    asked, go_on = threading.Event(), threading.Event()

    def check(message: ReceivedMessage) -> TransactionState:
        asked.set()
        assert go_on.wait(60)
        return COMMIT

    sender = await producer(check=check)
    await send(sender)
    broker.ask("1")
    await asyncio.to_thread(asked.wait, 60)
    broker.ask("2")  # waits for the thread, and will not get it any more
    await eventually(lambda: len(sender.core._checking) == 2)
    ending = asyncio.create_task(asyncio.to_thread(sender.shutdown, 60.0))
    await eventually(lambda: sender.core._no_more_checks)
    assert not ending.done()
    go_on.set()
    await ending
    await eventually(lambda: len(broker.ends) == 2)
    assert broker.end().msg_id == "1"
