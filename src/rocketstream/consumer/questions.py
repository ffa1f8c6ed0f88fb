"""What operators ask consumers through the brokers: how it goes, where it stands, and to take one message now.

The rule of this file: a question never waits for another. It arrives on a processor's thread and goes straight to the
I/O thread, where the state is; what a listener is asked to do runs on threads of its own (`direct`), and the broker is
answered when it ends. Any kind of consumer answers by joining: all that is asked of it is `Answering`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, Protocol

from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.consumer.running_info import stack_dump
from rocketstream.errors import RocketStreamError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.bodies.offsets import GetConsumerStatusBody
from rocketstream.wire.bodies.running_info import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_TYPE,
    PROP_NAMESERVER_ADDR,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
)
from rocketstream.wire.codes import ConsumeType, RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.group import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from rocketstream.wire.record_decoder import decode_record

log = logging.getLogger("rocketstream.consumer")

# What `wire.command.PROTOCOL_VERSION` stands for.
CLIENT_VERSION: Final = "V5_5_0"


class Answering(Protocol):
    """A consumer that answers operators. Everything is called on the I/O thread."""

    @property
    def group(self) -> str:
        """The group as brokers know it."""

    @property
    def consume_type(self) -> ConsumeType:
        """Whether messages are pushed to a listener or fetched."""

    async def running_info(self) -> ConsumerRunningInfo:
        """How it goes; what every consumer of the client would say the same is added by whoever asks."""

    def offsets_of(self, topic: str) -> Mapping[MessageQueue, int]:
        """The offsets of a topic in memory."""

    async def consume_directly(self, message: ReceivedMessage, broker_name: str) -> ConsumeMessageDirectlyResult | None:
        """Give one message to the listener; None: it has none. A `RocketStreamError` says why it cannot be."""


class OperatorQuestions:
    """The questions to the consumers of one client instance."""

    def __init__(self, instance: ClientInstance) -> None:
        self._members: dict[str, Answering] = {}
        self._name_servers = instance.name_servers
        self._loop = asyncio.get_running_loop()
        register = instance.remoting.register_processor
        register(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        register(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._offsets)
        register(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)

    def __repr__(self) -> str:
        return f"<OperatorQuestions to {', '.join(self._members) or 'nobody'}>"

    def join(self, member: Answering) -> None:
        """Answer for this group from now on."""
        self._members[member.group] = member

    def leave(self, member: Answering) -> None:
        """Answer no more."""
        if self._members.get(member.group) is member:
            del self._members[member.group]

    # --- on a processor's thread ------------------------------------------------------------------------------------

    def _running_info(self, address: str, command: Command) -> Future[Command]:
        wanted = GetConsumerRunningInfoRequestHeader.from_fields(command.fields)
        log.info("%s asks how group %s goes", address, wanted.consumer_group)
        # Before anything is asked of the I/O thread, so that the dump shows what it does and not how it answers.
        stacks = stack_dump() if wanted.jstack_enable else None
        return asyncio.run_coroutine_threadsafe(self._tell(command, wanted.consumer_group, stacks), self._loop)

    def _offsets(self, address: str, command: Command) -> Future[Command]:
        wanted = GetConsumerStatusRequestHeader.from_fields(command.fields)
        log.info("%s asks where group %s stands in %r", address, wanted.group, wanted.topic)
        return asyncio.run_coroutine_threadsafe(self._tell_offsets(command, wanted.group, wanted.topic), self._loop)

    def _consume_directly(self, address: str, command: Command) -> Future[Command]:
        wanted = ConsumeMessageDirectlyRequestHeader.from_fields(command.fields)
        broker_name = wanted.broker_name or ""
        message = decode_record(command.body, broker_name=broker_name)
        log.info("%s gives group %s message %s to consume now", address, wanted.consumer_group, message.message_id)
        work = self._consume(command, wanted.consumer_group, message, broker_name)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # --- on the I/O thread ------------------------------------------------------------------------------------------

    async def _tell(self, command: Command, group: str, stacks: str | None) -> Command:
        member = self._members.get(group)
        if member is None:
            return _unknown(command, group)
        info = await member.running_info()
        told = {
            **info.properties,
            PROP_NAMESERVER_ADDR: "".join(f"{one};" for one in self._name_servers.addresses),
            PROP_CONSUME_TYPE: member.consume_type.name,
            PROP_CLIENT_VERSION: CLIENT_VERSION,
        }
        body = replace(info, properties=told, jstack=stacks).encode()
        return response(command, ResponseCode.SUCCESS, body=body)

    async def _tell_offsets(self, command: Command, group: str, topic: str) -> Command:
        member = self._members.get(group)
        # As Java: a group that is not here has no offsets.
        offsets = {} if member is None else member.offsets_of(topic)
        return response(
            command,
            ResponseCode.SUCCESS,
            body=GetConsumerStatusBody(message_queue_table=offsets, consumer_table={}).encode(),
        )

    async def _consume(self, command: Command, group: str, message: ReceivedMessage, broker_name: str) -> Command:
        member = self._members.get(group)
        try:
            result = None if member is None else await member.consume_directly(message, broker_name)
        except RocketStreamError as error:
            return response(command, ResponseCode.SYSTEM_ERROR, str(error))
        if result is None:
            return _unknown(command, group)
        return response(command, ResponseCode.SUCCESS, body=result.encode())


def _unknown(command: Command, group: str) -> Command:
    return response(command, ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
