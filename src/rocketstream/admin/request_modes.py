"""Whether a group pulls a topic or pops it: what an operator sets at the brokers (5.x, REB-11).

The rule of this file: a mode is set on every master that has the topic, or nothing is said to be set. Members ask each
time they share out queues, so a running group follows within its rebalance interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rocketstream.admin.asking import Node
from rocketstream.admin.errors import NotFoundError
from rocketstream.admin.groups import GroupOperations
from rocketstream.admin.values import Value
from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.errors import BrokerError, ConfigurationError, UnsupportedByBrokerError
from rocketstream.wire.bodies.assignment import MessageRequestModeSerializeWrapper, SetMessageRequestModeRequestBody
from rocketstream.wire.codes import MessageRequestMode, RequestCode, ResponseCode
from rocketstream.wire.command import Command

RequestModeName: TypeAlias = Literal["POP", "PULL"]


@dataclass(frozen=True, slots=True)
class RequestMode(Value):
    """How a group gets a topic's messages from one broker."""

    group: str
    topic: str
    broker_name: str
    mode: RequestModeName
    share_queues: int
    """With POP: how many other members share a member's queues; 0: all members pop all queues."""


class RequestModeOperations(GroupOperations):
    """What an operator does with modes."""

    async def set_request_mode(self, group: str, topic: str, mode: str, *, share_queues: int = 0) -> list[RequestMode]:
        """Have a group pop a topic, or pull it again, on every master that has the topic."""
        full_group, full_topic = self.full_group(group), self.full_topic(topic)
        wanted = _mode(mode)
        if full_topic.startswith(RETRY_PREFIX):
            raise ConfigurationError(f"topic={topic!r} is a retry topic: how it is had follows from the group's topics")
        if isinstance(share_queues, bool) or not isinstance(share_queues, int) or not -1 <= share_queues <= 10_000:
            raise ConfigurationError(f"share_queues={share_queues!r} must be a number of other members; 0 is all")
        body = SetMessageRequestModeRequestBody(
            topic=full_topic, consumer_group=full_group, mode=wanted, pop_share_queue_num=share_queues
        )
        masters = await self.masters_of(full_topic)

        async def set_at(node: Node) -> RequestMode:
            await self._ask_of_mode(node, RequestCode.SET_MESSAGE_REQUEST_MODE, group, body.encode())
            return RequestMode(group, topic, node.name, wanted.value, share_queues)

        return await self.for_all(masters, set_at)

    async def request_modes(self, group: str | None = None) -> list[RequestMode]:
        """What was set so far, for all groups or for one; a topic that is not there is had as the broker's default."""
        wanted = None if group is None else self.full_group(group)

        async def ask(node: Node) -> list[RequestMode]:
            answer = await self._ask_of_mode(node, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, group)
            told = MessageRequestModeSerializeWrapper.decode(answer.body).message_request_mode_map
            return [
                RequestMode(self.short(name), self.short(topic), node.name, one.mode.value, one.pop_share_queue_num)
                for topic, groups in told.items()
                for name, one in groups.items()
                if wanted is None or name == wanted
            ]

        found = [one for modes in await self.for_all(await self.readable(), ask) for one in modes]
        return sorted(found, key=lambda one: (one.group, one.topic, one.broker_name))

    async def _ask_of_mode(self, node: Node, code: RequestCode, group: str | None, body: bytes = b"") -> Command:
        try:
            return await self.ask(node, code, body=body)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise UnsupportedByBrokerError(
                    f"broker {node.name!r} ({node.address}) does not pop: brokers before 5.0 have no request modes,"
                    " their groups pull"
                ) from None
            if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise NotFoundError(
                    f"broker {node.name!r} ({node.address}) does not know group {group!r}: create it with"
                    f" create_group({group!r}), or start a member of it first"
                ) from None
            raise


def _mode(mode: str) -> MessageRequestMode:
    try:
        return MessageRequestMode(mode.upper() if isinstance(mode, str) else mode)
    except (ValueError, AttributeError):
        raise ConfigurationError(f"mode={mode!r} must be 'POP' or 'PULL'") from None
