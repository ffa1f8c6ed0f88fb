"""Java's lite pull consumer and ours in one group: they share its queues and go on where the other stopped."""

from __future__ import annotations

import pytest

from rocketstream import LitePullConsumer, Message, MessageQueue, Producer, ReceivedMessage, StartFrom
from rocketstream.testing import RocketMQCluster
from tests.bare_client import eventually
from tests.interop.java_peer import JavaPeer

QUEUES = 4
EACH = 10
WAIT = 3000  # tries of `eventually`


def poll_until(puller: LitePullConsumer, count: int) -> list[ReceivedMessage]:
    polled: list[ReceivedMessage] = []
    eventually(lambda: bool(polled.extend(puller.poll(0.1)) or len(polled) >= count), WAIT)
    return polled


@pytest.mark.feature("lite-pull/share", "lite-pull/subscribe", "lite-pull/commit")
def test_members_share_a_group_with_javas(
    rocketmq_cluster: RocketMQCluster, java_peer: JavaPeer, unique_topic: str, unique_group: str
) -> None:
    (broker,) = java_peer.create_topic(unique_topic, queues=QUEUES)
    queues = [MessageQueue(unique_topic, broker, number) for number in range(QUEUES)]
    address = rocketmq_cluster.name_server_address
    with Producer(f"{unique_group}-p", address, send_timeout=10.0) as producer:

        def send(begin: int) -> list[bytes]:
            bodies = [b"%d" % (begin + n) for n in range(QUEUES * EACH)]
            for n, body in enumerate(bodies):
                producer.send(Message(unique_topic, body), queue=queues[n % QUEUES])
            return sorted(bodies)

        # Side by side: each has two queues.
        javas = java_peer.start_lite_pulling(unique_group, unique_topic, count=QUEUES * EACH // 2)
        puller = LitePullConsumer(unique_group, address, start_from=StartFrom.FIRST)
        puller.subscribe(unique_topic)
        with puller:
            eventually(lambda: len(puller.assignment) == QUEUES // 2, WAIT)
            mine = set(puller.assignment)
            sent = send(0)
            polled = poll_until(puller, QUEUES * EACH // 2)
            got_by_java = javas.result(90)
            assert {message.queue for message in polled} == mine
            assert sorted([m.body for m in polled] + [m.body for m in got_by_java]) == sent
            # Java has committed and left: ours has its queues too, and begins where it was.
            eventually(lambda: len(puller.assignment) == QUEUES, WAIT)
            assert sorted(message.body for message in poll_until(puller, len(send(1000)))) == sorted(
                b"%d" % (1000 + n) for n in range(QUEUES * EACH)
            )
        # Ours has committed and left: so does Java.
        sent = send(2000)
        assert sorted(m.body for m in java_peer.lite_pull(unique_group, unique_topic, count=QUEUES * EACH)) == sent


@pytest.mark.feature("lite-pull/assign", "lite-pull/seek")
def test_javas_messages_are_read_by_hand(
    rocketmq_cluster: RocketMQCluster, java_peer: JavaPeer, unique_topic: str, unique_group: str
) -> None:
    (broker,) = java_peer.create_topic(unique_topic, queues=1)
    java_peer.produce(unique_topic, [b"%d" % n for n in range(5)], tags="t", keys="k", properties={"a": "ü"})
    queue = MessageQueue(unique_topic, broker, 0)
    with LitePullConsumer(unique_group, rocketmq_cluster.name_server_address) as puller:
        puller.assign(puller.fetch_queues(unique_topic))
        puller.seek(queue, 3)
        ours = poll_until(puller, 2)
    javas = java_peer.lite_read(f"{unique_group}-java", unique_topic, count=2, offset=3)
    assert [(m.body, m.queue_offset, m.message_id, m.tags) for m in ours] == [
        (m.body, m.queue_offset, m.message_id, m.tags) for m in javas
    ]
    assert [message.properties["a"] for message in ours] == ["ü", "ü"]
