"""The driver of a Spark consumer: company, failures of Spark, the end, resets, the checkpoint."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rocketstream import ConsumeResult, OrderlyResult, PushConsumer, StartFrom
from rocketstream.cluster.client import ClientState
from rocketstream.cluster.names import retry_topic
from rocketstream.consumer.broker_offsets import BrokerOffsets
from rocketstream.errors import BrokerError, ClientStateError, OffsetStoreError
from rocketstream.wire.bodies.running_info import ConsumerRunningInfo
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.group import ConsumeMessageDirectlyRequestHeader, GetConsumerRunningInfoRequestHeader
from tests.bare_client import eventually
from tests.contract.consuming import Heard
from tests.contract.test_push_orderly import try_to_lock
from tests.spark.consumer.conftest import Place
from tests.spark.consumer.in_process import InProcessConsumer
from tests.spark.consumer.journal import Concurrent

#: Listeners are pickled by their names: in this process they share these.
LET_GO = threading.Event()
ENTERED = threading.Event()


def hang(messages: Any, context: Any) -> ConsumeResult:
    ENTERED.set()
    LET_GO.wait(60)
    return ConsumeResult.SUCCESS


@pytest.fixture
def let_go() -> Iterator[threading.Event]:
    LET_GO.clear()
    ENTERED.clear()
    yield LET_GO
    LET_GO.set()


# --- who else is in the group ---------------------------------------------------------------------------------------


def push_consumer(place: Place, heard: Heard) -> PushConsumer:
    consumer = PushConsumer(place.group, place.address, listener=heard, start_from=StartFrom.FIRST)
    consumer.subscribe(place.topic)
    return consumer


def test_it_refuses_to_start_beside_other_members(place):
    with push_consumer(place, Heard()) as other:
        consumer = place.consumer(Concurrent(place.journal)).subscribe(place.topic)
        with pytest.raises(ClientStateError) as refused:
            consumer.start()
        said = str(refused.value)
        assert other.client_id in said
        assert "beside_members=True" in said
        assert consumer.state is ClientState.CREATE_JUST
        assert [one.client_id for one in place.admin.consumers(place.group).members] == [other.client_id]
    with consumer:  # it can start once they are gone
        place.send("ok-0")
        eventually(lambda: place.journal.bodies() == ["ok-0"])


def test_beside_other_members_the_queues_are_shared(place):
    topic = f"{place.topic}-2"
    place.create_topic(2, topic)
    heard = Heard()
    ordinary = PushConsumer(place.group, place.address, listener=heard, start_from=StartFrom.FIRST)
    ordinary.subscribe(topic)
    spark = place.consumer(Concurrent(place.journal), beside_members=True).subscribe(topic)
    with ordinary, spark:
        eventually(lambda: len(spark.assignment) == len(ordinary.assignment) == 1)
        for queue_id in range(2):
            place.send(f"ok-{queue_id}", queue_id=queue_id, topic=topic)
        eventually(lambda: len(heard.bodies) + len(place.journal.lines()) >= 2)
        assert sorted([*(body.decode() for body in heard.bodies), *place.journal.bodies()]) == ["ok-0", "ok-1"]
        assert len(heard.bodies) == 1


def test_operators_see_it_as_a_member_of_its_group(place):
    consumer = place.consume(Concurrent(place.journal))
    (member,) = place.admin.consumers(place.group).members
    assert member.client_id == consumer.client_id
    consumer.shutdown()
    assert place.admin.consumers(place.group).members == ()
    consumer.shutdown()  # once more does nothing


# --- what goes wrong with Spark -------------------------------------------------------------------------------------


def test_a_task_that_fails_is_run_again(place, short_pauses, caplog):
    place.send("ok-0", "fail1-1", "ok-2")
    consumer = place.consumer(Concurrent(place.journal)).subscribe(place.topic)
    consumer.runner.fail_next += [
        RuntimeError("executor lost"),
        RuntimeError("executor lost\n\tat java\n" + "x" * 9_000),
    ]
    with consumer:
        eventually(lambda: len(place.journal.lines()) == 4)
        assert consumer.tasks.failed == 2
        eventually(lambda: place.committed() == {0: 3})
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(told) == 2
    assert all("executor lost" in text and "\n" not in text and len(text) < 2_000 for text in told)
    assert "at java" not in told[0] + told[1]


def test_a_session_that_is_gone_ends_run(place, short_pauses):
    place.send("ok-0")
    consumer = place.consumer(Concurrent(place.journal)).subscribe(place.topic)
    consumer.runner.fail_next.append(RuntimeError("no session"))
    consumer.runner.dead = "its Spark session has been stopped"
    with pytest.raises(ClientStateError, match="had to end: its Spark session has been stopped"):
        consumer.run()
    assert consumer.state is ClientState.SHUTDOWN_ALREADY
    assert consumer.failure == "its Spark session has been stopped"
    assert place.committed() == {0: 0}


@pytest.mark.slow(18, "waits as long as a busy broker makes a client wait")
def test_a_broker_that_is_busy_is_asked_again(place, short_pauses):
    place.send("ok-0", "ok-1")
    with place.broker.faults.answer("PULL_MESSAGE", ResponseCode.SYSTEM_BUSY, times=6, topic=place.topic):
        consumer = place.consume(Concurrent(place.journal))
        eventually(lambda: place.committed() == {0: 2})
    assert consumer.tasks.failed == 0
    assert sorted(place.journal.bodies()) == ["ok-0", "ok-1"]


def test_offsets_that_cannot_be_stored_are_stored_later(place):
    place.send("ok-0")
    with place.broker.faults.answer("UPDATE_CONSUMER_OFFSET", ResponseCode.SYSTEM_BUSY, times=None) as refused:
        consumer = place.consume(Concurrent(place.journal))
        refused.wait_for(1)
        place.send("ok-1")
        eventually(lambda: len(place.journal.lines()) == 2)
    consumer.shutdown()
    assert place.committed() == {0: 2}


def test_as_many_tasks_as_there_are_slots(place, monkeypatch):
    consumer = place.consume(Concurrent(place.journal))
    assert consumer.status().threads == 2
    monkeypatch.setattr(consumer.runner, "slots", lambda: 5)
    consumer.core.io.run(consumer.core.tasks.watch())
    assert consumer.status().threads == 5
    monkeypatch.setattr(consumer.runner, "slots", lambda: 1 / 0)
    consumer.core.io.run(consumer.core.tasks.watch())
    assert consumer.status().threads == 5
    consumer.shutdown()
    with place.consumer(Concurrent(place.journal), tasks=3).subscribe(place.topic) as told:
        told.core.io.run(told.core.tasks.watch())
        assert told.status().threads == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_ends_with_a_signal(place, number):
    place.send("ok-0")
    consumer = place.consumer(Concurrent(place.journal)).subscribe(place.topic)
    before = signal.getsignal(number)

    def interrupt() -> None:
        eventually(lambda: place.journal.bodies() == ["ok-0"])
        os.kill(os.getpid(), number)

    interrupts = threading.Thread(target=interrupt)
    interrupts.start()
    consumer.run()
    interrupts.join()
    assert consumer.state is ClientState.SHUTDOWN_ALREADY
    assert place.committed() == {0: 1}
    assert signal.getsignal(number) is before


# --- the end --------------------------------------------------------------------------------------------------------


def test_a_shutdown_lets_running_tasks_end(place, let_go):
    place.send("ok-0")
    consumer = place.consume(hang)
    ENTERED.wait(30)
    ends = threading.Thread(target=consumer.shutdown, args=(30,))
    ends.start()
    eventually(lambda: consumer.state is ClientState.SHUTDOWN_ALREADY)
    let_go.set()
    ends.join()
    assert place.committed() == {0: 1}
    assert not consumer.runner.cancelled


def test_a_shutdown_has_an_end_and_what_is_unfinished_comes_again(place, let_go, monkeypatch):
    monkeypatch.setattr("rocketstream.spark.listening.dispatching._CANCEL_TIMEOUT", 0.1)
    place.send("ok-0")
    consumer = place.consume(hang)
    ENTERED.wait(30)
    consumer.shutdown(timeout=0.1)
    assert consumer.runner.cancelled
    assert place.committed() == {0: 0}
    let_go.set()
    with place.consumer(Concurrent(place.journal)).subscribe(place.topic):
        eventually(lambda: place.journal.bodies() == ["ok-0"])


def test_suspend_and_resume(place):
    consumer = place.consume(Concurrent(place.journal), broker_suspend_max_time=0.05)
    consumer.suspend()
    eventually(lambda: all("suspended" in (one.waits_for or "") for one in consumer.status().queues))
    place.send("ok-0")
    assert place.journal.lines() == []
    consumer.resume()
    eventually(lambda: place.journal.bodies() == ["ok-0"])


def test_a_topic_can_be_added_and_taken_away_while_it_runs(place):
    consumer = place.consume(Concurrent(place.journal))
    other = f"{place.topic}-other"
    place.create_topic(1, other)
    place.send("ok-0", topic=other)
    consumer.subscribe(other)
    eventually(lambda: place.journal.bodies() == ["ok-0"])
    consumer.unsubscribe(other)
    eventually(lambda: {queue.topic for queue in consumer.assignment} == {place.topic})


@pytest.mark.behaviour("CON-03")
def test_what_a_task_says_of_a_queue_that_was_lost_is_ignored(place, let_go):
    place.send("ok-0")
    consumer = place.consume(hang)
    ENTERED.wait(30)
    consumer.unsubscribe(place.topic)
    eventually(lambda: not consumer.assignment)
    let_go.set()
    eventually(lambda: consumer.tasks.ended == 1)
    consumer.shutdown()
    assert place.committed() == {0: 0}, "whoever has it now decides"


def hang_in_order(messages: Any, context: Any) -> OrderlyResult:
    hang(messages, context)
    return OrderlyResult.SUCCESS


@pytest.mark.behaviour("ORD-03")
def test_an_ordered_queue_is_unlocked_when_its_task_has_ended(place, let_go):
    queue = place.client.queue(place.topic)
    place.send("ok-0")
    consumer = place.consume(hang_in_order, orderly=True)
    ENTERED.wait(30)
    consumer.unsubscribe(place.topic)
    eventually(lambda: not consumer.assignment)
    assert try_to_lock(place.client, place.group, queue) == set()
    let_go.set()
    eventually(lambda: try_to_lock(place.client, place.group, queue) == {queue})
    assert place.committed() == {0: 1}, "the next owner begins behind it"


def test_a_queue_in_a_long_task_is_not_taken_for_forgotten(place, let_go):
    """PULL-03: one that was not pulled for two minutes is dropped, and would be consumed twice."""
    place.send("ok-0")
    consumer = place.consume(hang)
    ENTERED.wait(30)

    async def long_ago() -> list[bool]:
        core = consumer.core
        now = core.clock.monotonic()
        (request,) = (one for queue, one in core.rebalancer.requests.items() if queue.topic == place.topic)
        request.process_queue.last_pull_at = now - 600
        before = request.process_queue.pull_expired(now)
        await core.tasks.watch()
        return [before, request.process_queue.pull_expired(now)]

    assert consumer.core.io.run(long_ago()) == [True, False]
    let_go.set()
    eventually(lambda: place.committed() == {0: 1})


# --- resets and the checkpoint --------------------------------------------------------------------------------------


def test_a_reset_while_it_runs(place, short_pauses):
    place.send("ok-0", "ok-1")
    place.consume(Concurrent(place.journal), broker_suspend_max_time=0.05, checkpoint=place.directory / "c")
    eventually(lambda: place.committed() == {0: 2})
    place.admin.reset_offset(place.group, place.topic, "earliest")
    eventually(lambda: sorted(place.journal.bodies()) == ["ok-0", "ok-0", "ok-1", "ok-1"])
    eventually(lambda: place.committed() == {0: 2})


def reset_before_the_next_task(place: Place, consumer: InProcessConsumer) -> None:
    """A broker tells of a reset once, to whoever pulls next: here that is a task."""
    run = consumer.runner.run
    resets = iter([True])

    def reset_first(shipped: bytes, plan: Any) -> Any:
        if next(resets, None):
            place.admin.reset_offset(place.group, place.topic, "earliest")
        return run(shipped, plan)

    consumer.runner.run = reset_first  # type: ignore[method-assign]


def test_a_reset_that_a_task_is_told_of(place, short_pauses):
    place.send("ok-0", "ok-1")
    consumer = place.consume(Concurrent(place.journal), checkpoint=place.directory / "c")
    eventually(lambda: place.committed() == {0: 2})
    reset_before_the_next_task(place, consumer)
    place.send("ok-2")
    eventually(lambda: sorted(place.journal.bodies()) == ["ok-0", "ok-0", "ok-1", "ok-1", "ok-2"])
    eventually(lambda: place.committed() == {0: 3})


def test_what_a_task_had_finished_is_not_stored_over_a_reset(place):
    place.send("ok-0", "ok-1")
    consumer = place.consume(Concurrent(place.journal))
    eventually(lambda: place.committed() == {0: 2})
    reset_before_the_next_task(place, consumer)
    place.send("ok-2")
    eventually(lambda: any(queue.dropped for queue in consumer.status().queues))  # for ten seconds
    assert place.committed() == {0: 0}
    consumer.shutdown()
    assert place.committed() == {0: 0}


def set_offset(place: Place, offset: int) -> None:
    """Change the group's offset behind its back, as a broker does that has lost its last writes."""
    offsets = BrokerOffsets(place.client.instance, place.group)
    offsets.update(place.client.queue(place.topic), offset, increase_only=False)
    place.client.run(offsets.persist(place.client.queue(place.topic)))


def test_a_restart_never_goes_behind_the_checkpoint(place, caplog):
    directory = place.directory / "checkpoint"
    place.send("ok-0", "ok-1", "ok-2")
    with place.consumer(Concurrent(place.journal), checkpoint=directory).subscribe(place.topic):
        eventually(lambda: place.committed() == {0: 3})
    set_offset(place, 1)
    place.send("ok-3")
    with place.consumer(Concurrent(place.journal), checkpoint=directory).subscribe(place.topic):
        assert place.committed() == {0: 3}, "the broker is told at once"
        eventually(lambda: place.committed() == {0: 4})
    assert sorted(place.journal.bodies()) == ["ok-0", "ok-1", "ok-2", "ok-3"]
    (told,) = (one.getMessage() for one in caplog.records if "the larger" in one.getMessage())
    assert str(directory) in told
    assert "has offset 3, the broker 1" in told


def test_a_restart_never_goes_behind_the_broker(place):
    directory = place.directory / "checkpoint"
    place.send("ok-0", "ok-1", "ok-2")
    with place.consumer(Concurrent(place.journal), checkpoint=directory).subscribe(place.topic):
        eventually(lambda: place.committed() == {0: 3})
    place.send("ok-3", "ok-4")
    set_offset(place, 4)
    with place.consumer(Concurrent(place.journal), checkpoint=directory).subscribe(place.topic):
        eventually(lambda: place.committed() == {0: 5})
    assert sorted(place.journal.bodies()) == ["ok-0", "ok-1", "ok-2", "ok-4"]


def test_a_checkpoint_belongs_to_its_group(place):
    directory = place.directory / "checkpoint"
    place.send("ok-0")
    for group in ("group-a", "group-b"):
        with place.consumer(Concurrent(place.journal), group=group, checkpoint=directory).subscribe(place.topic):
            eventually(lambda group=group: place.committed(group=group) == {0: 1})
    assert place.journal.bodies() == ["ok-0", "ok-0"]
    assert sorted(path.name for path in directory.iterdir()) == ["group-a", "group-b"]


def test_a_damaged_checkpoint_is_an_error(place):
    directory = place.directory / "checkpoint" / place.group
    directory.mkdir(parents=True)
    (directory / "offsets.json").write_text("{")
    consumer = place.consumer(Concurrent(place.journal), checkpoint=directory.parent).subscribe(place.topic)
    with pytest.raises(OffsetStoreError, match="cannot be read"):
        consumer.start()
    assert consumer.state is ClientState.CREATE_JUST


def test_a_checkpoint_that_cannot_be_written_is_an_error_at_the_start(place):
    (place.directory / "checkpoint").write_text("a file")
    nowhere = place.directory / "checkpoint" / "below"
    consumer = place.consumer(Concurrent(place.journal), checkpoint=nowhere).subscribe(place.topic)
    with pytest.raises(OffsetStoreError, match=str(nowhere)):
        consumer.start()


def test_the_retry_topic_is_part_of_it_after_a_restart(place):
    place.send("fail1-0")
    with place.consumer(Concurrent(place.journal)).subscribe(place.topic):
        eventually(lambda: place.committed() == {0: 1})
    with place.consumer(Concurrent(place.journal)).subscribe(place.topic):
        eventually(lambda: [line.times for line in place.journal.lines()] == [0, 1])
        eventually(lambda: sum(place.committed(retry_topic(place.group)).values()) == 1)


# --- what operators are told ----------------------------------------------------------------------------------------


def test_operators_see_it_like_any_member(place):
    consumer = place.consume(Concurrent(place.journal))
    place.send("ok-0", "ok-1")
    eventually(lambda: len(place.journal.bodies()) == 2)
    queue = place.client.queue(place.topic)
    eventually(lambda: consumer.core.offsets.read_memory(queue) == 2)
    member = consumer.core.client_id
    header = GetConsumerRunningInfoRequestHeader(consumer_group=place.group, client_id=member)
    asked = place.client.instance.ask(place.broker.broker_address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    info = ConsumerRunningInfo.decode(place.client.run(asked).body)
    assert info.mq_table[queue].commit_offset == 2
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.status_table[place.topic].consume_failed_msgs == 0


def test_an_operator_cannot_give_a_message_to_executors(place):
    consumer = place.consume(Concurrent(place.journal))
    place.send("ok-0")
    eventually(lambda: len(place.journal.bodies()) == 1)
    stored = place.admin.peek(place.topic, 1)[0]
    header = ConsumeMessageDirectlyRequestHeader(
        consumer_group=place.group, client_id=consumer.core.client_id, msg_id=stored.offset_message_id
    )
    asked = place.client.instance.ask(place.broker.broker_address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    with pytest.raises(BrokerError, match="runs its listener on Spark's executors"):
        place.client.run(asked)
    assert place.journal.bodies() == ["ok-0"]
