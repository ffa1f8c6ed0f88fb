"""What operators ask a consumer through a broker, and what it answers, as Java's client does."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import pytest

from rocketstream import Credentials
from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.direct import MAX_AT_A_TIME
from rocketstream.consumer.hooks import ConsumeHook, ConsumeHookContext
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from rocketstream.consumer.running_info import client_properties, queue_info, stack_dump
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.bodies.offsets import GetConsumerStatusBody
from rocketstream.wire.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketstream.wire.codes import CMResult, RequestCode, ResponseCode
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.group import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from tests.consumer.peers import GROUP, RETRY, ConsumerBroker, Heard, HeldUp
from tests.consumer.pull_answers import record
from tests.scripted import eventually

_numbers = itertools.count(70_000)


async def ask(broker: ConsumerBroker, command: Command) -> Command:
    """The client's answer to a question of the broker's."""
    command.opaque = next(_numbers)
    broker.tell(command)
    return await answer_to(broker, command)


async def answer_to(broker: ConsumerBroker, command: Command) -> Command:
    answers: list[Command] = []

    def answered() -> bool:
        answers[:] = [one for one in broker.received if one.is_response and one.opaque == command.opaque]
        return bool(answers)

    await eventually(answered)
    return answers[0]


def running_info(group: str = GROUP, *, jstack: bool = False) -> Command:
    header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id="it", jstack_enable=jstack)
    return request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)


def directly(stored: bytes = b"", group: str = GROUP) -> Command:
    header = ConsumeMessageDirectlyRequestHeader(consumer_group=group, client_id="it", msg_id="x", broker_name="a")
    return request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, stored or record(7, body=b"directly"))


async def info_of(broker: ConsumerBroker, **asked: Any) -> ConsumerRunningInfo:
    answer = await ask(broker, running_info(**asked))
    assert answer.code == ResponseCode.SUCCESS
    return ConsumerRunningInfo.decode(answer.body)


async def result_of(broker: ConsumerBroker, stored: bytes = b"") -> ConsumeMessageDirectlyResult:
    answer = await ask(broker, directly(stored))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return ConsumeMessageDirectlyResult.decode(answer.body)


# --- how it goes ------------------------------------------------------------------------------------------------------


async def test_running_info(a, started, clock, name_server):
    heard = HeldUp()
    core = await started(heard, client={"credentials": Credentials("the-key", "the-secret")})
    await a.until_held()
    a.store("one", "two", "three")
    await heard.until(1)
    await eventually(lambda: core.process_queues()[0].count == 3 or core.process_queues()[1].count == 3)
    await clock.advance(2.0)
    info = await info_of(a)
    properties = info.properties
    assert properties["PROP_NAMESERVER_ADDR"] == f"{name_server.address};"
    assert properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert properties["PROP_CLIENT_VERSION"] == "V5_5_0"
    assert properties["PROP_CONSUMEORDERLY"] == "false"
    assert properties["PROP_THREADPOOL_CORE_SIZE"] == "20"
    assert properties["PROP_CONSUMER_START_TIMESTAMP"] == str(clock.wall_ms() - 2000)
    assert (properties["consumerGroup"], properties["messageModel"]) == (GROUP, "CLUSTERING")
    assert (properties["consumeTimeout"], properties["suspendCurrentQueueTimeMillis"]) == ("15", "1000")
    assert properties["pullThresholdForTopic"] == "-1"
    assert {sub.topic: sub.sub_string for sub in info.subscription_set} == {"t": "*", RETRY: "*"}
    queue = info.mq_table[a.queue()]
    assert (queue.cached_msg_min_offset, queue.cached_msg_max_offset, queue.cached_msg_count) == (0, 2, 3)
    assert queue.commit_offset == -1
    assert not queue.dropped
    assert clock.wall_ms() - 2000 <= queue.last_pull_timestamp <= clock.wall_ms()
    assert set(info.status_table) == {"t", RETRY}
    assert info.jstack is None
    assert "secret" not in str(info)
    assert "the-key" not in str(info)
    heard.let_go()
    await heard.until(3)
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 3)
    done = (await info_of(a)).mq_table[a.queue()]
    assert (done.commit_offset, done.cached_msg_count, done.cached_msg_min_offset) == (3, 0, 0)


async def test_the_speed_of_a_topic(a, started, clock):
    heard = Heard()
    core = await started(heard)
    await a.until_held()
    a.store(*"abcdef")
    await heard.until(6)
    await eventually(lambda: core.stats.snapshot()["t"]["ok_messages"] == 6)
    core.stats.sample(clock.monotonic())
    status = (await info_of(a)).status_table["t"]
    assert status.pull_tps == pytest.approx(0.6)
    assert status.consume_ok_tps == pytest.approx(0.6)
    assert (status.consume_failed_tps, status.consume_failed_msgs) == (0.0, 0)


async def test_running_info_of_an_ordered_queue(a, started):
    held = HeldUp(OrderlyResult.SUCCESS)
    await started(held, orderly=True)
    await a.until_held()
    a.store("one", "two", "three")
    await held.until(1)
    info = await info_of(a)
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    queue = info.mq_table[a.queue()]
    assert queue.locked
    assert (queue.transaction_msg_min_offset, queue.transaction_msg_max_offset, queue.transaction_msg_count) == (
        0,
        0,
        1,
    )
    assert (queue.cached_msg_min_offset, queue.cached_msg_max_offset, queue.cached_msg_count) == (1, 2, 2)
    held.let_go()


async def test_a_stack_dump_shows_where_every_thread_is(a, started):
    held = HeldUp()
    await started(held)
    await a.until_held()
    a.store("one")
    await held.until(1)
    stacks = (await info_of(a, jstack=True)).jstack
    assert stacks is not None
    consuming = [line for line in stacks.splitlines() if line.startswith(f"rocketstream-consume-{GROUP}-1 ")]
    assert "TID: " in consuming[0]
    assert any("HeldUp.__call__(peers.py:" in line for line in consuming), "the listener is what one looks for"
    held.let_go()


def test_a_stack_dump_tells_no_values():
    secret = "".join(["s3", "cr", "et"])
    assert secret not in stack_dump()
    assert "MainThread" in stack_dump()


@pytest.mark.parametrize(
    ("command", "code"), [(running_info("other"), 1), (directly(group="other"), 1)], ids=["info", "directly"]
)
async def test_a_group_that_is_not_here(a, started, command, code):
    await started()
    await a.until_held()
    answer = await ask(a, command)
    assert (answer.code, answer.remark) == (code, "The Consumer Group <other> not exist in this consumer")


async def test_nobody_answers_for_a_consumer_that_has_ended(a, started, name_server, clock):
    core = await started()
    await a.until_held()
    questions = core._services.questions
    assert repr(questions) == f"<OperatorQuestions to {GROUP}>"
    await core.shutdown(1.0)
    assert repr(questions) == "<OperatorQuestions to nobody>"


async def test_offsets_in_memory(a, started):
    heard = Heard()
    core = await started(heard)
    await a.until_held()
    a.store("one", "two")
    await heard.until(2)
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 2)
    for topic, group, expected in (("t", GROUP, {a.queue(): 2}), ("u", GROUP, {}), ("t", "other", {})):
        header = GetConsumerStatusRequestHeader(topic=topic, group=group)
        answer = await ask(a, request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header))
        assert answer.code == ResponseCode.SUCCESS
        assert GetConsumerStatusBody.decode(answer.body).message_queue_table == expected


def test_times_of_a_queue_are_times_of_day(clock):
    pq = ProcessQueue(MessageQueue("t", "a", 0), now=clock.monotonic() - 3.0)
    pq.last_pull_at = clock.monotonic() - 0.5
    info = queue_info(pq, 9, clock)
    now = clock.wall_ms()
    assert (info.last_pull_timestamp, info.last_consume_timestamp) == (now - 500, now - 3000)
    assert (info.commit_offset, info.locked, info.last_lock_timestamp) == (9, False, now - 3000)


def test_properties_of_a_client():
    settings = ClientSettings(name_servers=("a:1", "b:2"), unit_name="u", credentials=Credentials("k", "s"))
    told = client_properties(settings, "10.0.0.1@7#abc@u")
    assert (told["clientIP"], told["instanceName"], told["unitName"]) == ("10.0.0.1", "7#abc", "u")
    assert told["namesrvAddr"] == "a:1;b:2"
    assert not {"k", "s"} & set(told.values())


# --- one message, now -------------------------------------------------------------------------------------------------


def raising() -> ValueError:
    return ValueError("no such order")


@pytest.mark.parametrize(
    ("orderly", "answer", "result"),
    [
        (False, ConsumeResult.SUCCESS, CMResult.CR_SUCCESS),
        (False, ConsumeResult.RECONSUME_LATER, CMResult.CR_LATER),
        (False, None, CMResult.CR_RETURN_NULL),
        (True, OrderlyResult.SUCCESS, CMResult.CR_SUCCESS),
        (True, OrderlyResult.COMMIT, CMResult.CR_COMMIT),
        (True, OrderlyResult.ROLLBACK, CMResult.CR_ROLLBACK),
        (True, OrderlyResult.SUSPEND, CMResult.CR_LATER),
        (True, None, CMResult.CR_RETURN_NULL),
    ],
)
async def test_what_the_listener_says_of_one_message(a, started, orderly, answer, result):
    heard = Heard(answer)
    core = await started(heard, orderly=orderly)
    await a.until_held()
    told = await result_of(a)
    assert (told.consume_result, told.order, told.auto_commit, told.remark) == (result, orderly, True, None)
    (message,) = heard.messages
    assert (message.body, message.topic, message.broker_name, message.queue_offset) == (b"directly", "t", "a", 7)
    assert heard.contexts[0].queue == MessageQueue("t", "a", 0)
    # Nothing comes of it.
    assert (a.sent_back, a.updates, core.offsets.read_memory(a.queue())) == ([], [], -1)
    assert core.stats.snapshot().get("t", {}).get("ok_messages", 0) == 0


async def test_a_listener_that_raises_or_talks_nonsense(a, started):
    heard = Heard(raising())
    await started(heard)
    await a.until_held()
    told = await result_of(a)
    assert told.consume_result is CMResult.CR_THROW_EXCEPTION
    assert told.remark is not None
    assert told.remark.startswith("ValueError: no such order, tests.consumer.peers.Heard.__call__(peers.py:")
    heard.result = "fine"
    told = await result_of(a)
    assert told.consume_result is CMResult.CR_LATER
    assert told.remark is not None
    assert told.remark.startswith("returned 'fine': a listener returns one of")


async def test_the_time_it_took_and_who_commits(a, started, clock):
    class Slow(HeldUp):
        def __call__(self, messages: Any, context: Any) -> object:
            context.auto_commit = False
            return super().__call__(messages, context)

    slow = Slow(OrderlyResult.SUCCESS)
    await started(slow, orderly=True)
    await a.until_held()
    asked = asyncio.ensure_future(result_of(a))
    await slow.until(1)
    await clock.advance(1.25)
    slow.let_go()
    told = await asked
    assert (told.spent_time_mills, told.auto_commit) == (1250, False)


async def test_a_retried_message_of_a_namespace_comes_under_its_own_name(a, started, name_server):
    name_server.set_route("NS%t", {"a": {0: a.address}}, queues=1)
    heard = Heard()
    core = await started(heard, namespace="NS")
    await a.until_held(topic="NS%t")
    retried = record(3, topic=f"%RETRY%NS%{GROUP}", properties={"RETRY_TOPIC": "NS%t"}, reconsume_times=2)
    answer = await ask(a, directly(retried, group=core.group))
    assert answer.code == ResponseCode.SUCCESS
    assert [(one.topic, one.reconsume_times) for one in heard.messages] == [("t", 2)]


async def test_hooks_are_not_told(a, started):
    class Noted(ConsumeHook):
        calls = 0

        def before(self, context: ConsumeHookContext) -> None:
            Noted.calls += 1

    await started(Heard(), consume_hooks=[Noted()])
    await a.until_held()
    await result_of(a)
    assert Noted.calls == 0


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_an_async_listener_runs_where_it_always_does(a, started, orderly):
    threads: list[str] = []

    async def listen(messages: Any, context: Any) -> object:
        await asyncio.sleep(0)
        threads.append(threading.current_thread().name)
        if messages[0].body == b"bad":
            raise raising()
        return OrderlyResult.SUCCESS if orderly else ConsumeResult.SUCCESS

    await started(listen, orderly=orderly)
    await a.until_held()
    a.store("one")
    await eventually(lambda: len(threads) == 1)
    assert (await result_of(a)).consume_result is CMResult.CR_SUCCESS
    assert len(set(threads)) == 1
    told = await result_of(a, record(8, body=b"bad"))
    assert told.consume_result is CMResult.CR_THROW_EXCEPTION


async def test_a_listener_that_hangs_holds_up_nothing_else(a, started, clock):
    stuck = threading.Event()
    heard = Heard()

    def listen(messages: Any, context: Any) -> object:
        if messages[0].body == b"directly":
            stuck.wait(60)
        return heard(messages, context)

    core = await started(listen)
    await a.until_held()
    try:
        hanging = [directly() for _ in range(MAX_AT_A_TIME)]
        for command in hanging:
            command.opaque = next(_numbers)
            a.tell(command)
        await eventually(
            lambda: core.answers._direct is not None and f"{MAX_AT_A_TIME} of" in repr(core.answers._direct)
        )
        refused = await ask(a, directly())
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark is not None
        assert refused.remark.startswith("consumer of group 'g' is still busy with 4 messages that operators gave")
        a.store("others")
        await heard.until(1)
        assert (await info_of(a)).mq_table
    finally:
        stuck.set()
    for command in hanging:
        assert (await answer_to(a, command)).code == ResponseCode.SUCCESS
    assert (await result_of(a)).consume_result is CMResult.CR_SUCCESS


async def test_a_shutdown_waits_for_it_as_for_every_listener(a, started, clock):
    held = HeldUp()
    core = await started(held)
    await a.until_held()
    command = directly()
    command.opaque = next(_numbers)
    a.tell(command)
    await held.until(1)
    ending = asyncio.ensure_future(core.shutdown(30.0))
    await asyncio.sleep(0.05)
    assert not ending.done()
    refused = await ask(a, directly())
    assert (refused.code, refused.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "consumer of group 'g' gives its listener nothing more: it is being shut down",
    )
    held.let_go()
    await ending


async def test_what_is_no_message_is_refused(a, started):
    await started()
    await a.until_held()
    answer = await ask(a, directly(b"rubbish"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "CorruptMessageError" in answer.remark


async def test_who_has_no_listener_says_that_it_is_not_there(a, started):
    """As Java's for a consumer that fetches: only a push consumer can be given a message."""
    core = await started()
    await a.until_held()

    class Fetching(type(core.answers)):
        async def consume_directly(self, message: ReceivedMessage, broker_name: str) -> None:
            return None

    core._services.questions.join(Fetching(core))
    answer = await ask(a, directly())
    assert (answer.code, answer.remark) == (1, "The Consumer Group <g> not exist in this consumer")
