"""Which queues a client of a group gets, told by the broker, and whether it pulls or pops them.

(RocketMQ's QueryAssignmentProcessor and MessageRequestModeManager.)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.groups import Groups
from rocketstream.broker.members import Members
from rocketstream.broker.names import RETRY_PREFIX
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.state import StateFiles
from rocketstream.broker.topics import Topics
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.assignment import (
    MessageQueueAssignment,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rocketstream.wire.bodies.route import TopicRouteData
from rocketstream.wire.codes import MessageModel, MessageRequestMode, Permission, RequestCode, ResponseCode
from rocketstream.wire.command import Command, response

log = logging.getLogger("rocketstream.broker")

_STATE: Final = "request_modes"
_READ: Final = int(Permission.READ)
ANY_QUEUE: Final = -1


class Assignments:
    """Gives queues to the clients of groups, and keeps which groups pop which topics."""

    def __init__(
        self,
        *,
        state: StateFiles,
        topics: Topics,
        groups: Groups,
        members: Members,
        route: Callable[[str], Awaitable[TopicRouteData | None]],
    ) -> None:
        self._route = route
        self._state = state
        self._topics = topics
        self._groups = groups
        self._members = members
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def __repr__(self) -> str:
        return f"<Assignments {sum(map(len, self._modes.values()))} modes set>"

    def mode(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """How a group gets a topic's messages: as was set, otherwise by pulling."""
        found = self._modes.get(topic, {}).get(group)
        return SetMessageRequestModeRequestBody(topic=topic, consumer_group=group) if found is None else found

    # --- as a service --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over what was set before."""
        saved = self._state.load(_STATE)
        if saved is not None:
            wrapper = MessageRequestModeSerializeWrapper.from_json(saved)
            self._modes = {topic: dict(groups) for topic, groups in wrapper.message_request_mode_map.items()}

    def stop(self) -> None:
        """Everything was saved when it changed."""

    def handlers(self) -> Mapping[int, Handler]:
        """The requests about assignments and modes."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self._query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._all_modes,
        }

    # --- modes ---------------------------------------------------------------------------------------------------

    def _set_mode(self, connection: ClientConnection, command: Command) -> Command:
        wanted = SetMessageRequestModeRequestBody.decode(command.body)
        if wanted.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(wanted.topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{wanted.topic}] not exist")
        if self._groups.get(wanted.consumer_group) is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        self._modes.setdefault(wanted.topic, {})[wanted.consumer_group] = wanted
        self._state.save(_STATE, self._wrapper().to_json())
        return response(command, ResponseCode.SUCCESS)

    def _all_modes(self, connection: ClientConnection, command: Command) -> Command:
        return response(command, ResponseCode.SUCCESS, body=self._wrapper().encode())

    def _wrapper(self) -> MessageRequestModeSerializeWrapper:
        return MessageRequestModeSerializeWrapper(message_request_mode_map=self._modes)

    # --- queues --------------------------------------------------------------------------------------------------

    async def _query(self, connection: ClientConnection, command: Command) -> Command:
        wanted = QueryAssignmentRequestBody.decode(command.body)
        mode = self.mode(wanted.topic, wanted.consumer_group)
        queues = self._allocated(wanted, mode, _queues(wanted.topic, await self._route(wanted.topic)))
        assignments = (
            None
            if queues is None
            else tuple(MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in dict.fromkeys(queues))
        )
        answer = QueryAssignmentResponseBody(message_queue_assignments=assignments)
        return response(command, ResponseCode.SUCCESS, body=answer.encode())

    def _allocated(
        self,
        wanted: QueryAssignmentRequestBody,
        mode: SetMessageRequestModeRequestBody,
        queues: list[MessageQueue] | None,
    ) -> Iterable[MessageQueue] | None:
        """The client's queues; None when that can't be said, and the client is to keep what it has."""
        if queues is None or wanted.message_model is MessageModel.BROADCASTING:
            return queues
        group = self._members.consumers(wanted.consumer_group)
        allocate = STRATEGIES.get(wanted.strategy_name)
        if group is None or allocate is None:
            log.warning(
                "no assignment of %s for group %s: %s",
                wanted.topic,
                wanted.consumer_group,
                "it has no members" if group is None else f"strategy {wanted.strategy_name!r} is not known",
            )
            return None
        clients = sorted(group.client_ids())
        if mode.mode is MessageRequestMode.POP:
            return _shared(queues, clients, wanted.client_id, allocate, mode.pop_share_queue_num)
        return allocate(queues, clients, wanted.client_id) if queues and clients else None


def _queues(topic: str, route: TopicRouteData | None) -> list[MessageQueue] | None:
    """The queues that can be read, on all brokers that have the topic."""
    if route is None:
        return None
    return sorted(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        if data.perm & _READ
        for queue_id in range(data.read_queue_nums)
    )


Strategy = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]


def averagely(queues: Sequence[MessageQueue], clients: Sequence[str], client: str) -> list[MessageQueue]:
    """Neighbouring queues for each client, the first ones one more (AVG)."""
    if client not in clients:
        return []
    index, (share, more) = clients.index(client), divmod(len(queues), len(clients))
    start = index * share + min(index, more)
    return list(queues[start : start + share + (index < more)])


def by_circle(queues: Sequence[MessageQueue], clients: Sequence[str], client: str) -> list[MessageQueue]:
    """One queue for each client in turn (AVG_BY_CIRCLE)."""
    return list(queues[clients.index(client) :: len(clients)]) if client in clients else []


STRATEGIES: Final[dict[str, Strategy]] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def _shared(
    queues: Sequence[MessageQueue], clients: Sequence[str], client: str, allocate: Strategy, share: int
) -> list[MessageQueue] | None:
    """Popped queues are shared: by all clients, or by each with so many that follow it."""
    if share <= 0 or share >= len(clients) - 1:
        return [queue._replace(queue_id=ANY_QUEUE) for queue in queues]
    if not queues:
        return None
    if len(clients) > len(queues):
        return [queues[clients.index(client) % len(queues)]] if client in clients else []
    if client not in clients:
        return []
    first = clients.index(client)
    sharers = [clients[(first + number) % len(clients)] for number in range(share + 1)]
    return [queue for sharer in sharers for queue in allocate(queues, clients, sharer)]
