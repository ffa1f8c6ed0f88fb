"""The settings of consumer groups, made at first use or by operators.

The rule here is RocketMQ's: whoever asks for a group's settings creates the group, as long as the broker may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.names import check_group
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.clock import Clock
from rocketstream.wire.bodies.data_version import DataVersion
from rocketstream.wire.bodies.group import (
    GroupForbidden,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)

STATE: Final = "groups"

#: Groups that are there from the start (`SubscriptionGroupManager.init`).
SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
_SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"
#: RocketMQ's splitMetadataSize: how many groups it sends at most to who asks for pages.
_PAGE: Final = 2000
#: The attributes that a group of 5.5.0 may have.
_ATTRIBUTES: Final = frozenset(
    {
        "priority.factor",
        "lite.bind.topic",
        "lite.sub.model",
        "lite.sub.reset.offset.exclusive",
        "lite.sub.reset.offset.unsubscribe",
        "lite.sub.client.quota",
        "lite.sub.client.max.event.cnt",
        "lite.sub.wildcard",
    }
)
#: The bit of a group's forbidden flags that stands for reading (`PermName.INDEX_PERM_READ`).
_READ_BIT: Final = 1 << 2


class Groups:
    """The settings of all groups, by name. They are written at once: they change seldom."""

    def __init__(self, *, settings: BrokerSettings, state: StateFiles, clock: Clock) -> None:
        self.cleaned: list[Callable[[str], None]] = []
        """Called with a group that was deleted together with its offsets."""
        self._settings = settings
        self._state = state
        self._clock = clock
        self._configs = {name: new_group(name) for name in SYSTEM_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._version = DataVersion(timestamp=clock.wall_ms())
        self._load()

    def __repr__(self) -> str:
        return f"<Groups {len(self._configs)}>"

    def __contains__(self, group: object) -> bool:
        return group in self._configs

    # --- what others ask ----------------------------------------------------------------------------------------

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """A group's settings; it is created where the broker may do so and the name is a legal one."""
        found = self._configs.get(group)
        if found is None and (self._settings.auto_create_groups or group.startswith(_SYSTEM_PREFIX)):
            try:
                check_group(group)
            except Refusal:
                return None
            found = new_group(group)
            self._configs[group] = found
            self._save()
        return found

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """The settings of every group that is there."""
        return self._configs

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create a group or replace its settings."""
        old = self._configs.get(config.group_name)
        attributes = _altered(None if old is None else old.attributes or {}, config.attributes or {})
        policy = config.group_retry_policy or GroupRetryPolicy()
        self._configs[config.group_name] = replace(config, attributes=attributes, group_retry_policy=policy)
        self._save()

    def delete(self, group: str) -> None:
        """Forget a group's settings; its offsets stay."""
        self._forbidden.pop(group, None)
        if self._configs.pop(group, None) is not None:
            self._save()

    def may_read(self, group: str, topic: str) -> bool:
        """Whether an operator has not forbidden the group to read the topic."""
        return not self._forbidden.get(group, {}).get(topic, 0) & _READ_BIT

    # --- as a service -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Nothing runs by itself."""

    def stop(self) -> None:
        """Everything was saved when it changed."""

    def handlers(self) -> Mapping[int, Handler]:
        """The requests about groups' settings."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._update_list,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._one,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self._forbid,
        }

    def _update(self, connection: ClientConnection, command: Command) -> Command:
        config = SubscriptionGroupConfig.decode(command.body)
        check_group(config.group_name)
        self.put(config)
        return response(command, ResponseCode.SUCCESS)

    def _update_list(self, connection: ClientConnection, command: Command) -> Command:
        configs = SubscriptionGroupList.decode(command.body).group_config_list
        for config in configs:
            check_group(config.group_name)
        for config in configs:
            self.put(config)
        return response(command, ResponseCode.SUCCESS)

    def _all(self, connection: ClientConnection, command: Command) -> Command:
        total = GetAllSubscriptionGroupResponseHeader(total_group_num=len(self._configs))
        wrapper = self._page(command) if "groupSeq" in command.fields else self._wrapper(self._configs)
        return response(command, ResponseCode.SUCCESS, header=total, body=wrapper.encode())

    def _page(self, command: Command) -> SubscriptionGroupWrapper:
        wanted = GetAllSubscriptionGroupRequestHeader.from_fields(command.fields)
        is_same = bool(wanted.data_version) and (
            DataVersion.decode((wanted.data_version or "").encode()) == self._version
        )
        # Whoever read pages of another version begins again.
        begin = wanted.group_seq if is_same else 0
        count = _PAGE if wanted.max_group_num is None else min(_PAGE, wanted.max_group_num)
        return self._wrapper({name: self._configs[name] for name in sorted(self._configs)[begin : begin + count]})

    def _one(self, connection: ClientConnection, command: Command) -> Command:
        found = self.get(GetSubscriptionGroupConfigRequestHeader.from_fields(command.fields).group)
        if found is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return response(command, ResponseCode.SUCCESS, body=found.encode())

    def _delete(self, connection: ClientConnection, command: Command) -> Command:
        wanted = DeleteSubscriptionGroupRequestHeader.from_fields(command.fields)
        self.delete(wanted.group_name)
        if wanted.clean_offset or wanted.remove_offset:
            for callback in self.cleaned:
                callback(wanted.group_name)
        return response(command, ResponseCode.SUCCESS)

    def _forbid(self, connection: ClientConnection, command: Command) -> Command:
        wanted = UpdateGroupForbiddenRequestHeader.from_fields(command.fields)
        if wanted.readable is not None:
            topics = self._forbidden.setdefault(wanted.group, {})
            flags = topics.get(wanted.topic, 0)
            topics[wanted.topic] = flags & ~_READ_BIT if wanted.readable else flags | _READ_BIT
            self._save()
        readable = self.may_read(wanted.group, wanted.topic)
        answer = GroupForbidden(topic=wanted.topic, group=wanted.group, readable=readable)
        return response(command, ResponseCode.SUCCESS, "", body=answer.encode())

    # --- keeping ------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        saved = self._state.load(STATE)
        if saved is None:
            return
        wrapper = SubscriptionGroupWrapper.from_json(saved)
        self._configs.update(wrapper.subscription_group_table)
        self._forbidden = {group: dict(topics) for group, topics in (wrapper.forbidden_table or {}).items()}
        if wrapper.data_version is not None:
            self._version = wrapper.data_version

    def _wrapper(self, configs: Mapping[str, SubscriptionGroupConfig]) -> SubscriptionGroupWrapper:
        forbidden = {group: topics for group, topics in self._forbidden.items() if group in configs}
        return SubscriptionGroupWrapper(
            subscription_group_table=configs, forbidden_table=forbidden, data_version=self._version
        )

    def _save(self) -> None:
        self._version = DataVersion(timestamp=self._clock.wall_ms(), counter=self._version.counter + 1)
        self._state.save(STATE, self._wrapper(self._configs).to_json())


def new_group(name: str) -> SubscriptionGroupConfig:
    """A group as RocketMQ creates it."""
    return SubscriptionGroupConfig(group_name=name, group_retry_policy=GroupRetryPolicy(), attributes={})


def _altered(current: Mapping[str, str] | None, wanted: Mapping[str, str]) -> dict[str, str]:
    """Attributes after a change, which is written "+name" to set and "-name" to remove; None is a group to be made."""
    result = dict(current or {})
    for key, value in wanted.items():
        sign, name = key[:1], key[1:]
        if current is None and sign != "+":
            raise _wrong(f"only add attribute is supported while creating topic. key: {name}")
        if sign not in ("+", "-"):
            raise _wrong(f"wrong format key: {name}")
        if sign == "-" and name not in result:
            raise _wrong(f"attempt to delete a nonexistent key: {name}")
        if name not in _ATTRIBUTES:
            raise _wrong(f"unsupported key: {name}")
        if sign == "+":
            result[name] = value
        else:
            del result[name]
    return result


def _wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
