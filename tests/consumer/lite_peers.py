"""Lite pull consumers on the test's own loop and clock, for the scripted brokers of `peers`."""

from __future__ import annotations

from typing import Any

from rocketstream.aio.lite_pull import LitePullConsumer
from rocketstream.clock import Clock
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.lite.core import LitePullCore
from rocketstream.consumer.lite.settings import LitePullSettings
from rocketstream.consumer.start_from import StartFrom
from rocketstream.message import ReceivedMessage
from tests.consumer.peers import GROUP, TOPIC


def make_lite_core(
    name_server: str,
    clock: Clock | None = None,
    *,
    topics: dict[str, Any] | None = None,
    instances: ClientInstances | None = None,
    instance_name: str | None = None,
    **settings: Any,
) -> LitePullCore:
    """A lite pull consumer's core for the running loop, subscribed to `topics` ({topic: expression}); not started."""
    settings = {"start_from": StartFrom.FIRST, **settings}
    core = LitePullCore(
        ClientSettings(name_servers=(name_server,)),
        LitePullSettings(group=GROUP, **settings),
        instance_name=instance_name,
        instances=instances or ClientInstances(clock),
    )
    for topic, expression in ({TOPIC: "*"} if topics is None else topics).items():
        core.subscribing.before_start(topic, expression)
    return core


def face_of(core: LitePullCore) -> LitePullConsumer:
    """The face of a core that runs on the test's loop: only polls and loops work, which never go to the I/O thread."""
    face: LitePullConsumer = object.__new__(LitePullConsumer)
    face._core, face._settings = core, core.lite
    return face


async def poll(core: LitePullCore, timeout: float = 10.0) -> list[ReceivedMessage]:
    """What `poll` gives, and that it was settled."""
    messages = await face_of(core).poll(timeout)
    core.polls.settle()
    return messages


def offsets(messages: list[ReceivedMessage]) -> list[int]:
    """Where they are in their queue."""
    return [message.queue_offset for message in messages]
