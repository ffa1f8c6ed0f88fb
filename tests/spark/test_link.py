from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rocketstream import AdminClient, Credentials, MessageQueue
from rocketstream.consumer.expressions import Sql
from rocketstream.errors import BrokerError, ConfigurationError, NameServerError, TopicRouteNotFoundError
from rocketstream.spark.errors import OutageError
from rocketstream.spark.link import Link, LinkSettings, link
from rocketstream.spark.pull_settings import PullSettings
from rocketstream.testing import EmbeddedCluster
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.bare_client import eventually
from tests.spark.filled import FilledTopic

Filled = Callable[..., FilledTopic]
Linked = Callable[..., Link]


# --- settings and the one link of a process ---------------------------------------------------------------------------


def test_settings_travel_and_keep_their_secret() -> None:
    settings = LinkSettings(("a:1",), "me", "hunter2", True, "dev")
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert hash(settings) == hash(LinkSettings(("a:1",), "me", "hunter2", True, "dev"))
    assert "hunter2" not in repr(settings)
    made = settings.client_settings()
    assert made.credentials is not None
    assert made.credentials.secret_key == "hunter2"
    assert made.remoting.tls is True


def test_a_process_has_one_link_for_the_same_settings() -> None:
    with EmbeddedCluster() as cluster:
        settings = LinkSettings((cluster.name_server_address,))
        first = link(settings)
        try:
            assert link(LinkSettings((cluster.name_server_address,))) is first
            assert link(LinkSettings((cluster.name_server_address,), namespace="dev")) is not first
        finally:
            link(LinkSettings((cluster.name_server_address,), namespace="dev")).close()
            first.close()
        again = link(settings)
        assert again is not first
        again.close()


def test_a_forked_process_has_a_link_of_its_own() -> None:
    with EmbeddedCluster() as cluster:
        settings = LinkSettings((cluster.name_server_address,))
        parent = link(settings)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = 0 if link(settings) is not parent and link(settings).topics("none") == [] else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert link(settings) is parent
        parent.close()


# --- what brokers know ------------------------------------------------------------------------------------------------


def test_limits_of_queues(filled: Filled, linked: Linked) -> None:
    topic = filled(queues=6)
    topic.put(0, 5)
    topic.put(3, 11)
    queues = linked().queues([topic.topic])
    assert [queue.queue_id for queue in queues] == list(range(6))
    one = linked()
    assert one.min_offsets(queues) == dict.fromkeys(queues, 0)
    ends = {0: 5, 3: 11}
    assert one.max_offsets(queues) == {queue: ends.get(queue.queue_id, 0) for queue in queues}
    assert one.limits(queues[:2]) == ({queues[0]: 0, queues[1]: 0}, {queues[0]: 5, queues[1]: 0})


def test_an_offset_by_time_is_exact(filled: Filled, linked: Linked) -> None:
    topic, client = filled(queues=2), linked()
    queue = topic.queue(0)
    stored: list[int] = []
    for _ in range(6):
        topic.put(0, 1)
        stored.append(stored_at(client, queue, len(stored)))
    for wanted in [0, *stored, stored[2] - 1, stored[2] + 1, stored[-1] + 1, stored[-1] + 3_600_000]:
        expected = next((offset for offset, moment in enumerate(stored) if moment >= wanted), len(stored))
        assert client.offsets_at([queue], wanted) == {queue: expected}, f"at {wanted} of {stored}"
    empty = topic.queue(1)
    assert client.offsets_at([empty], stored[2]) == {empty: 0}


def stored_at(client: Link, queue: MessageQueue, offset: int) -> int:
    from rocketstream.spark.pulling import read_ranges
    from rocketstream.spark.ranges import QueueRange

    (batch,) = read_ranges(client, [QueueRange(queue, offset, offset + 1)], PullSettings(), ["store_timestamp"])
    moment = batch.column(0)[0].value
    return int(moment) // 1000


def test_the_offsets_of_a_group(filled: Filled, linked: Linked, unique_group: str) -> None:
    topic, client = filled(queues=3), linked()
    queues = client.queues([topic.topic])
    # 4.x says 0 of a group that never was in a young queue, where a group would begin.
    assert set(client.committed(unique_group, queues).values()) in ({None}, {0})
    client.commit(unique_group, {queues[0]: 7, queues[2]: 0})
    found = client.committed(unique_group, queues)
    assert (found[queues[0]], found[queues[1]] or 0, found[queues[2]]) == (7, 0, 0)


def test_the_first_offset_of_a_group_goes_alone(
    linked: Linked, filled: Filled, unique_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that it gets at the same time, a broker that has none yet keeps one."""
    client = linked()
    queues = client.queues([filled(queues=4).topic])
    ask, steps = client.instance.ask, []

    async def watched(address: str, code: RequestCode, *arguments: Any, **settings: Any) -> Any:
        if code is not RequestCode.UPDATE_CONSUMER_OFFSET:
            return await ask(address, code, *arguments, **settings)
        steps.append("sent")
        answer = await ask(address, code, *arguments, **settings)
        steps.append("answered")
        return answer

    with AdminClient(client.settings.name_servers) as admin:
        admin.create_group(unique_group)
    monkeypatch.setattr(client.instance, "ask", watched)
    client.commit(unique_group, dict.fromkeys(queues, 2))
    assert steps[:5] == ["sent", "answered", "sent", "sent", "sent"]
    assert client.committed(unique_group, queues) == dict.fromkeys(queues, 2)


def test_topics_by_a_pattern(filled: Filled, linked: Linked, unique_topic: str) -> None:
    names = sorted(f"{unique_topic}-{part}" for part in ("a", "b", "b2"))
    for name in names:
        filled(queues=1, topic=name)
    assert linked().topics(f"{unique_topic}-b.*") == names[1:]
    found = linked().topics(".*")
    assert set(names) <= set(found)
    own = (
        "%RETRY%",
        "%DLQ%",
        "SCHEDULE_",
        "RMQ_SYS",
        "rmq_sys_",
        "TBW102",
        "broker-a",
        "DefaultCluster",
        "OFFSET_MOVED",
    )
    assert not [name for name in found if name.startswith(own)]


def test_a_namespace_is_around_topics_and_groups(filled: Filled, linked: Linked, unique_group: str) -> None:
    topic = filled(queues=1, namespace="dev")
    client = linked(namespace="dev")
    (queue,) = client.queues([topic.topic])
    assert queue.topic == f"dev%{topic.topic}"
    assert client.topics(f"{topic.topic}") == [topic.topic]
    client.commit(unique_group, {queue: 3})
    assert linked().committed(f"dev%{unique_group}", [queue]) == {queue: 3}


def test_a_condition_that_a_broker_does_not_take_is_said(filled: Filled, linked: Linked) -> None:
    topic, client = filled(queues=1), linked()
    client.queues([topic.topic])
    client.check_filter(PullSettings(expression=Sql("amount > 5")).subscription(topic.topic), "TOOLS_CONSUMER")
    wanted = PullSettings(expression=Sql("amount >")).subscription(topic.topic)
    with pytest.raises(ConfigurationError, match="brokers do not take sql='amount >': ") as caught:
        client.check_filter(wanted, "TOOLS_CONSUMER")
    assert "\n" not in str(caught.value)


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.fixture
def own_cluster() -> Any:
    with EmbeddedCluster() as cluster:
        yield cluster


def own_link(cluster: EmbeddedCluster, outage: float = 60.0) -> Link:
    return Link(LinkSettings((cluster.name_server_address,)), outage=outage)


def test_a_topic_that_is_not_there_is_an_error_at_once(own_cluster: EmbeddedCluster) -> None:
    client = own_link(own_cluster)
    with pytest.raises(TopicRouteNotFoundError, match="topic 'nowhere' has no route"):
        client.queues(["nowhere"])
    assert client.queues(["nowhere"], all_must_exist=False) == []
    client.close()


def test_a_name_server_that_is_not_there_is_an_error_at_once() -> None:
    client = Link(LinkSettings(("127.0.0.1:1",)))
    with pytest.raises(NameServerError, match=r"127\.0\.0\.1:1: cannot connect"):
        client.queues(["orders"])
    client.close()


def test_who_has_the_keys_is_let_in_and_others_are_told_why_not() -> None:
    with EmbeddedCluster(credentials=[Credentials("me", "right")]) as cluster:
        servers = (cluster.name_server_address,)
        admin = AdminClient(cluster.name_server_address, credentials=Credentials("me", "right"))
        with admin:
            admin.create_topic("orders", queues=1)
        known = Link(LinkSettings(servers, "me", "right"))
        assert list(known.max_offsets(known.queues(["orders"])).values()) == [0]
        known.close()
        for settings in (LinkSettings(servers, "me", "wrong"), LinkSettings(servers)):
            other = Link(settings)
            with pytest.raises(
                BrokerError, match=r"refused GET_MIN_OFFSET to (access key 'me'|a client without credentials)"
            ):
                other.max_offsets(other.queues(["orders"]))
            other.close()


def test_an_outage_is_ridden_out(own_cluster: EmbeddedCluster) -> None:
    topic = FilledTopic(own_cluster.name_server_address, "orders", 2)
    topic.put(1, 3)
    client = own_link(own_cluster)
    queues = client.queues(["orders"])
    own_cluster.brokers[0].kill()
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(client.max_offsets(queues)))
    asking.start()
    eventually(lambda: client.instance.remoting.connections.get(own_cluster.brokers[0].address) is None)
    assert client.queues(["orders"]) == queues, "its queues are where they were"
    own_cluster.brokers[0].start()
    asking.join(30)
    assert found == [{queues[0]: 0, queues[1]: 3}]
    client.close()
    topic.close()


def test_an_outage_that_lasts_too_long_is_an_error(own_cluster: EmbeddedCluster) -> None:
    topic = FilledTopic(own_cluster.name_server_address, "orders", 2)
    client = own_link(own_cluster, outage=0.3)
    queues = client.queues(["orders"])
    own_cluster.brokers[0].kill()
    with pytest.raises(OutageError, match=r"could not be had within \d+ s"):
        client.max_offsets(queues)
    client.close()
    topic.close()


def test_a_busy_broker_is_asked_again_and_one_that_refuses_is_not(own_cluster: EmbeddedCluster) -> None:
    topic = FilledTopic(own_cluster.name_server_address, "orders", 1)
    client = own_link(own_cluster)
    (queue,) = client.queues(["orders"])
    faults = own_cluster.brokers[0].broker.faults
    faults.answer(RequestCode.UPDATE_CONSUMER_OFFSET, ResponseCode.SYSTEM_BUSY, times=2)
    client.commit("group", {queue: 4})
    assert client.committed("group", [queue]) == {queue: 4}
    with (
        faults.answer(RequestCode.QUERY_CONSUMER_OFFSET, ResponseCode.NO_PERMISSION, "not yours", times=None),
        pytest.raises(Exception, match="not yours"),
    ):
        client.committed("group", [queue])
    client.close()
    topic.close()
