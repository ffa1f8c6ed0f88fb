"""What operators ask a broker about topics: make, change, delete, list."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Collection, Mapping
from typing import Protocol

from rocketstream.broker import names
from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.store.values import MessageStore
from rocketstream.broker.topic_attributes import MESSAGE_TYPE, parse_modifications
from rocketstream.broker.topics import Topics
from rocketstream.wire.bodies.data_version import DataVersion
from rocketstream.wire.bodies.topic import CreateTopicListRequestBody, TopicConfig, TopicList
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
)
from rocketstream.wire.lenient_json import dumps

log = logging.getLogger("rocketstream.broker")

#: RocketMQ's splitMetadataSize: how many topics it sends at most to who asks for pages.
_PAGE = 2000
_FILTER_TYPES = frozenset({"SINGLE_TAG", "MULTI_TAG"})


class TopicOffsets(Protocol):
    """What the offsets of groups offer to whoever deletes a topic."""

    def groups_of(self, topic: str) -> Collection[str]:
        """The groups that have an offset in the topic."""

    def forget_topic(self, topic: str) -> None:
        """Forget every group's offsets in the topic."""


class TopicRequests:
    """Answers requests about topics."""

    def __init__(self, *, topics: Topics, store: MessageStore, offsets: TopicOffsets) -> None:
        self._topics = topics
        self._store = store
        self._offsets = offsets

    def handlers(self) -> Mapping[int, Handler]:
        """The requests that it answers."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._update_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all,
            RequestCode.GET_TOPIC_CONFIG: self._one,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system,
            RequestCode.CLEAN_UNUSED_TOPIC: self._clean_unused,
        }

    def start(self) -> None:
        """Nothing runs by itself."""

    def stop(self) -> None:
        """Nothing is to be saved: changes are saved as they come."""

    # --- making and changing -------------------------------------------------------------------------------------

    def _update(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        header = CreateTopicRequestHeader.from_fields(command.fields)
        if header.topic_filter_type not in _FILTER_TYPES:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{header.topic_filter_type}] value invalid")
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=parse_modifications(header.attributes),
        )
        self._check(config)
        if config != self._topics.get(config.topic_name):
            self._topics.update(config)
            log.info("%s put topic %s", connection.address, config)
        return self._done(command)

    def _update_list(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        configs = CreateTopicListRequestBody.decode(command.body).topic_config_list
        for config in configs:
            self._check(config)
            if config == self._topics.get(config.topic_name):
                # As RocketMQ does it: one that is there already ends it, whatever comes behind.
                return response(command, ResponseCode.SUCCESS)
        for config in configs:
            self._topics.update(config)
        return self._done(command)

    def _done(self, command: Command) -> Command | Awaitable[Command]:
        """Answered once name servers know: whoever made a topic asks for its route next."""
        announced = self._topics.announced()
        answer = response(command, ResponseCode.SUCCESS)
        return answer if announced is None else _after(announced, answer)

    def _check(self, config: TopicConfig) -> None:
        names.check_topic(config.topic_name)
        self._refuse_system_topic(config.topic_name)
        if (config.attributes or {}).get(f"+{MESSAGE_TYPE}") == "MIXED":
            raise Refusal(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")

    def _refuse_system_topic(self, topic: str) -> None:
        if self._topics.is_system(topic):
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")

    # --- deleting ------------------------------------------------------------------------------------------------

    def _delete(self, connection: ClientConnection, command: Command) -> Command:
        topic = DeleteTopicRequestHeader.from_fields(command.fields).topic
        if not topic.strip():
            raise Refusal(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._refuse_system_topic(topic)
        retries = [
            retry
            for group in self._offsets.groups_of(topic)
            for retry in names.pop_retry_topics(topic, group)
            if self._topics.get(retry) is not None
        ]
        for name in (topic, *retries):
            self._topics.delete(name)
            self._offsets.forget_topic(name)
            self._store.delete_topic(name)
        log.info("%s deleted topic %s", connection.address, topic)
        return response(command, ResponseCode.SUCCESS)

    def _clean_unused(self, connection: ClientConnection, command: Command) -> Command:
        for topic in list(self._store.topics()):
            if self._topics.get(topic) is None and not self._topics.is_system(topic):
                self._store.delete_topic(topic)
        return response(command, ResponseCode.SUCCESS)

    # --- listing -------------------------------------------------------------------------------------------------

    def _all(self, connection: ClientConnection, command: Command) -> Command:
        table = self._topics.all()
        total = GetAllTopicConfigResponseHeader(total_topic_num=len(table))
        if "topicSeq" in command.fields:
            return response(command, ResponseCode.SUCCESS, None, total, self._page(command))
        return response(command, ResponseCode.SUCCESS, None, total, self._topics.wrapper().encode())

    def _page(self, command: Command) -> bytes:
        header = GetAllTopicConfigRequestHeader.from_fields(command.fields)
        is_same = bool(header.data_version) and (
            DataVersion.decode((header.data_version or "").encode()) == self._topics.version
        )
        # Whoever read pages of another version begins again.
        begin = header.topic_seq if is_same else 0
        count = min(_PAGE, _PAGE if header.max_topic_num is None else header.max_topic_num)
        return self._topics.wrapper(sorted(self._topics.all())[begin : begin + count]).encode()

    def _one(self, connection: ClientConnection, command: Command) -> Command:
        topic = GetTopicConfigRequestHeader.from_fields(command.fields).topic
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return response(command, ResponseCode.SUCCESS, body=dumps(config.to_json()))

    def _system(self, connection: ClientConnection, command: Command) -> Command:
        return response(command, ResponseCode.SUCCESS, body=TopicList(topic_list=self._topics.system_topics()).encode())


async def _after(announced: Awaitable[None], answer: Command) -> Command:
    await announced
    return answer
