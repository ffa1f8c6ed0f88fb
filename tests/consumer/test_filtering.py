"""Filters on the client's side: the tags themselves, then a user's own hooks."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from rocketstream.consumer.expressions import subscription_to
from rocketstream.consumer.filtering import run_filter_hooks, tag_filtered
from rocketstream.consumer.flow_control import WaitReason
from rocketstream.consumer.hooks import FilterHook
from rocketstream.message import MessageQueue, ReceivedMessage
from tests.consumer.peers import TOPIC, Heard, HeldUp, request_of
from tests.consumer.pull_answers import found, record
from tests.scripted import eventually

QUEUE = MessageQueue("t", "a", 0)


def messages(*tags):
    return [ReceivedMessage("t", b"", tags=tag, queue_offset=n) for n, tag in enumerate(tags)]


def offsets(some):
    return [message.queue_offset for message in some]


# --- tags -----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("RES-03")
def test_only_the_tags_that_were_subscribed_to_are_left():
    got = messages("Aa", "BB", None, "x", "", "Aa", "aa", "Aa ")  # a broker cannot tell Aa from BB: one hash code
    assert offsets(tag_filtered(got, subscription_to("t", "Aa || x", 1))) == [0, 3, 5]


@pytest.mark.behaviour("RES-03")
def test_without_tags_everything_is_left():
    got = messages("Aa", None, "x")
    assert tag_filtered(got, subscription_to("t", "*", 1)) == got


@pytest.mark.behaviour("RES-03")
def test_a_class_filter_has_looked_at_the_broker():
    got = messages("Aa", None, "x")
    assert tag_filtered(got, replace(subscription_to("t", "Aa", 1), class_filter_mode=True)) == got


@pytest.mark.behaviour("RES-03")
async def test_a_listener_gets_only_the_tags_that_were_subscribed_to(started, a):
    heard = Heard()
    core = await started(heard, topics={TOPIC: "Aa || x"})
    await a.until_held()
    tags = ["Aa", "BB", None, "x", "BB"]
    a.answer(found(0, 5, records=[record(n, tags=tag) for n, tag in enumerate(tags)]))
    await heard.until(2)
    await a.until_pulled(2)
    assert heard.offsets == [0, 3]
    assert a.pulled_offsets() == [0, 5]
    assert core.stats.snapshot()[TOPIC]["pulled_messages"] == 2


@pytest.mark.behaviour("RES-03")
async def test_what_a_waiting_pull_brings_is_filtered_by_what_is_subscribed_now(started, a):
    """A broker answers a pull that waits by the subscription that it was told last, and so must we."""
    heard = Heard()
    core = await started(heard, topics={"t": "old"})
    await a.until_held()
    await core.subscribing.subscribe("t", "new")
    a.store("x", tags="new")
    await heard.until(1)
    assert heard.bodies == [b"x"]


# --- hooks ----------------------------------------------------------------------------------------------------------


class Hook(FilterHook):
    """Does to the messages what a test wants; notes what it saw and on which thread."""

    def __init__(self, action=lambda messages: None):
        self.action = action
        self.seen = []
        self.contexts = []
        self.threads = set()

    def filter(self, context):
        self.contexts.append(context)
        self.seen.append(offsets(context.messages))
        self.threads.add(threading.current_thread())
        self.action(context.messages)


def drop(*unwanted):
    def action(some):
        some[:] = [message for message in some if message.queue_offset not in unwanted]

    return action


def boom(some):
    del some[0]
    raise ValueError("boom")


@pytest.mark.behaviour("RES-04")
def test_hooks_remove_messages_one_after_the_other():
    first, second = Hook(drop(1)), Hook(drop(3))
    left = run_filter_hooks((first, second), "g", QUEUE, messages(*"abcde"), True)
    assert offsets(left) == [0, 2, 4]
    assert (first.seen, second.seen) == ([[0, 1, 2, 3, 4]], [[0, 2, 3, 4]])
    context = first.contexts[0]
    assert (context.group, context.queue, context.unit_mode) == ("g", QUEUE, True)


@pytest.mark.behaviour("RES-04")
def test_a_hook_that_raises_is_logged_and_the_others_run(caplog):
    last = Hook(drop(2))
    left = run_filter_hooks((Hook(boom), last), "g", QUEUE, messages(*"abcd"), False)
    assert offsets(left) == [1, 3]
    assert last.seen == [[1, 2, 3]]
    (told,) = caplog.records
    assert "raised" in told.getMessage()
    assert "boom" in str(told.exc_info[1])


def test_hooks_neither_reorder_nor_add():
    def action(some):
        some.reverse()
        some.append(ReceivedMessage("t", b"mine", queue_offset=99))

    assert offsets(run_filter_hooks((Hook(action),), "g", QUEUE, messages(*"abc"), False)) == [0, 1, 2]


@pytest.mark.feature("filters/hooks")
@pytest.mark.behaviour("RES-04")
async def test_hooks_run_after_the_tag_filter_and_off_the_io_thread(started, a, caplog):
    heard, hook = Heard(), Hook(drop(3))
    await started(heard, topics={TOPIC: "x"}, filter_hooks=[Hook(boom), hook], unit_mode=True)
    await a.until_held()
    tags = ["x", "y", "x", "x", "x"]
    a.answer(found(0, 5, records=[record(n, tags=tag) for n, tag in enumerate(tags)]))
    await heard.until(2)
    await a.until_pulled(2)
    assert hook.seen == [[2, 3, 4]]
    assert heard.offsets == [2, 4]
    assert hook.contexts[0].unit_mode
    assert any("filter hook" in one.getMessage() for one in caplog.records)
    assert threading.current_thread() not in hook.threads


async def test_what_hooks_leave_keeps_the_order_of_the_queue(started, a):
    held = [threading.Event(), threading.Event()]
    entered = []

    def slowly_at_first(some):
        entered.append(some[0].queue_offset)
        if len(entered) == 1:
            held[0].wait(10)

    heard = Heard()
    core = await started(heard, filter_hooks=[Hook(slowly_at_first)], consume_thread_min=1, consume_thread_max=1)
    a.answer(found(0, 3), found(3, 3))
    await eventually(lambda: bool(entered))
    assert request_of(core, a.queue()).process_queue.count == 0
    assert len(a.pulls) == 1  # the next pull waits for the hooks: its messages cannot overtake these
    held[0].set()
    await heard.until(6)
    assert offsets(heard.messages) == [0, 1, 2, 3, 4, 5]
    assert entered == [0, 3]


async def test_a_queue_that_is_lost_while_hooks_run_gets_nothing(started, a):
    go, entered = threading.Event(), threading.Event()

    def wait(_):
        entered.set()
        go.wait(10)

    heard = Heard()
    core = await started(heard, filter_hooks=[Hook(wait)])
    await a.until_held()
    a.answer(found(0, 3))
    await asyncio.to_thread(entered.wait, 10)
    request = request_of(core, a.queue())
    request.process_queue.drop()
    go.set()
    await eventually(lambda: not core.puller._tasks)
    assert (heard.messages, request.process_queue.count, len(a.pulls)) == ([], 0, 1)


@pytest.mark.behaviour("RES-07")
@pytest.mark.parametrize("by", ["tags", "hooks"])
@pytest.mark.parametrize("interval", [0.0, 5.0])
async def test_when_nothing_is_left_it_is_pulled_again_at_once(started, a, by, interval):
    heard = Heard()
    settings = {"filter_hooks": [Hook(lambda some: some.clear())]} if by == "hooks" else {"topics": {TOPIC: "Aa"}}
    await started(heard, pull_interval=interval, **settings)
    await a.until_held()
    a.answer(found(0, 3, records=[record(n, tags="BB") for n in range(3)]))
    await a.until_pulled(2)  # though the clock stands still
    assert a.pulled_offsets() == [0, 3]
    assert heard.messages == []


async def test_the_limits_hold_with_hooks_too(started, a, held_up: HeldUp):
    core = await started(held_up, filter_hooks=[Hook()], pull_threshold_for_queue=2)
    await a.until_held()
    a.answer(found(0, 3))
    request = request_of(core, a.queue())
    await eventually(lambda: request.waiting is not None)
    assert request.waiting.reason is WaitReason.COUNT
    assert len(a.pulls) == 1
