"""Sends: one budget, attempts on other brokers, and errors that name each address and its reason."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from rocketstream.errors import (
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    ConnectError,
    ConnectionLostError,
    NameServerError,
    RequestTimeoutError,
    SendFailedError,
    TopicRouteNotFoundError,
)
from rocketstream.message import Message, MessageQueue
from rocketstream.producer.dispatch import Send
from rocketstream.producer.receipt import SendReceipt, SendStatus
from rocketstream.wire.batch import decode_batch
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.properties import decode_properties
from tests.producer.peers import CUT, SILENCE, in_flight, ready, running_producers
from tests.scripted import eventually

RETRYABLE = [
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
]
FINAL = [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SUBSCRIPTION_NOT_EXIST]


@pytest.fixture
def two(name_server, a, b):
    """Topic t on both brokers."""
    name_server.set_route("t", {"a": {0: a.address}, "b": {0: b.address}}, queues=2)


@pytest.fixture
def one(name_server, a):
    """Topic t on broker a."""
    name_server.set_route("t", {"a": {0: a.address}}, queues=4)


def at(broker, n=0):
    return MessageQueue("t", broker, n)


# --- what a receipt says --------------------------------------------------------------------------------------------


async def test_a_receipt_has_what_the_broker_said(started, one, a):
    core = await started()
    out = ready(core, tags="paid")
    receipt = await core.send(out, queue=at("a", 3))
    assert receipt == SendReceipt(
        status=SendStatus.OK,
        message_id=out.message_id,
        offset_message_id=f"{1:032X}",
        queue=at("a", 3),
        queue_offset=0,
        transaction_id="TX",
    )
    (command,) = a.sends
    assert (command.code, command.fields["b"], command.fields["e"]) == (RequestCode.SEND_MESSAGE_V2, "t", "3")
    assert command.fields["n"] == "a"
    assert a.properties()["TAGS"] == "paid"


@pytest.mark.parametrize(
    "status", [SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SLAVE_NOT_AVAILABLE]
)
async def test_a_message_stored_less_safely_is_a_receipt_that_says_so(started, two, a, b, status):
    core = await started()
    a.always = b.always = ResponseCode[status.value]
    assert (await core.send(ready(core))).status is status
    assert len(a.sends) + len(b.sends) == 1


async def test_it_goes_to_another_broker_where_that_was_asked_for(started, two, a, b):
    core = await started(retry_another_broker=True)
    a.always = ResponseCode.SLAVE_NOT_AVAILABLE
    for _ in range(8):
        receipt = await core.send(ready(core))
        assert (receipt.status, receipt.queue.broker_name) == (SendStatus.OK, "b")
    assert a.sends
    b.always = ResponseCode.FLUSH_DISK_TIMEOUT
    assert (await core.send(ready(core))).status is not SendStatus.OK, "stored less safely is still stored"
    b.always = CUT
    assert (await core.send(ready(core))).status is SendStatus.SLAVE_NOT_AVAILABLE, "better than an error"


# --- retries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", RETRYABLE, ids=lambda code: code.name)
async def test_a_failure_that_is_the_brokers_own_is_tried_at_another(started, two, a, b, code):
    core = await started()
    a.always = (code, "not here")
    for _ in range(4):
        assert (await core.send(ready(core))).queue.broker_name == "b"
    assert 1 <= len(a.sends) <= 4
    assert len(b.sends) == 4


async def test_the_same_message_is_sent_again(started, two, a, b):
    core = await started(compress_over=10)
    a.always = ResponseCode.SYSTEM_ERROR
    while not a.sends:
        b.sends.clear()
        out = ready(core, body=b"x" * 1000)
        await core.send(out)
    (tried,), (stored,) = a.sends, b.sends
    assert tried.body == stored.body == out.body
    assert tried.fields["i"] == stored.fields["i"]
    assert tried.fields["n"] == "a"
    assert stored.fields["n"] == "b"


@pytest.mark.parametrize("code", FINAL, ids=lambda code: code.name)
async def test_a_refusal_that_others_would_repeat_ends_it_with_the_brokers_words(started, one, a, code):
    core = await started()
    a.always = (code, "the broker's words")
    with pytest.raises(BrokerError) as caught:
        await core.send(ready(core))
    assert (caught.value.code, caught.value.remark, caught.value.address) == (code, "the broker's words", a.address)
    assert len(a.sends) == 1


async def test_a_refusal_after_a_failure_tells_of_both(started, one, a):
    core = await started()
    a.script.extend([(ResponseCode.SYSTEM_ERROR, "ouch"), (ResponseCode.MESSAGE_ILLEGAL, "never")])
    with pytest.raises(SendFailedError) as caught:
        await core.send(ready(core))
    text = str(caught.value)
    assert text.startswith("a message for topic 't' was not sent after 2 attempts in 0.00 s: ")
    assert f"{a.address}: answered SYSTEM_ERROR (1) to SEND_MESSAGE_V2: ouch; " in text
    assert text.endswith(": answered MESSAGE_ILLEGAL (13) to SEND_MESSAGE_V2: never")
    assert not caught.value.maybe_stored


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (2, 3), (5, 6)])
async def test_there_are_as_many_attempts_as_the_setting_says(started, two, a, b, retries, attempts):
    core = await started(retries=retries)
    a.always = b.always = CUT
    with pytest.raises(SendFailedError) as caught:
        await core.send(ready(core))
    assert len(a.sends) + len(b.sends) == attempts
    assert len(caught.value.attempts) == attempts
    assert abs(len(a.sends) - len(b.sends)) <= 1, "one broker and the other in turn"


async def test_an_error_names_each_address_and_its_reason(started, two, a, b):
    core = await started(retries=1)
    await b.stop()
    a.always = CUT
    with pytest.raises(SendFailedError) as caught:
        await core.send(ready(core))
    error = caught.value
    assert error.topic == "t"
    assert {where for where, _ in error.attempts} == {a.address, b.address}
    kinds = {where: type(reason) for where, reason in error.attempts}
    assert kinds == {a.address: ConnectionLostError, b.address: ConnectError}
    for where, _ in error.attempts:
        assert str(error).count(where) >= 1
    assert error.maybe_stored, "the connection was lost after the message was written"


async def test_a_message_that_never_left_is_surely_not_stored(started, two, a, b):
    core = await started()
    await a.stop()
    await b.stop()
    with pytest.raises(SendFailedError) as caught:
        await core.send(ready(core))
    assert [type(reason) for _, reason in caught.value.attempts] == [ConnectError] * 3
    assert not caught.value.maybe_stored


async def test_a_busy_broker_is_given_a_moment(started, one, a, clock):
    core = await started()
    a.script.append((ResponseCode.SYSTEM_BUSY, "too many requests"))
    sending = asyncio.ensure_future(core.send(ready(core)))
    await in_flight(a, 1)
    await clock.settle()
    assert not sending.done()
    await clock.advance(0.1)
    assert (await sending).status is SendStatus.OK
    assert len(a.sends) == 2


# --- a given queue --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", [{"queue": at("a", 1)}, {"sharding_key": "k"}, {"selector": lambda q, m, arg: q[0]}])
async def test_a_chosen_queue_has_one_attempt(started, two, a, b, choice):
    core = await started()
    a.always = b.always = CUT
    with pytest.raises(SendFailedError, match="after 1 attempts"):
        await core.send(ready(core), **choice)
    assert len(a.sends) + len(b.sends) == 1


async def test_keys_of_the_message_and_of_the_call(started, one, a):
    core = await started()
    chosen = [
        (await core.send(ready(core), sharding_key="a")).queue.queue_id,
        (await core.send(ready(core, sharding_key="a"))).queue.queue_id,
        (await core.send(ready(core, sharding_key="zzz"), sharding_key="a")).queue.queue_id,
    ]
    assert chosen == [97 % 4] * 3
    assert a.properties(1)["__SHARDINGKEY"] == "a"


async def test_a_selector_gets_queues_message_and_argument(started, one, a):
    core = await started()
    seen = []

    def select(queues, message, arg):
        seen.append((tuple(queues), message, arg))
        return queues[arg % len(queues)]

    out = ready(core)
    assert (await core.send(out, selector=select, arg=6)).queue == at("a", 2)
    assert seen == [(tuple(at("a", n) for n in range(4)), out.message, 6)]


async def test_what_a_selector_raises_is_raised(started, one, a):
    core = await started()

    def select(queues, message, arg):
        return {}["no such key"]

    with pytest.raises(KeyError, match="no such key"):
        await core.send(ready(core), selector=select)
    assert a.sends == []


async def test_a_selector_that_finds_nothing_with_next_does_not_hang(started, one, a):
    core = await started()

    def select(queues, message, arg):
        return next(queue for queue in queues if queue.queue_id == 99)

    with pytest.raises((RuntimeError, ConfigurationError)):
        await asyncio.wait_for(core.send(ready(core), selector=select), 5)
    assert a.sends == []


# --- time -----------------------------------------------------------------------------------------------------------


async def test_all_attempts_share_one_budget(started, two, a, b, clock):
    core = await started(send_timeout=3.0, retries=5)
    a.always = b.always = SILENCE
    sending = asyncio.ensure_future(core.send(ready(core)))
    await eventually(lambda: len(a.sends) + len(b.sends) == 1)
    await clock.advance(2.9)
    assert not sending.done()
    await clock.advance(0.2)
    with pytest.raises(SendFailedError, match=r"after 1 attempts in 3\.\d\d s: .*no answer to SEND_MESSAGE_V2"):
        await sending
    assert len(a.sends) + len(b.sends) == 1, "nothing is left of the budget for another attempt"


async def test_a_second_attempt_gets_what_is_left(started, two, a, b, clock):
    core = await started(send_timeout=3.0)

    a.always = b.always = SILENCE
    sending = asyncio.ensure_future(core.send(ready(core)))
    await eventually(lambda: len(a.sends) + len(b.sends) == 1)
    first, second = (a, b) if a.sends else (b, a)
    await clock.advance(2.0)
    for peer in list(first.peers):
        peer.cut()
    await eventually(lambda: len(second.sends) == 1)
    assert not sending.done()
    await clock.advance(0.9)
    assert not sending.done()
    await clock.advance(0.2)
    with pytest.raises(SendFailedError) as caught:
        await sending
    assert [type(reason) for _, reason in caught.value.attempts] == [ConnectionLostError, RequestTimeoutError]
    assert caught.value.maybe_stored


async def test_the_call_may_have_its_own_time_out(started, one, a, clock):
    core = await started()
    a.always = SILENCE
    sending = asyncio.ensure_future(core.send(ready(core), timeout=0.5))
    await in_flight(a, 1)
    await clock.advance(0.6)
    with pytest.raises(SendFailedError) as caught:
        await sending
    assert caught.value.maybe_stored


# --- the quick way (what Producer.send and send_async use) ------------------------------------------------------------


def submitted(core, out, retries=2, timeout=3.0, **others) -> concurrent.futures.Future:
    future = core.new_future(None)
    core._dispatcher.start(Send(out, future, retries, timeout, core.clock.monotonic(), **others))
    return future


async def test_the_quick_way_ends_with_the_same_receipt(started, one, a):
    core = await started()
    await core.send(ready(core))  # route and connection are at hand now
    out = ready(core)
    receipt = await asyncio.wrap_future(submitted(core, out))
    assert receipt.message_id == out.message_id
    assert receipt.status is SendStatus.OK
    assert (receipt.queue_offset, receipt.offset_message_id) == (1, f"{2:032X}")


async def test_the_quick_way_tries_elsewhere_and_counts_its_own_attempt(started, two, a, b):
    core = await started()
    for _ in range(4):
        await core.send(ready(core))
    a.always = (ResponseCode.SYSTEM_ERROR, "not here")
    for _ in range(4):
        assert (await asyncio.wrap_future(submitted(core, ready(core)))).queue.broker_name == "b"
    b.always = (ResponseCode.SYSTEM_ERROR, "nor here")
    before = len(a.sends) + len(b.sends)
    with pytest.raises(SendFailedError, match="after 3 attempts"):
        await asyncio.wrap_future(submitted(core, ready(core)))
    assert len(a.sends) + len(b.sends) - before == 3


async def test_the_quick_way_ends_at_a_final_refusal_with_the_brokers_words(started, one, a):
    core = await started()
    await core.send(ready(core))
    a.always = (ResponseCode.MESSAGE_ILLEGAL, "never")
    with pytest.raises(BrokerError, match=r"MESSAGE_ILLEGAL \(13\) to SEND_MESSAGE_V2: never"):
        await asyncio.wrap_future(submitted(core, ready(core)))
    assert len(a.sends) == 2


async def test_the_quick_way_has_one_budget_too(started, two, a, b, clock):
    core = await started()
    for _ in range(4):
        await core.send(ready(core))
    a.sends.clear()
    b.sends.clear()
    a.always = b.always = SILENCE
    future = submitted(core, ready(core), timeout=3.0, retries=2)
    await eventually(lambda: len(a.sends) + len(b.sends) == 1)
    await clock.advance(3.5)
    await eventually(lambda: future.done() or len(a.sends) + len(b.sends) > 1)
    assert future.done(), "a second attempt was given a budget of its own"
    assert isinstance(future.exception(), SendFailedError)


async def test_the_time_that_an_error_tells_counts_from_the_callers_call(started, two, a, b, clock):
    core = await started()
    for _ in range(4):
        await core.send(ready(core))
    a.sends.clear()
    b.sends.clear()
    a.always = b.always = SILENCE
    future = submitted(core, ready(core), timeout=3.0)
    await eventually(lambda: len(a.sends) + len(b.sends) == 1)
    first, second = (a, b) if a.sends else (b, a)
    await clock.advance(2.0)
    for peer in list(first.peers):
        peer.cut()
    await eventually(lambda: len(second.sends) == 1)
    await clock.advance(1.25)
    await eventually(future.done)
    with pytest.raises(SendFailedError, match=r"after 2 attempts in 3\.\d\d s"):
        future.result()


async def test_the_budget_counts_from_the_callers_call(started, one, a, clock):
    core = await started()
    await core.send(ready(core))
    a.always = SILENCE
    future = core.new_future(None)
    called = clock.monotonic()
    await clock.advance(2.0)  # the I/O thread was busy, or it waited for company
    core._dispatcher.start(Send(ready(core), future, 0, 3.0, called))
    await eventually(lambda: len(a.sends) == 2)
    await clock.advance(0.9)
    assert not future.done()
    await clock.advance(0.2)
    await eventually(future.done)
    with pytest.raises(SendFailedError, match=r"after 1 attempts in 3\.\d\d s: .*within 1 s"):
        future.result()


async def test_a_key_has_one_attempt_the_quick_way_too(started, two, a, b):
    core = await started()
    for _ in range(4):
        await core.send(ready(core))
    a.always = b.always = CUT
    before = len(a.sends) + len(b.sends)
    with pytest.raises(SendFailedError, match="after 1 attempts"):
        await asyncio.wrap_future(submitted(core, ready(core), sharding_key="k"))
    assert len(a.sends) + len(b.sends) - before == 1


# --- routes ---------------------------------------------------------------------------------------------------------


async def test_a_topic_that_does_not_exist_is_sent_to_where_it_will_be_created(started, name_server, a):
    name_server.set_route("TBW102", {"a": {0: a.address}}, queues=8)
    core = await started(default_topic_queue_nums=4)
    chosen = set()
    for _ in range(8):
        chosen.add((await core.send(ready(core, "new"))).queue)
    assert chosen == {MessageQueue("new", "a", n) for n in range(4)}
    (command, *_) = a.sends
    assert (command.fields["c"], command.fields["d"]) == ("TBW102", "4")


async def test_once_it_is_created_its_real_route_is_used(started, name_server, a, clock):
    name_server.set_route("TBW102", {"a": {0: a.address}}, queues=8)
    core = await started()
    await core.send(ready(core, "new"))
    assert await core.user_queues("new") == tuple(MessageQueue("new", "a", n) for n in range(4))
    name_server.set_route("new", {"a": {0: a.address}}, queues=2)
    await clock.advance(1.5)
    await core.send(ready(core, "new"))
    await eventually(lambda: core.instance.routes.cached("new") is not None)
    assert len(await core.queues("new")) == 2
    await eventually(lambda: "new" in core.topics())


async def test_where_no_broker_creates_topics_the_error_says_what_to_do(started, name_server, a):
    core = await started()
    with pytest.raises(TopicRouteNotFoundError) as caught:
        await core.send(ready(core, "new"))
    assert str(caught.value) == (
        f"topic 'new' has no route at {name_server.address}: it does not exist there (create it, or allow the broker to"
        " create topics), or its broker is not registered"
    )
    name_server.set_route("new", {"a": {0: a.address}})
    assert (await core.send(ready(core, "new"))).status is SendStatus.OK, "it exists now"


@pytest.mark.parametrize(("brokers", "perm"), [({0: "x"}, 4), ({1: "x"}, 6)], ids=["read only", "no master"])
async def test_a_topic_without_a_queue_to_write_to(started, name_server, a, brokers, perm):
    name_server.set_route("t", {"a": dict.fromkeys(brokers, a.address)}, perm=perm)
    core = await started()
    with pytest.raises(BrokerNotFoundError) as caught:
        await core.send(ready(core))
    assert str(caught.value) == (
        "topic 't' has no queue that can be written to: its brokers have no master or forbid writing"
    )


async def test_queues_that_are_asked_for_are_the_users(started, name_server, a):
    name_server.set_route("ns%t", {"a": {0: a.address}}, queues=2)
    core = await started(namespace="ns")
    assert await core.user_queues("t") == (at("a", 0), at("a", 1))


ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
NO_CHOICE = {"queue": None, "sharding_key": None, "selector": None, "arg": None}


@pytest.mark.parametrize(
    "choice",
    [{}, {"sharding_key": "k"}, {"selector": lambda q, m, arg: q[0]}, {"queue": at("a")}],
    ids=["none", "key", "selector", "queue"],
)
async def test_looking_for_a_route_takes_no_longer_than_is_left_of_the_send(started, name_server, one, clock, choice):
    core = await started(client={"api_timeout": 60.0})
    name_server.on(ROUTE, lambda command: None)
    sending = asyncio.ensure_future(core.send(ready(core), timeout=2.0, **choice))
    await eventually(lambda: name_server.asked_for("t"))
    await clock.advance(1.9)
    assert not sending.done()
    await clock.advance(0.2)
    assert sending.done(), "it waits for the name server's own time-out"
    text = "no name server told the route of topic 't' within the 2 s that were left of the send's time-out: "
    with pytest.raises((NameServerError, SendFailedError), match=text + name_server.address):
        await sending


async def test_so_does_a_one_way_send(started, name_server, one, clock):
    core = await started(client={"api_timeout": 60.0}, send_timeout=2.0)
    name_server.on(ROUTE, lambda command: None)
    sending = asyncio.ensure_future(core.send_one_way(ready(core), **NO_CHOICE))
    await eventually(lambda: name_server.asked_for("t"))
    await clock.advance(2.1)
    assert sending.done()
    with pytest.raises(NameServerError, match="that were left of the send's time-out"):
        await sending


async def test_nor_longer_than_name_servers_are_given(started, name_server, one, clock):
    core = await started(client={"api_timeout": 1.0})
    name_server.on(ROUTE, lambda command: None)
    sending = asyncio.ensure_future(core.send(ready(core), timeout=30.0))
    await eventually(lambda: name_server.asked_for("t"))
    await clock.advance(1.1)
    assert sending.done()
    with pytest.raises(NameServerError, match="no name server answered GET_ROUTEINFO_BY_TOPIC"):
        await sending


async def test_a_send_that_gives_up_on_a_route_does_not_take_it_from_another(started, name_server, one, a, clock):
    core = await started(client={"api_timeout": 60.0})
    may_answer = asyncio.Event()

    async def answer_late(command):
        await may_answer.wait()
        return name_server._route(command)

    name_server.on(ROUTE, answer_late)
    impatient, patient = (
        asyncio.ensure_future(core.send(ready(core), timeout=timeout, retries=0)) for timeout in (1.0, 50.0)
    )
    await eventually(lambda: name_server.asked_for("t"))
    await clock.advance(1.1)
    assert impatient.done()
    with pytest.raises(NameServerError):
        await impatient
    may_answer.set()
    assert (await patient).status is SendStatus.OK
    assert name_server.asked_for("t") == 1


# --- latency --------------------------------------------------------------------------------------------------------


async def test_a_slow_broker_is_left_alone_where_that_was_asked_for(started, two, a, b, clock):
    core = await started(latency_fault_tolerance=True)
    a.always = SILENCE
    sending = asyncio.ensure_future(core.send(ready(core), queue=at("a")))
    await in_flight(a, 1)
    await clock.advance(3.1)
    with pytest.raises(SendFailedError):
        await sending
    a.always = ResponseCode.SUCCESS
    for _ in range(8):
        assert (await core.send(ready(core))).queue.broker_name == "b"
    await clock.advance(10.0)
    names = [(await core.send(ready(core))).queue.broker_name for _ in range(8)]
    assert set(names) == {"a", "b"}


# --- one way and batches --------------------------------------------------------------------------------------------


async def test_one_way_waits_for_no_answer(started, one, a):
    core = await started()
    a.always = SILENCE
    await core.send_one_way(ready(core), queue=None, sharding_key=None, selector=None, arg=None)
    await core.send_one_way(ready(core), queue=at("a", 2), sharding_key=None, selector=None, arg=None)
    await in_flight(a, 2)
    assert all(command.is_one_way for command in a.sends)
    assert a.sends[1].fields["e"] == "2"


async def test_a_batch_that_was_split_is_stored_in_order(started, one, a):
    core = await started(max_message_size=1000)
    messages = [Message("t", b"%04d" % n * 50) for n in range(20)]
    batches = core.preparation.batches(messages)
    receipts = await core.send_all(batches, timeout=None, queue=at("a", 1))
    assert len(receipts) == len(batches) == len(a.sends) > 3
    stored = [item for command in a.sends for item in decode_batch(command.body)]
    assert [item.body for item in stored] == [message.body for message in messages]
    ids = [decode_properties(item.properties)["UNIQ_KEY"] for item in stored]
    assert ",".join(receipt.message_id for receipt in receipts) == ",".join(ids)
    assert {command.fields["e"] for command in a.sends} == {"1"}
    assert {command.code for command in a.sends} == {RequestCode.SEND_BATCH_MESSAGE}


async def test_the_parts_of_a_batch_share_one_budget(started, one, a, clock):
    core = await started(max_message_size=300, retries=0)
    a.script.extend([ResponseCode.SUCCESS, SILENCE])
    batches = core.preparation.batches([Message("t", b"x" * 200)] * 3)
    assert len(batches) == 3
    sending = asyncio.ensure_future(core.send_all(batches, timeout=1.0, queue=None))
    await in_flight(a, 2)
    await clock.advance(1.1)
    with pytest.raises(SendFailedError):
        await sending
    assert len(a.sends) == 2


async def test_a_batch_with_a_key_goes_to_the_keys_queue(started, one, a):
    core = await started()
    batches = core.preparation.batches([Message("t", b"1", sharding_key="a"), Message("t", b"2", sharding_key="a")])
    (receipt,) = await core.send_all(batches, timeout=None, queue=None)
    assert receipt.queue == at("a", 97 % 4)


# --- namespaces -----------------------------------------------------------------------------------------------------


async def test_namespaces_wrap_outgoing_names_and_are_stripped_from_what_comes_back(started, name_server, a):
    name_server.set_route("ns%t", {"a": {0: a.address}}, queues=4)
    core = await started(namespace="ns")
    seen = []

    def select(queues, message, arg):
        seen.extend(queues)
        return queues[1]

    assert (await core.send(ready(core))).queue.topic == "t"
    assert (await core.send(ready(core), queue=at("a", 2))).queue == at("a", 2)
    assert (await core.send(ready(core), selector=select)).queue == at("a", 1)
    assert {queue.topic for queue in seen} == {"t"}
    assert {(command.fields["b"], command.fields["a"]) for command in a.sends} == {("ns%t", "ns%g")}
    assert a.properties()["INSTANCE_ID"] == "ns"
    assert core.group == "ns%g"
    with pytest.raises(ConfigurationError, match="is not one of topic 't'"):
        await core.send(ready(core), queue=MessageQueue("other%t", "a", 0))


# --- the end --------------------------------------------------------------------------------------------------------


async def test_a_shutdown_ends_what_is_under_way_with_an_error_that_says_so(started, one, a):
    core = await started()
    a.always = SILENCE
    sending = asyncio.ensure_future(core.send(ready(core)))
    await in_flight(a, 1)
    await core.shutdown()
    with pytest.raises(SendFailedError) as caught:
        await sending
    assert a.address in str(caught.value)
    assert caught.value.maybe_stored, "it had been written"


async def test_a_broker_that_vanishes_from_its_route_between_attempts_is_told_with_the_attempts(
    started, two, name_server, a, b
):
    core = await started()
    await core.queues("t")
    a.always = b.always = CUT
    await name_server.stop()
    core.instance.brokers.keep_only([a.address])
    with pytest.raises(SendFailedError) as caught:
        await core.send(ready(core))
    assert caught.value.maybe_stored


# --- the plain face -------------------------------------------------------------------------------------------------


def test_every_way_to_send_reaches_the_broker():
    with running_producers() as (producer, _, broker):
        assert producer.send(Message("t", b"1")).status is SendStatus.OK
        assert producer.send_async(Message("t", b"2")).result(60).status is SendStatus.OK
        assert [receipt.status for receipt in producer.send_batch([Message("t", b"3")])] == [SendStatus.OK]
        producer.send_oneway(Message("t", b"4"))
        producer.send(Message("t", b"5"))
        assert [body for body in broker.bodies if len(body) == 1] == [b"1", b"2", b"4", b"5"]
        assert [item.body for item in decode_batch(broker.bodies[2])] == [b"3"]


def test_a_shutdown_waits_for_asynchronous_sends():
    with running_producers() as (producer, _, _broker):
        futures = [producer.send_async(Message("t", b"x")) for _ in range(300)]
        producer.shutdown()
        assert [future.result(0).status for future in futures] == [SendStatus.OK] * 300


def test_a_message_that_may_not_have_been_stored_is_told_to_the_future():
    with running_producers(retries_async=0) as (producer, _, broker):
        broker.script.append(CUT)
        error = producer.send_async(Message("t", b"x")).exception(60)
        assert isinstance(error, SendFailedError)
        assert error.maybe_stored


def test_what_users_hang_on_a_future_does_not_run_on_the_io_thread():
    with running_producers() as (producer, _, _broker):
        names: list[str] = []
        called = threading.Event()

        def callback(_: object) -> None:
            names.append(threading.current_thread().name)
            called.set()

        release = threading.Event()
        future = producer.send_async(Message("t", b"x"), selector=lambda queues, *_: release.wait(60) and queues[0])
        future.add_done_callback(callback)
        release.set()
        assert called.wait(60)
        assert names != ["rocketstream-io"]
