"""Giving one stored message to one running consumer, now: what its listener says to it, without waiting for a retry.

The broker reads the message and passes it on to the member, whose listener runs as always; offsets, retries and dead
letters stay as they are, whatever it says.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketstream.admin.errors import NotFoundError
from rocketstream.admin.finding import FindingOperations
from rocketstream.admin.running import RunningOperations
from rocketstream.admin.values import Value
from rocketstream.message import ReceivedMessage
from rocketstream.wire.bodies.running_info import ConsumeMessageDirectlyResult
from rocketstream.wire.codes import CMResult, RequestCode
from rocketstream.wire.headers.group import ConsumeMessageDirectlyRequestHeader

# A broker waits ten seconds for the member.
_TIMEOUT = 12.0


@dataclass(frozen=True, slots=True)
class DirectResult(Value):
    """What a listener said to a message that an operator gave it."""

    group: str
    client_id: str
    message_id: str
    result: str | None
    """CR_SUCCESS, CR_LATER, CR_THROW_EXCEPTION, CR_RETURN_NULL, CR_COMMIT or CR_ROLLBACK."""
    remark: str | None
    """What it raised, as the member tells it."""
    spent_ms: int
    orderly: bool

    @property
    def succeeded(self) -> bool:
        """Whether the message would be consumed now."""
        return self.result in (CMResult.CR_SUCCESS, CMResult.CR_COMMIT)


class DirectOperations(FindingOperations, RunningOperations):
    """What an operator tries."""

    async def consume_directly(
        self, group: str, message_id: str, topic: str | None = None, *, client_id: str | None = None
    ) -> DirectResult:
        """Give a message to a member's listener, and tell what it says; nothing is committed or sent back.

        The id is a unique id (give its topic too) or an offset id; without `client_id` any member is taken.
        """
        full = self.full_group(group)
        return await self.give_to_listener(full, await self.message(message_id, topic), client_id)

    async def give_to_listener(self, full_group: str, message: ReceivedMessage, client_id: str | None) -> DirectResult:
        """The same with a message that was found."""
        group = self.short(full_group)
        members = await self._nodes_by_client(full_group)
        if not members:
            raise NotFoundError(f"group {group!r} has no member online: nobody could take the message")
        chosen = min(members) if client_id is None else client_id
        if chosen not in members:
            raise NotFoundError(
                f"client {client_id!r} is not in group {group!r}: its members are {', '.join(sorted(members))}"
            )
        header = ConsumeMessageDirectlyRequestHeader(
            consumer_group=full_group,
            client_id=chosen,
            msg_id=message.offset_message_id,
            broker_name=message.broker_name,
            topic=self.full_topic(message.topic),
        )
        # Only the broker that has the message can pass it on.
        node = next((node for node in await self.readable() if node.name == message.broker_name), members[chosen])
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answer = await self.instance.ask(node.address, code, header, timeout=max(_TIMEOUT, self.settings.api_timeout))
        told = ConsumeMessageDirectlyResult.decode(answer.body)
        result = None if told.consume_result is None else told.consume_result.value
        return DirectResult(group, chosen, message.message_id, result, told.remark, told.spent_time_mills, told.order)
