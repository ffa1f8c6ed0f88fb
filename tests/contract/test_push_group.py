"""Members of a group on the real brokers: they share, hand over at once, and finish what they have begun.

The timer of rebalance is as good as off where one might mistake it for a notification.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rocketstream import ConsumeResult, Message, MessageModel, Producer, PushConsumer
from rocketstream.cluster.client import ClientState
from rocketstream.cluster.names import retry_topic
from rocketstream.errors import ClientStateError
from rocketstream.message import MessageQueue
from rocketstream.testing.cluster_proxy import ClusterProxy
from rocketstream.testing.fault_proxy import FaultProxy
from rocketstream.testing.recording import Direction
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.command import Command
from tests.bare_client import eventually
from tests.contract.consuming import Heard, committed, new_consumer, persist, send

QUEUES = 4
NEVER = 3600.0
LOOK, WRITE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET


@pytest.fixture
def orders(client, broker, unique_topic) -> str:
    """A topic with four queues."""
    client.create_topic(broker, unique_topic, queues=QUEUES)
    return unique_topic


def send_to_all(producer: Producer, client, topic: str, *bodies: bytes) -> None:
    for queue_id in range(QUEUES):
        send(producer, client.queue(topic, queue_id), *(b"%s-%d" % (body, queue_id) for body in bodies))


def everywhere(*bodies: bytes) -> list[bytes]:
    return sorted(b"%s-%d" % (body, queue_id) for body in bodies for queue_id in range(QUEUES))


def shares(*consumers) -> list[int]:
    return [len(consumer.assignment) for consumer in consumers]


@pytest.mark.feature("consume/groups")
def test_two_members_share_and_hand_over(consume, sender, orders, client, admin, unique_group):
    first, second = Heard(), Heard()
    one = consume(first, orders, rebalance_interval=NEVER, instance_name="one")
    assert shares(one) == [4]
    send_to_all(sender, client, orders, b"a")
    first.until(4)
    persist_all(one, admin, unique_group, orders, 1)
    two = consume(second, orders, rebalance_interval=NEVER, instance_name="two")
    eventually(lambda: shares(one, two) == [2, 2], 1500)
    assert not set(one.assignment) & set(two.assignment)
    send_to_all(sender, client, orders, b"b")
    eventually(lambda: len(first.bodies) + len(second.bodies) >= 8, 1500)
    assert sorted(first.bodies + second.bodies) == everywhere(b"a", b"b")
    assert {delivery.message.queue for delivery in second.deliveries} == set(two.assignment)
    two.shutdown()
    eventually(lambda: shares(one) == [4], 1500)
    send_to_all(sender, client, orders, b"c")
    eventually(lambda: len(first.bodies) + len(second.bodies) >= 12, 1500)
    assert sorted(first.bodies + second.bodies) == everywhere(b"a", b"b", b"c"), "nothing twice, nothing lost"
    one.shutdown()
    assert committed(admin, unique_group, orders) == dict.fromkeys(range(QUEUES), 3)


def persist_all(consumer, admin, group: str, topic: str, offset: int) -> None:
    """Who joins begins where the broker was last told; the last owner says where it was only when it loses a queue."""

    def there() -> bool:
        persist(consumer)
        return committed(admin, group, topic) == dict.fromkeys(range(QUEUES), offset)

    eventually(there)


class Gate:
    """A listener that keeps one message until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()

    def __call__(self, messages, context):
        if messages[0].body == b"slow":
            self.begun.set()
            self.open.wait(60.0)
        return ConsumeResult.SUCCESS


@pytest.mark.feature("consume/shutdown")
@pytest.mark.behaviour("REB-10")
def test_who_leaves_finishes_what_has_begun_and_the_others_go_on(
    consume, sender, topic, client, admin, unique_group, rocketmq_cluster
):
    queue, gate = client.queue(topic), Gate()
    slow, next_one = Heard(gate), Heard()
    with ClusterProxy(rocketmq_cluster.name_server_address, record=True) as proxy:
        line = proxy.broker(rocketmq_cluster.brokers[0].address)
        # By name the first gets the only queue, as long as it is there.
        leaver = consume(
            slow, topic, rebalance_interval=NEVER, name_servers=proxy.name_server_address, instance_name="1-leaver"
        )
        stayer = consume(next_one, topic, rebalance_interval=NEVER, instance_name="2-stayer")
        assert shares(leaver, stayer) == [1, 0]
        send(sender, queue, b"fast", b"slow")
        assert gate.begun.wait(60.0)
        leaving = threading.Thread(target=leaver.shutdown, args=(60.0,))
        leaving.start()
        eventually(lambda: not leaver.core.is_running)
        send(sender, queue, b"after")  # its pull may wait at the broker still, and is not for it any more
        assert leaving.is_alive(), "it waits for its listener"
        assert shares(stayer) == [0], "it has not left yet"
        gate.open.set()
        leaving.join(60.0)
        assert not leaving.is_alive()
    assert committed(admin, unique_group, topic) == {0: 2}, "what was done is stored"
    assert slow.bodies == [b"fast", b"slow"]
    codes = [frame.command.code for frame in list(line.recorded) if frame.direction == "up" and frame.command]
    assert codes[-1] == RequestCode.UNREGISTER_CLIENT
    eventually(lambda: shares(stayer) == [1], 1500)
    assert next_one.until(1) == [b"after"], "nothing that was done comes again"


@pytest.mark.feature("consume/shutdown")
@pytest.mark.behaviour("REB-10")
def test_who_leaves_does_not_wait_longer_than_told(consume, sender, topic, client, admin, unique_group):
    gate = Gate()
    stuck, next_one = Heard(gate), Heard()
    leaver = consume(stuck, topic, rebalance_interval=NEVER, instance_name="1-leaver")
    consume(next_one, topic, rebalance_interval=NEVER, instance_name="2-stayer")
    send(sender, client.queue(topic), b"slow")
    assert gate.begun.wait(60.0)
    leaver.shutdown(timeout=0.1)
    assert not gate.open.is_set()
    assert next_one.until(1) == [b"slow"], "what was not finished comes again, with somebody else"
    gate.open.set()


@pytest.mark.feature("consume/batches")
@pytest.mark.behaviour("CON-07")
def test_ack_index_says_what_has_failed(consume, sender, topic, client, admin, unique_group):
    def answer(messages, context):
        if messages[0].reconsume_times or messages[0].body == b"last":
            return ConsumeResult.SUCCESS
        context.delay_level_when_next_consume = 1  # a second
        context.ack_index = {b"a0": 1, b"b0": 99, b"c0": 3}[messages[0].body]
        return ConsumeResult.RECONSUME_LATER if messages[0].body == b"c0" else ConsumeResult.SUCCESS

    heard = Heard(answer)
    # Three pulls of four messages each, and with them three calls.
    for name in (b"a", b"b", b"c"):
        sender.send_batch([Message(topic, b"%s%d" % (name, n)) for n in range(4)])
    eventually(lambda: client.max_offset(topic) == 12)
    consumer = consume(heard, topic, consume_message_batch_max_size=4, pull_batch_size=4)
    heard.until(12 + 2 + 4)
    consumer.shutdown()
    again = sorted(delivery.body for delivery in heard.deliveries if delivery.reconsume_times == 1)
    assert again == [b"a2", b"a3", b"c0", b"c1", b"c2", b"c3"]
    assert {len(call) for call in heard.calls if not call[0].reconsume_times} == {4}
    assert committed(admin, unique_group, topic) == {0: 12}
    # All that ever went to the retry topic is what came again.
    assert client.max_offset(retry_topic(unique_group)) == 6


@pytest.mark.feature("consume/broadcasting")
def test_broadcasting_gives_everything_to_everybody_over_restarts(consume, sender, orders, client, tmp_path):
    settings = {"model": MessageModel.BROADCASTING, "local_offset_dir": tmp_path}
    heard = {name: Heard() for name in ("one", "two")}
    members = {name: consume(heard[name], orders, instance_name=name, **settings) for name in heard}
    assert shares(*members.values()) == [4, 4]
    send_to_all(sender, client, orders, b"a")
    for listener in heard.values():
        listener.until(4)
    members["one"].shutdown()
    assert sorted(tmp_path.rglob("offsets.json")), "its offsets are in a file"
    send_to_all(sender, client, orders, b"b")
    heard["two"].until(8)
    assert len(heard["one"].bodies) == 4
    consume(heard["one"], orders, instance_name="one", **settings)
    heard["one"].until(8)
    for listener in heard.values():
        assert sorted(listener.bodies) == everywhere(b"a", b"b")


@pytest.mark.behaviour("CON-08")
def test_what_fails_in_broadcasting_is_logged_and_gone(
    consume, sender, topic, client, tmp_path, caplog, unique_group, admin
):
    def answer(messages, context):
        return ConsumeResult.RECONSUME_LATER if messages[0].body == b"bad" else ConsumeResult.SUCCESS

    heard = Heard(answer)
    with caplog.at_level(logging.WARNING, "rocketstream.consumer"):
        consumer = consume(heard, topic, model=MessageModel.BROADCASTING, local_offset_dir=tmp_path)
        send(sender, client.queue(topic), b"bad", b"good")
        heard.until_heard(b"good")
        consumer.shutdown()
    assert any("failed and is dropped" in record.message for record in caplog.records)
    assert list(tmp_path.rglob("offsets.json"))
    again = Heard()
    consume(again, topic, model=MessageModel.BROADCASTING, local_offset_dir=tmp_path)
    send(sender, client.queue(topic), b"later")
    again.until_heard(b"later")
    assert (heard.bodies, again.bodies) == ([b"bad", b"good"], [b"later"])
    client.wait_for_route(retry_topic(unique_group))
    assert client.max_offset(retry_topic(unique_group)) == 0


@pytest.mark.behaviour("START-08")
def test_a_second_consumer_of_a_group_in_one_client_is_refused(
    consume, heard, sender, topic, client, unique_group, rocketmq_cluster
):
    first = consume(heard, topic, instance_name="same")
    second = new_consumer(unique_group, rocketmq_cluster.name_server_address, heard, topic, instance_name="same")
    threads = threading.active_count()
    with pytest.raises(ClientStateError, match=f"already has a consumer of group '{unique_group}'"):
        second.start()
    assert second.state is ClientState.CREATE_JUST
    assert threading.active_count() == threads
    assert shares(first) == [1], "the first is none the worse"
    send(sender, client.queue(topic), b"x")
    heard.until(1)
    first.shutdown()
    with second:
        assert shares(second) == [1]


# --- the offset that a member leaves behind --------------------------------------------------------------------------


class LatePull:
    """A busy broker: the pull that carries this offset is kept on its way, while all else passes it.

    It goes on once the broker has answered the first request, of the codes that `end` says, that the end of the
    consumer or the loss of its queue has brought.
    """

    def __init__(self, line: FaultProxy, queue: MessageQueue, carries: int) -> None:
        self._line = line
        self._topic = queue.topic
        self._carries = str(carries)
        self._until: tuple[int, ...] = ()
        self._opaques: dict[int, int] = {}
        self.answers: list[tuple[int, str | None]] = []
        """(code, offset) of what was answered since `end`, of this topic."""
        line.on_frame = self._pass
        line.hold_frames(self._is_it)

    def end(self, *until: int) -> None:
        """What ends the wait may come from now on."""
        self._until = until

    def _is_it(self, direction: Direction, command: Command) -> bool:
        fields = command.fields
        return (
            direction == "up"
            and command.code == RequestCode.PULL_MESSAGE
            and fields.get("topic") == self._topic
            and fields.get("commitOffset") == self._carries
        )

    def _pass(self, direction: Direction, command: Command) -> Command:
        if direction == "up" and self._until and command.code in (LOOK, WRITE):
            if command.fields.get("topic") == self._topic:
                self._opaques[command.opaque] = command.code
        elif direction == "down" and command.opaque in self._opaques:
            code = self._opaques.pop(command.opaque)
            self.answers.append((code, command.fields.get("offset")))
            if code in self._until:
                self._line.release_frames()  # on its way before the client has this answer
        return command


@pytest.fixture
def proxy(rocketmq_cluster) -> Iterator[ClusterProxy]:
    with ClusterProxy(rocketmq_cluster.name_server_address) as proxy:
        yield proxy


@pytest.fixture
def three_heard(
    proxy: ClusterProxy, rocketmq_cluster: Any, consume: Any, sender: Producer, client: Any, topic: str
) -> Callable[[Heard], tuple[PushConsumer, LatePull]]:
    """A consumer that has finished three messages, while the pull that carries offset 2 is on its way."""

    def three_heard(heard: Heard) -> tuple[PushConsumer, LatePull]:
        line, queue = proxy.broker(rocketmq_cluster.brokers[0].address), client.queue(topic)
        late = LatePull(line, queue, 2)
        settings = {"persist_offset_interval": NEVER, "rebalance_interval": NEVER, "instance_name": "2"}
        consumer = consume(heard, topic, name_servers=proxy.name_server_address, **settings)
        for count in range(1, 4):
            send(sender, queue, b"%d" % count)
            eventually(lambda count=count: consumer.core.offsets.read_memory(queue) == count)
            if count == 1:
                persist(consumer)  # the first offset of a group is always written; those that follow travel with pulls
        line.wait_until(lambda stats: stats.frames_held == 1, 60.0)
        return consumer, late

    return three_heard


@pytest.mark.feature("consume/shutdown")
@pytest.mark.behaviour("REB-10", "OFF-03")
@pytest.mark.parametrize(("until", "timeout"), [((LOOK, WRITE), None), ((WRITE,), 0.0)], ids=["looked", "written"])
def test_an_end_leaves_the_last_offset(three_heard, heard, topic, admin, unique_group, until, timeout):
    consumer, late = three_heard(heard)
    late.end(*until)
    consumer.shutdown(timeout)
    assert committed(admin, unique_group, topic) == {0: 3}
    assert (LOOK, "2") in late.answers, "the late pull was handled before the last write"
    assert late.answers[-1][0] == WRITE


@pytest.mark.feature("consume/groups")
@pytest.mark.behaviour("REB-05", "OFF-03")
def test_who_loses_a_queue_leaves_the_last_offset(
    three_heard, consume, heard, sender, client, topic, admin, unique_group
):
    loser, late = three_heard(heard)
    late.end(LOOK, WRITE)
    second = Heard()
    winner = consume(second, topic, rebalance_interval=NEVER, persist_offset_interval=NEVER, instance_name="1")
    eventually(lambda: (len(loser.assignment), len(winner.assignment)) == (0, 1))
    send(sender, client.queue(topic), b"4")
    second.until_heard(b"4")
    assert second.bodies == [b"4"], "it goes on where the last owner was"
    assert heard.bodies == [b"1", b"2", b"3"]
    assert (LOOK, "2") in late.answers, "the late pull was handled before the last write"
    winner.shutdown()
    assert committed(admin, unique_group, topic) == {0: 4}
