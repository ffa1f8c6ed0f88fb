"""Dead letters for tests: stored, and laid to rest by the broker itself, without a consumer and its waits."""

from __future__ import annotations

from rocketstream.message import ReceivedMessage
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.headers.send import ConsumerSendMsgBackRequestHeader
from tests.bare_client import BareClient


def bury(client: BareClient, group: str, topic: str, *bodies: bytes, **properties: str) -> list[ReceivedMessage]:
    """Store messages and have the broker put each among a group's dead letters; returns them as they were stored."""
    before = client.max_offset(topic)
    for body in bodies:
        client.send(topic, body, {"UNIQ_KEY": f"{body.hex():0>32}".upper(), **properties}, flag=7)
    stored = client.pull_all("g", topic)[before:]
    for message in stored:
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.commit_log_offset,
            group=group,
            delay_level=-1,
            max_reconsume_times=3,
            origin_topic=topic,
            origin_msg_id=message.message_id,
        )
        client.ask(client.master(topic), RequestCode.CONSUMER_SEND_MSG_BACK, header)
    return stored
