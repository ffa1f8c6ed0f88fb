"""Everything that a topic's brokers have stored, read with plain pulls: all queues at once, checked for gaps."""

from __future__ import annotations

import asyncio
import uuid

from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.remoting.replies import read_pull_result
from rocketstream.wire.codes import PullStatus, RequestCode
from rocketstream.wire.command import request
from rocketstream.wire.headers.pull import PullMessageRequestHeader
from rocketstream.wire.record_decoder import decode_records
from tests.bare_client import BareClient

PULL = RequestCode.PULL_MESSAGE


def stored(client: BareClient, topic: str) -> list[ReceivedMessage]:
    """All messages of a topic, queue by queue."""
    return client.run(_stored(client.instance, topic))


async def _stored(instance: ClientInstance, topic: str) -> list[ReceivedMessage]:
    route = await instance.routes.refresh(topic)
    group = f"reader-{uuid.uuid4().hex}"
    queues = await asyncio.gather(*(_stored_in(instance, group, queue) for queue in route.read_queues))
    return [message for messages in queues for message in messages]


async def _stored_in(instance: ClientInstance, group: str, queue: MessageQueue) -> list[ReceivedMessage]:
    broker = instance.brokers.master(queue.broker_name)
    assert broker is not None
    fields = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=0,
        max_msg_nums=1024,  # a broker gives less: 32 of those in memory unless told otherwise
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=1,
        expression_type="TAG",
    ).to_fields()
    messages: list[ReceivedMessage] = []
    offset = 0
    while True:
        fields["queueOffset"] = str(offset)
        response = await instance.remoting.invoke(broker.address, request(PULL, fields), 30.0)
        result = read_pull_result(broker.address, PULL, response)
        if result.status is not PullStatus.FOUND:
            # A restarted broker may still be dispatching what it has stored.
            assert offset == result.max_offset, f"{queue}: {result.status} at {offset} of {result.max_offset}"
            return messages
        decoded = decode_records(result.body, queue=queue, min_offset=result.min_offset, max_offset=result.max_offset)
        assert not decoded.corrupt
        assert [message.queue_offset for message in decoded.messages] == list(range(offset, result.next_offset))
        messages += decoded.messages
        offset = result.next_offset
