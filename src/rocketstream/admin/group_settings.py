"""A group's settings at the brokers: create it before its first member comes, change it, delete it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from rocketstream.admin.asking import Node
from rocketstream.admin.groups import GroupOperations
from rocketstream.admin.values import Value
from rocketstream.cluster.names import is_system_group
from rocketstream.errors import ClientStateError, ConfigurationError
from rocketstream.wire.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.headers.group import DeleteSubscriptionGroupRequestHeader

_MAX_RETRIES: Final = 1_000_000
_MAX_QUEUES: Final = 8192


@dataclass(frozen=True, slots=True)
class GroupSettings(Value):
    """A group's settings on one broker."""

    group: str
    broker_name: str
    consume_enabled: bool
    """Whether its members get messages at all."""
    broadcast_enabled: bool
    max_retries: int
    """How often a failed message comes again before it is a dead letter, unless the consumer says otherwise."""
    retry_queues: int
    """Queues of its retry topic; 0: what fails is lost."""
    orderly: bool
    """Whether what is popped comes in order (5.x)."""


class GroupSettingOperations(GroupOperations):
    """What an operator does with groups."""

    async def group_settings(self, group: str) -> list[GroupSettings]:
        """A group's settings on each broker that knows it; `NotFoundError` when none does."""
        full = self.full_group(group)
        nodes = await self.readable()
        found = [
            self._settings(node, config)
            for node in nodes
            if (config := (await self._group_configs(node)).get(full)) is not None
        ]
        if not found:
            await self._check_known(nodes, full)
        return found

    async def create_group(
        self,
        group: str,
        *,
        max_retries: int | None = None,
        retry_queues: int | None = None,
        consume_enabled: bool | None = None,
        broadcast_enabled: bool | None = None,
        orderly: bool | None = None,
        update: bool = False,
    ) -> list[GroupSettings]:
        """Create a group on every master; what is not given is RocketMQ's default, or with `update` left as it is.

        One that exists with other settings is a `ConfigurationError` unless `update` says that they are to be changed.
        """
        full = self._changeable_group(group)
        wanted = {
            "retry_max_times": _checked("max_retries", max_retries, 0, _MAX_RETRIES),
            "retry_queue_nums": _checked("retry_queues", retry_queues, 0, _MAX_QUEUES),
            "consume_enable": consume_enabled,
            "consume_broadcast_enable": broadcast_enabled,
            "consume_message_orderly": orderly,
        }
        changes = {name: value for name, value in wanted.items() if value is not None}
        masters = await self.masters()
        plan: list[tuple[Node, SubscriptionGroupConfig]] = []
        for node in masters:
            there = (await self._group_configs(node)).get(full)
            # Attributes are changed by orders ("+name"), and none is given here.
            made = replace(there or SubscriptionGroupConfig(group_name=full), attributes=None, **changes)  # type: ignore[arg-type]
            if there is not None and not update and made != replace(there, attributes=None):
                raise ConfigurationError(
                    f"group {group!r} exists on {node.name} with other settings ({_text(self._settings(node, there))}):"
                    " update=True changes it"
                )
            plan.append((node, made))
        for node, config in plan:
            await self.ask(node, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
        return [self._settings(node, config) for node, config in plan]

    async def delete_group(self, group: str, *, offsets: bool = False) -> None:
        """Delete a group on every master, with `offsets` its offsets too; its retry topic and dead letters stay.

        One that does not exist is a `NotFoundError`; one with members is refused: it would be there again at once.
        """
        full = self._changeable_group(group)
        masters = await self.masters()
        await self._check_known(masters, full)
        found = await self._connections(masters, full)
        if found:
            members = self._members(full, found).members
            raise ClientStateError(
                f"group {group!r} has members online ({', '.join(member.client_id for member in members)}): stop them"
                " first, for brokers make a group again that somebody is in"
            )
        header = DeleteSubscriptionGroupRequestHeader(group_name=full, clean_offset=offsets, remove_offset=offsets)
        await self.for_all(masters, lambda node: self.ask(node, RequestCode.DELETE_SUBSCRIPTIONGROUP, header))

    def _changeable_group(self, group: str) -> str:
        full = self.full_group(group)
        if is_system_group(full):
            raise ConfigurationError(f"group={group!r} is RocketMQ's own: it cannot be created, changed or deleted")
        return full

    async def _group_configs(self, node: Node) -> dict[str, SubscriptionGroupConfig]:
        answer = await self.ask(node, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return dict(SubscriptionGroupWrapper.decode(answer.body).subscription_group_table)

    def _settings(self, node: Node, config: SubscriptionGroupConfig) -> GroupSettings:
        return GroupSettings(
            self.short(config.group_name),
            node.name,
            config.consume_enable,
            config.consume_broadcast_enable,
            config.retry_max_times,
            config.retry_queue_nums,
            config.consume_message_orderly,
        )


def _checked(name: str, value: int | None, low: int, high: int) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high):
        raise ConfigurationError(f"{name}={value!r} must be a whole number from {low} to {high}")
    return value


def _text(settings: GroupSettings) -> str:
    return (
        f"max_retries={settings.max_retries}, retry_queues={settings.retry_queues},"
        f" consume_enabled={settings.consume_enabled}, broadcast_enabled={settings.broadcast_enabled},"
        f" orderly={settings.orderly}"
    )
