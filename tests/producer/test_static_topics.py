"""Sending to a static topic: the queue keeps its name, the request goes to whoever leads it now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketstream.errors import BrokerError
from rocketstream.message import Message, MessageQueue
from rocketstream.wire.bodies.route import TopicQueueMappingInfo
from rocketstream.wire.codes import ResponseCode

NAME = "__syslo__global__"


def lead(name_server, broker_addresses: dict[str, str], leaders: dict[int, str], epoch: int = 1) -> None:
    """Queue id → the broker that leads it."""
    name_server.set_route("t", {name: {0: address} for name, address in broker_addresses.items()})
    mappings = {
        name: TopicQueueMappingInfo(
            topic="t",
            scope="__global__",
            total_queues=len(leaders),
            bname=name,
            epoch=epoch,
            curr_id_map={queue_id: queue_id for queue_id, leader in leaders.items() if leader == name},
        )
        for name in broker_addresses
    }
    name_server.routes["t"] = replace(name_server.routes["t"], topic_queue_mapping_by_broker=mappings)


@pytest.fixture
def brokers(a, b) -> dict[str, str]:
    return {"a": a.address, "b": b.address}


async def send(core, **choice):
    return await core.send(core.preparation.single(Message("t", b"x")), **choice)


async def test_each_queue_is_sent_to_at_its_leader(started, name_server, brokers, a, b):
    lead(name_server, brokers, {0: "a", 1: "b"})
    core = await started()
    assert await core.queues("t") == (MessageQueue("t", NAME, 0), MessageQueue("t", NAME, 1))
    for queue_id, there in ((0, a), (1, b)):
        receipt = await send(core, queue=MessageQueue("t", NAME, queue_id))
        assert receipt.queue == MessageQueue("t", NAME, queue_id), "as its user knows it"
        (command,) = there.sends
        assert (command.fields["n"], command.fields["e"]) == ("ab"[queue_id], str(queue_id))


@pytest.mark.parametrize("choice", [{}, {"sharding_key": "7"}, {"queue": MessageQueue("t", NAME, 0)}], ids=str)
async def test_a_queue_that_has_moved_is_followed_at_once(started, name_server, brokers, a, b, choice):
    lead(name_server, brokers, {0: "a"})
    core = await started(retries=0)
    await core.queues("t")
    lead(name_server, brokers, {0: "b"}, epoch=2)
    a.script.append((ResponseCode.NOT_LEADER_FOR_QUEUE, "t-0 does not exist in broker a"))
    assert (await send(core, **choice)).queue == MessageQueue("t", NAME, 0)
    assert (len(a.sends), len(b.sends)) == (1, 1)


async def test_a_queue_that_nobody_takes_is_refused_in_the_brokers_words(started, name_server, brokers, a):
    lead(name_server, brokers, {0: "a"})
    core = await started()
    no = (ResponseCode.NOT_LEADER_FOR_QUEUE, "t-0 is not mine")
    a.script.extend([no, no, no])
    with pytest.raises(BrokerError, match="t-0 is not mine"):
        await send(core)
    assert len(a.sends) == 2, "asked once more, after a look at the route"
