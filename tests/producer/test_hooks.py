"""Send hooks: told of each attempt before and after it, never on the I/O thread, and what they may break."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rocketstream.errors import ConnectionLostError, SendFailedError
from rocketstream.message import MessageQueue
from rocketstream.producer import SendContext, SendHook
from rocketstream.wire.codes import ResponseCode
from tests.producer.peers import CUT, SILENCE, in_flight, ready
from tests.scripted import eventually


class Recorded(SendHook):
    def __init__(self, name: str = "hook", log: list[str] | None = None) -> None:
        self.name = name
        self.log = [] if log is None else log
        self.before: list[SendContext] = []
        self.after: list[SendContext] = []
        self.threads: set[int] = set()

    def before_send(self, context: SendContext) -> None:
        assert context.receipt is None
        assert context.error is None
        self.threads.add(threading.get_ident())
        self.log.append(f"{self.name} before")
        self.before.append(context)

    def after_send(self, context: SendContext) -> None:
        self.threads.add(threading.get_ident())
        self.log.append(f"{self.name} after")
        self.after.append(context)


@pytest.fixture
def one(name_server, a):
    name_server.set_route("t", {"a": {0: a.address}}, queues=1)
    name_server.set_route("ns%t", {"a": {0: a.address}}, queues=1)


async def test_a_hook_sees_what_is_sent_and_what_became_of_it(started, one, a, clock):
    hook = Recorded()
    core = await started(send_hooks=[hook], namespace="ns")
    out = ready(core)
    receipt = await core.send(out)
    await eventually(lambda: len(hook.after) == 1)
    (context,) = hook.before
    assert context is hook.after[0]
    assert (context.group, context.namespace, context.address) == ("g", "ns", a.address)
    assert context.message is out.message
    assert context.queue == MessageQueue("t", "a", 0)
    assert context.born_timestamp == clock.wall_ms()
    assert (context.receipt, context.error, context.elapsed) == (receipt, None, 0.0)
    assert threading.get_ident() not in hook.threads, "not on the thread of the event loop"


async def test_each_attempt_is_told(started, one, a):
    hook = Recorded()
    core = await started(send_hooks=[hook])
    a.script.extend([CUT, ResponseCode.SYSTEM_ERROR])
    await core.send(ready(core))
    await eventually(lambda: len(hook.after) == 3)
    assert len(hook.before) == 3
    errors = [type(context.error).__name__ for context in hook.before]
    assert errors == ["ConnectionLostError", "BrokerError", "NoneType"]
    assert [context.receipt is not None for context in hook.before] == [False, False, True]


async def test_hooks_run_in_their_order(started, one, a):
    log: list[str] = []
    core = await started(send_hooks=(Recorded("one", log), Recorded("two", log)))
    await core.send(ready(core))
    await eventually(lambda: len(log) == 4)
    assert log == ["one before", "two before", "one after", "two after"]


async def test_a_hook_that_raises_before_fails_the_send_before_anything_leaves(started, one, a):
    class Refuses(SendHook):
        def before_send(self, context: SendContext) -> None:
            raise PermissionError("not on a Sunday")

    log: list[str] = []
    core = await started(send_hooks=(Recorded("one", log), Refuses(), Recorded("two", log)))
    with pytest.raises(PermissionError, match="not on a Sunday"):
        await core.send(ready(core))
    assert a.sends == []
    assert log == ["one before"]


async def test_a_hook_that_raises_stop_iteration_does_not_hang_the_send(started, one, a):
    class Careless(SendHook):
        def before_send(self, context: SendContext) -> None:
            next(iter(()))

    core = await started(send_hooks=[Careless()])
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        await asyncio.wait_for(core.send(ready(core)), 5)
    assert a.sends == []


async def test_a_hook_that_raises_after_is_logged_and_the_others_are_told(started, one, a, caplog):
    class Broken(SendHook):
        def after_send(self, context: SendContext) -> None:
            raise RuntimeError("hook is broken")

        def __repr__(self) -> str:
            return "<Broken>"

    last = Recorded()
    core = await started(send_hooks=(Broken(), last))
    assert (await core.send(ready(core))).queue_offset == 0
    await eventually(lambda: len(last.after) == 1)
    assert "the send hook <Broken> raised after the send of Message(topic='t', body_size=1)" in caplog.text
    assert "hook is broken" in caplog.text


async def test_a_slow_hook_does_not_hold_up_the_event_loop(started, one, a):
    release = threading.Event()

    class Slow(SendHook):
        def before_send(self, context: SendContext) -> None:
            assert release.wait(60)

    core = await started(send_hooks=[Slow()])
    sending = asyncio.ensure_future(core.send(ready(core)))
    await asyncio.sleep(0)
    assert await core.instance.heartbeat() >= 0
    assert not sending.done()
    release.set()
    assert (await sending).queue_offset == 0


async def test_a_shutdown_during_a_send_is_told_as_what_it_is(started, one, a):
    hook = Recorded()
    core = await started(send_hooks=[hook], retries=0)
    a.always = SILENCE
    sending = asyncio.ensure_future(core.send(ready(core)))
    await in_flight(a, 1)
    await core.shutdown()
    with pytest.raises(SendFailedError, match=a.address):
        await sending


async def test_a_message_can_be_counted_with_what_it_took(started, one, a, clock):
    hook = Recorded()
    core = await started(send_hooks=[hook], retries=0)
    a.always = SILENCE
    sending = asyncio.ensure_future(core.send(ready(core)))
    await in_flight(a, 1)
    await clock.advance(1.25)
    for peer in list(a.peers):
        peer.cut()
    with pytest.raises(SendFailedError):
        await sending
    await eventually(lambda: len(hook.after) == 1)
    assert hook.after[0].elapsed == 1.25
    assert isinstance(hook.after[0].error, ConnectionLostError)
