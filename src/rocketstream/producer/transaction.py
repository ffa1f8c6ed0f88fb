"""Transactions: a message that consumers see only if something local went well.

    half message ──▶ broker ──▶ execute(message, arg) on the caller's thread ──▶ END_TRANSACTION: commit or roll back
                        │
                        └── heard nothing, or UNKNOWN ──▶ check(message) on a check thread ──▶ END_TRANSACTION

The end of a transaction is sent one way, as in Java: if it is lost, the broker asks. It asks any producer of the group
that it knows by heartbeat, so `check` may be called in another process than the one that sent, at any time.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, TypeAlias

from rocketstream.cluster.client import ClientState
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.names import with_namespace, without_namespace
from rocketstream.cluster.settings import ClientSettings
from rocketstream.errors import ConfigurationError
from rocketstream.message import Message, MessageQueue, ReceivedMessage
from rocketstream.producer.core import ProducerCore, Selector
from rocketstream.producer.outgoing import Outgoing
from rocketstream.producer.producer import Producer, check_choice
from rocketstream.producer.receipt import SendReceipt, SendStatus, TransactionState
from rocketstream.producer.settings import ProducerSettings
from rocketstream.producer.timer import is_timer
from rocketstream.producer.validation import check_message, check_timeout
from rocketstream.property_names import PropertyName
from rocketstream.wire.codes import RequestCode, TransactionFlag
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.transaction import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocketstream.wire.message_id import decode_offset_id
from rocketstream.wire.record_decoder import decode_record
from rocketstream.wire.sysflag import TransactionType
from rocketstream.wire.trace import DEFAULT_REGION, EndTransactionTrace

log = logging.getLogger("rocketstream.producer")

Execute: TypeAlias = Callable[[Message, Any], TransactionState]
Check: TypeAlias = Callable[[ReceivedMessage], TransactionState]

MAX_CHECKS_WAITING = 2000
"""How many checks may wait for a thread (Java's checkRequestHoldMax); a broker asks again for what is dropped."""

_FLAGS = {
    TransactionState.COMMIT: TransactionFlag.COMMIT,
    TransactionState.ROLLBACK: TransactionFlag.ROLLBACK,
    TransactionState.UNKNOWN: TransactionFlag.NOT_TYPE,
}


class TransactionCore(ProducerCore):
    """A producer that ends transactions and is asked about them."""

    def __init__(
        self,
        settings: ClientSettings,
        producer: ProducerSettings,
        check: Check,
        check_threads: int,
        *,
        instance_name: str | None = None,
        **others: Any,
    ) -> None:
        super().__init__(settings, producer, instance_name=instance_name, **others)
        self._check = check
        self._check_threads = ThreadPoolExecutor(check_threads, thread_name_prefix="rocketstream-check")
        self._checking: dict[str, Future[None]] = {}
        self._no_more_checks = False

    async def on_start(self) -> None:
        """Be ready for questions before any broker knows us."""
        # Each producer of a client sets the same processor: it finds out by itself who is asked.
        self.instance.remoting.register_processor(
            RequestCode.CHECK_TRANSACTION_STATE, CheckProcessor(self.instance, asyncio.get_running_loop())
        )
        await super().on_start()

    async def on_shutdown(self, timeout: float | None) -> None:
        """Tell the brokers and end."""
        self._no_more_checks = True
        await super().on_shutdown(timeout)
        self._check_threads.shutdown(wait=False, cancel_futures=True)

    # --- ends -------------------------------------------------------------------------------------------------------

    async def end(
        self, half: SendReceipt, state: TransactionState, remark: str | None, message: Message | None = None
    ) -> None:
        """Tell the broker how the local part went. A failure is logged: the broker will ask."""
        self.meters.judged(state.name, "execute")
        queue = half.queue
        header = EndTransactionRequestHeader(
            topic=with_namespace(self.producer.namespace, queue.topic),
            producer_group=self.group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=decode_offset_id(half.offset_message_id).commit_log_offset,
            commit_or_rollback=int(_FLAGS[state]),
            msg_id=half.message_id,
            transaction_id=half.transaction_id,
            bname=self.instance.routes.broker_name_of(queue),
        )
        try:
            deadline = self.clock.monotonic() + self.producer.send_timeout
            address = await self.address_of(queue, deadline)
            self._note_end(address, header, state, queue.topic, message)
            await self._send_end(address, header, remark)
        except Exception as error:
            log.warning(
                "the local transaction of message %s is %s, but broker %s could not be told (it will ask): %s",
                half.message_id,
                state.name,
                queue.broker_name,
                error,
            )

    async def _send_end(self, address: str, header: EndTransactionRequestHeader, remark: str | None) -> None:
        command = request(RequestCode.END_TRANSACTION, header)
        command.remark = remark
        await self.instance.remoting.invoke_one_way(address, command, self.producer.send_timeout)

    def _note_end(
        self,
        address: str,
        header: EndTransactionRequestHeader,
        state: TransactionState,
        topic: str,
        message: Message | ReceivedMessage | None,
    ) -> None:
        """A line in the trace; on the I/O thread."""
        region = None if message is None else message.properties.get(PropertyName.REGION)
        self.note(
            lambda now_ms: EndTransactionTrace(
                timestamp=now_ms,
                region=region or DEFAULT_REGION,
                group=self.producer.group,
                topic=topic,
                message_id=header.msg_id or "",
                tags=None if message is None else message.tags,
                keys=None if message is None else message.keys,
                store_host=address,
                transaction_id=header.transaction_id or header.msg_id,
                state=state.value,
                from_check=bool(header.from_transaction_check),
            )
        )

    # --- checks -----------------------------------------------------------------------------------------------------

    def submit_check(self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        """Have a transaction checked on a check thread; called on the I/O thread."""
        key = message.message_id
        if self._no_more_checks or key in self._checking:
            return  # ending, or the answer to an earlier question is on its way
        if len(self._checking) >= MAX_CHECKS_WAITING:
            log.warning(
                "%d checks of group %r already wait for a thread: that of message %s is left to the broker's next"
                " question; is check() slow, or check_threads too small?",
                len(self._checking),
                self.producer.group,
                key,
            )
            return
        message.topic = without_namespace(self.producer.namespace, message.topic)
        self._checking[key] = self._check_threads.submit(self._run_check, key, address, header, message)

    def _run_check(
        self, key: str, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage
    ) -> None:
        try:
            state, remark = judged("check", lambda: self._check(message), key)
        finally:
            self.io.call_soon(self._checking.pop, key, None)
        self.io.call_soon(self.meters.judged, state.name, "check")
        answer = EndTransactionRequestHeader(
            topic=header.topic,
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=int(_FLAGS[state]),
            from_transaction_check=True,
            msg_id=key,
            transaction_id=header.transaction_id,
            bname=header.bname,
        )
        try:
            self.io.call_soon(self._note_end, address, answer, state, message.topic, message)
            self.io.run(self._send_end(address, answer, remark), self.what)
        except Exception as error:
            log.warning(
                "message %s is %s by check(), but %s could not be told (it will ask again): %s",
                key,
                state.name,
                address,
                error,
            )

    def stop_checks(self, timeout: float) -> None:
        """Take no more questions and wait for the checks that run; from a user's thread."""
        self._no_more_checks = True
        under_way = list(self._checking.values())
        for check in under_way:
            check.cancel()
        wait(under_way, timeout)


class CheckProcessor:
    """Takes the questions that brokers ask a client instance; runs on a processor's thread."""

    __slots__ = ("_instance", "_loop")

    def __init__(self, instance: ClientInstance, loop: asyncio.AbstractEventLoop) -> None:
        self._instance = instance
        self._loop = loop

    def __call__(self, address: str, command: Command) -> None:
        """Decode the half message and hand the question to the producer of its group."""
        header = CheckTransactionStateRequestHeader.from_fields(command.fields)
        message = decode_record(command.body, broker_name=header.bname or "")
        self._loop.call_soon_threadsafe(self._dispatch, address, header, message)

    def _dispatch(self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        group = message.properties.get(PropertyName.PRODUCER_GROUP)
        for member in self._instance.producers:
            if isinstance(member, TransactionCore) and member.group == group:
                member.submit_check(address, header, message)
                return
        log.warning(
            "%s asked how the transaction of message %s went, but no TransactionProducer of group %r is here",
            address,
            message.message_id,
            group,
        )


def judged(what: str, ask: Callable[[], object], message_id: str) -> tuple[TransactionState, str | None]:
    """What a user's function says of a transaction; whatever is no verdict is UNKNOWN, with a remark why."""
    try:
        state = ask()
    except Exception as error:
        return raised(what, error, message_id)
    return verdict(what, state, message_id)


def raised(what: str, error: BaseException, message_id: str) -> tuple[TransactionState, str]:
    """What it means that a user's function raised."""
    log.error("%s of the transaction of message %s raised: its state is UNKNOWN", what, message_id, exc_info=error)
    return TransactionState.UNKNOWN, f"{what} raised {type(error).__name__}: {error}"


def verdict(what: str, state: object, message_id: str) -> tuple[TransactionState, str | None]:
    """What a user's function returned, if it is a verdict."""
    if isinstance(state, TransactionState):
        return state, None
    log.error(
        "%s of the transaction of message %s returned %r, which is no TransactionState: its state is UNKNOWN",
        what,
        message_id,
        state,
    )
    return TransactionState.UNKNOWN, f"{what} returned {type(state).__name__}"


def stored_well(half: SendReceipt) -> bool:
    """Whether the local part may be done; else the half message is rolled back, as in Java."""
    if half.status is not SendStatus.OK:
        log.warning("half message %s is %s: it is rolled back", half.message_id, half.status.value)
        return False
    return True


def shown_to_execute(message: Message, half: SendReceipt) -> Message:
    """The message with its transaction's id; a copy, so that the id does not go out if the caller sends it again."""
    shown = copy.copy(message)
    shown.properties = {**message.properties, PropertyName.TRANSACTION_ID: half.message_id}
    return shown


def concluded(half: SendReceipt, state: TransactionState) -> SendReceipt:
    """What the caller gets; 4.9 leaves the transaction's id to the client: it is the message's."""
    return replace(half, transaction_state=state, transaction_id=half.transaction_id or half.message_id)


class TransactionProducer(Producer):
    """Sends messages that are delivered only if something local went well.

    `execute(message, arg)` does the local part, on the thread that called `send`, and says what became of it.
    `check(message)` says it again when the broker asks: because `execute` said UNKNOWN, or raised, or because its
    answer was lost. `message.properties["__transactionId__"]` in `execute` is `message.message_id` in `check`. Checks
    run on `check_threads` threads of their own. The other methods of `Producer` send as it does, without a transaction.
    """

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str] | None = None,
        *,
        execute: Execute,
        check: Check,
        check_threads: int = 1,
        **settings: Any,
    ) -> None:
        for name, function in (("execute", execute), ("check", check)):
            if not callable(function):
                raise ConfigurationError(f"{name}={function!r} cannot be called")
            if inspect.iscoroutinefunction(function):
                raise ConfigurationError(
                    f"{name}={function!r} is a coroutine function: it runs on a thread, not a loop"
                )
        if isinstance(check_threads, bool) or not isinstance(check_threads, int) or not 1 <= check_threads <= 1000:
            raise ConfigurationError(f"check_threads={check_threads!r} must be a number from 1 to 1000")
        self._execute = execute
        self._check = check
        self._check_thread_count = check_threads
        super().__init__(group, name_servers, **settings)

    def _make_core(
        self, client: ClientSettings, producer: ProducerSettings, instance_name: str | None
    ) -> TransactionCore:
        core = TransactionCore(client, producer, self._check, self._check_thread_count, instance_name=instance_name)
        self._transactions = core
        return core

    @property
    def core(self) -> TransactionCore:
        """What lives on the I/O thread (for the faces)."""
        return self._transactions

    def send(
        self,
        message: Message,
        arg: Any = None,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send a message in a transaction; the receipt's `transaction_state` says what the local part came to.

        If the half message cannot be stored this raises, and `execute` is not called. A half message that was stored
        less safely than the broker was told to (its status is not OK) is rolled back, as in Java. `arg` goes to
        `execute`, and to the selector if there is one. The time-out is that of the half message.
        """
        core = self._transactions
        out = self.ready_half(message, queue, sharding_key, selector, timeout)
        half = self._run(
            core.send(out, timeout=timeout, queue=queue, sharding_key=sharding_key, selector=selector, arg=arg)
        )
        state, remark = self._local_part(message, arg, half)
        self._run(core.end(half, state, remark, message))
        return concluded(half, state)

    def ready_half(
        self,
        message: Message,
        queue: MessageQueue | None,
        sharding_key: str | None,
        selector: Selector | None,
        timeout: float | None,
    ) -> Outgoing:
        """Check a message and make its half ready, on the caller's thread (for the faces)."""
        core = self._transactions
        core.check_running()
        check_timeout(timeout)
        check_message(message, self._settings)
        check_choice(queue, sharding_key, selector)
        if message.delay_level or is_timer(message):
            raise ConfigurationError(
                f"the message for topic {message.topic!r} is delayed: a transactional message is delivered when it is"
                " committed, so it cannot have delay_level, delay or deliver_at"
            )
        out = core.preparation.single(
            message,
            {PropertyName.TRANSACTION_PREPARED: "true", PropertyName.PRODUCER_GROUP: core.group},
            transaction=TransactionType.PREPARED,
        )
        out.check = core.introductions.make_sure
        return out

    def _local_part(self, message: Message, arg: Any, half: SendReceipt) -> tuple[TransactionState, str | None]:
        if not stored_well(half):
            return TransactionState.ROLLBACK, None
        shown = shown_to_execute(message, half)
        return judged("execute", lambda: self._execute(shown, arg), half.message_id)

    def shutdown(self, timeout: float = 30.0) -> None:
        """Wait for the checks that run and for what `send_async` has under way, at most `timeout` seconds, and end."""
        check_timeout(timeout)
        self._transactions.check_process()
        begun = time.monotonic()
        if self.state is ClientState.RUNNING:
            self._transactions.stop_checks(timeout)
        super().shutdown(max(timeout - (time.monotonic() - begun), 0.001))
