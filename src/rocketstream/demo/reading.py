"""Reading a topic to its end, without a group."""

from __future__ import annotations

from rocketstream.admin.client import AdminClient
from rocketstream.admin.moments import EARLIEST
from rocketstream.errors import TopicRouteNotFoundError
from rocketstream.message import ReceivedMessage

_PATIENCE = 5.0


def read_topic(admin: AdminClient, topic: str, expected: int) -> list[ReceivedMessage]:
    """All messages of a topic; when there are fewer than expected it waits some seconds more for them."""
    found: list[ReceivedMessage] = []
    try:
        for messages in admin.read(topic, EARLIEST, idle=_PATIENCE, step=0.5):
            found += messages
            if not messages and len(found) >= expected:
                break
    except TopicRouteNotFoundError:
        pass  # brokers make the topic of dead letters when there is the first one
    return found
