"""Remoting on the real brokers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from rocketstream.errors import BrokerError, ConnectError, RequestTimeoutError
from rocketstream.remoting.hooks import RpcHook
from rocketstream.wire.bodies.route import ClusterInfo
from rocketstream.wire.codes import PullStatus, RequestCode, ResponseCode, SerializeType
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.offsets import GetMaxOffsetRequestHeader, OffsetResponseHeader
from rocketstream.wire.subscription import java_string_hash


@pytest.mark.behaviour("REM-01", "REM-07")
def test_many_requests_over_one_connection_each_get_their_own_answer(client, broker, unique_topic):
    client.create_topic(broker, unique_topic, queues=4)
    for queue_id in range(4):
        for _ in range(queue_id):
            client.send(unique_topic, b"x", queue_id=queue_id)
    remoting = client.instance.remoting

    async def max_offset(queue_id: int) -> int:
        header = GetMaxOffsetRequestHeader(topic=unique_topic, queue_id=queue_id)
        answer = await client.instance.ask(broker, RequestCode.GET_MAX_OFFSET, header)
        return OffsetResponseHeader.from_fields(answer.fields).offset

    async def ask_many() -> list[int]:
        return await asyncio.gather(*(max_offset(number % 4) for number in range(400)))

    assert client.run(ask_many()) == [number % 4 for number in range(400)]
    assert sorted(remoting.connections) == sorted([broker, *client.instance.name_servers.addresses])
    assert remoting.pending == 0
    assert remoting.permits_in_use == (0, 0)


@pytest.mark.behaviour("REM-03")
def test_a_broker_that_holds_a_pull_longer_than_our_time_out(client, topic, unique_group):
    client.send(topic, b"x")
    with pytest.raises(RequestTimeoutError, match=r"no answer to PULL_MESSAGE within 0\.3 s"):
        client.pull(unique_group, topic, 1, timeout=0.3, sys_flag=6, suspend_timeout_millis=15_000)
    assert client.instance.remoting.pending == 0


@pytest.mark.behaviour("REM-09")
def test_errors_are_told_apart(client, broker, topic):
    with pytest.raises(BrokerError) as caught:
        client.ask(broker, 29_999)
    assert caught.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "29999" in (caught.value.remark or "")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens; let go of, anybody might
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectError, match=nobody):
            client.ask(nobody, RequestCode.HEART_BEAT)


@pytest.mark.behaviour("REM-10")
def test_the_four_statuses_of_a_pull_and_an_error(client, topic, unique_group):
    # The first message of a queue makes the broker build it; what a pull says of an empty one differs by version.
    client.send(topic, b"1", {"TAGS": "a"})
    client.send(topic, b"2", {"TAGS": "a"})
    found = client.pull(unique_group, topic, 0)
    assert found.status is PullStatus.FOUND
    assert (found.next_offset, found.min_offset, found.max_offset) == (2, 0, 2)
    nothing_new = client.pull(unique_group, topic, 2)
    assert (nothing_new.status, nothing_new.next_offset, nothing_new.body) == (PullStatus.NO_NEW_MSG, 2, b"")
    no_match = client.pull(unique_group, topic, 0, subscription="b")
    assert no_match.status is PullStatus.NO_MATCHED_MSG
    assert no_match.next_offset == 2
    moved = client.pull(unique_group, topic, 1000)
    assert moved.status is PullStatus.OFFSET_ILLEGAL
    assert moved.next_offset == 2
    with pytest.raises(BrokerError) as caught:
        client.pull(unique_group, topic, 0, queue_id=99)
    assert caught.value.remark
    assert java_string_hash("a") != java_string_hash("b")


@pytest.mark.behaviour("REM-14")
@pytest.mark.parametrize("encoding", [SerializeType.JSON, SerializeType.ROCKETMQ])
def test_both_header_encodings_are_understood(connect, broker, unique_topic, encoding, rocketmq_cluster):
    client = connect({"serialize_type": encoding})
    client.create_topic(broker, unique_topic)
    client.send(unique_topic, b"body", {"KEYS": "k ü 中文"})
    answer = client.invoke(broker, request(RequestCode.PULL_MESSAGE, client.pull_header("g", unique_topic, 0)))
    assert answer.code == ResponseCode.SUCCESS
    # 4.9 answers in the encoding it was asked in, 5.x in its own.
    assert answer.serialize_type == (encoding if rocketmq_cluster.version == "4.9.7" else SerializeType.JSON)
    (message,) = client.pull_all("g", unique_topic)
    assert message.keys == "k ü 中文"


@pytest.mark.behaviour("REM-08")
def test_hooks_see_what_goes_to_and_comes_from_a_broker(connect, broker):
    seen: list[tuple[str, str, str]] = []

    class Watch(RpcHook):
        def before_request(self, address: str, request: Command) -> None:
            request.fields["watched"] = "yes"
            seen.append(("before", address, request.name))

        def after_response(self, address: str, request: Command, response: Command) -> None:
            seen.append(("after", address, response.name))

    client = connect(rpc_hooks=(Watch(),))
    client.ask(broker, RequestCode.GET_BROKER_CONFIG)
    assert [entry for entry in seen if entry[1] == broker] == [
        ("before", broker, "GET_BROKER_CONFIG"),
        ("after", broker, "SUCCESS"),
    ]


def test_the_cluster_as_the_name_server_sees_it(client, broker):
    answer = client.ask(client.instance.name_servers.addresses[0], RequestCode.GET_BROKER_CLUSTER_INFO)
    info = ClusterInfo.decode(answer.body)
    (data,) = info.broker_addr_table.values()
    assert data.broker_addrs == {0: broker}
    assert info.cluster_addr_table == {data.cluster: frozenset({data.broker_name})}
