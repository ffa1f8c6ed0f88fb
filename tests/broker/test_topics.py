"""Topics: what comes into being by itself, what operators make, change and delete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.topic_requests import TopicRequests
from rocketstream.broker.topics import Topics
from rocketstream.clock import ManualClock
from rocketstream.wire.bodies.topic import (
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.topic import CreateTopicRequestHeader
from tests.broker.parts import Parts, ask, request, succeed


def new_topics(data: Path | None = None, **settings: Any) -> Topics:
    return Topics(settings=BrokerSettings(data=data, **settings), clock=ManualClock(), state=StateFiles(data))


# --- by itself --------------------------------------------------------------------------------------------------


def test_the_systems_own_are_there_from_the_start():
    topics = new_topics(cluster_name="C", broker_name="b")
    queues = {name: config.write_queue_nums for name, config in topics.all().items()}
    assert queues == {
        "TBW102": 8,
        "SELF_TEST_TOPIC": 1,
        "BenchmarkTest": 1024,
        "C": 16,
        "b": 1,
        "OFFSET_MOVED_EVENT": 1,
        "SCHEDULE_TOPIC_XXXX": 18,
        "C_REPLY_TOPIC": 1,
        "rmq_sys_REVIVE_LOG_C": 8,
        "rmq_sys_SYNC_BROKER_MEMBER_b": 1,
        "RMQ_SYS_TRANS_HALF_TOPIC": 1,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": 1,
        "rmq_sys_wheel_timer": 1,
    }
    assert all(map(topics.is_system, queues))
    assert not topics.is_system("orders")


@pytest.mark.parametrize(("asked", "got"), [(4, 4), (100, 8), (-1, 0)])
def test_who_sends_to_a_new_topic_makes_it_after_the_model(asked, got):
    topics = new_topics()
    changed: list[str] = []
    topics.changed.append(changed.append)
    made = topics.for_send("orders", "TBW102", asked, 2)
    assert (made.read_queue_nums, made.write_queue_nums, made.perm, made.topic_sys_flag) == (got, got, 6, 2)
    assert topics.for_send("orders", "TBW102", 1) is made
    assert changed == ["orders"]


@pytest.mark.parametrize("default_topic", ["TBW102", "SELF_TEST_TOPIC", "nothing"])
def test_a_model_that_may_not_be_inherited_makes_nothing(default_topic):
    topics = new_topics(auto_create_topics=False)
    assert topics.get("TBW102") is None
    with pytest.raises(Refusal, match=r"topic\[orders\] not exist, apply first please!") as caught:
        topics.for_send("orders", default_topic, 4)
    assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert topics.for_send("%RETRY%g", default_topic, 4).write_queue_nums == 1


def test_creation_may_be_forbidden_while_it_runs():
    topics = new_topics()
    topics._settings.auto_create_topics = False
    with pytest.raises(Refusal):
        topics.for_send("orders", "TBW102", 4)


def test_retry_topics_are_made_as_asked_and_their_order_follows():
    topics = new_topics()
    made = topics.for_send_back("%RETRY%g", 3, 6)
    assert (made.write_queue_nums, made.perm, made.order) == (3, 6, False)
    assert topics.for_send_back("%RETRY%g", 1, 2) is made
    assert topics.for_send_back("%RETRY%g", 1, 2, order=True).order
    assert topics.get("%RETRY%g").write_queue_nums == 3


def test_they_outlast_the_broker(tmp_path):
    topics = new_topics(tmp_path)
    topics.put(TopicConfig(topic_name="orders", read_queue_nums=3, attributes={"message.type": "FIFO"}))
    topics.put(TopicConfig(topic_name="gone"))
    topics.delete("gone")
    again = new_topics(tmp_path)
    assert again.get("orders") == topics.get("orders")
    assert again.get("gone") is None
    assert again.version == topics.version
    assert again.version.counter == 3
    assert new_topics(tmp_path, auto_create_topics=False).get("TBW102") is None


# --- asked for --------------------------------------------------------------------------------------------------


class Asked:
    """Topic requests and their answers."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.topics = self.parts.topics
        self.service = TopicRequests(topics=self.topics, store=self.parts.store, offsets=self.parts.offsets)
        self.connection = self.parts.connect()

    async def create(self, topic: str, **fields: Any) -> tuple[int, str | None]:
        header = CreateTopicRequestHeader(
            **{"topic": topic, "default_topic": "TBW102", "read_queue_nums": 2, "write_queue_nums": 3, "perm": 6}
            | fields
        )
        answer = await ask(self.service, self.connection, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        return answer.code, answer.remark

    async def ok(self, code: RequestCode, fields: Any = None, body: bytes = b"") -> Any:
        return await succeed(self.service, self.connection, request(code, fields, body))


@pytest.fixture
def asked() -> Asked:
    return Asked()


async def test_a_topic_is_made_and_changed(asked):
    assert await asked.create("orders", attributes="+message.type=FIFO") == (0, None)
    assert asked.topics.get("orders") == TopicConfig(
        topic_name="orders", read_queue_nums=2, write_queue_nums=3, attributes={"message.type": "FIFO"}
    )
    before = asked.topics.version
    await asked.create("orders", read_queue_nums=8, perm=4, order=True)
    now = asked.topics.get("orders")
    assert (now.read_queue_nums, now.perm, now.order, now.attributes) == (8, 4, True, {"message.type": "FIFO"})
    assert asked.topics.version.counter == before.counter + 1


async def test_the_same_again_changes_nothing(asked):
    await asked.create("orders")
    version = asked.topics.version
    await asked.create("orders")
    assert asked.topics.version is version


@pytest.mark.parametrize(
    ("topic", "fields", "code", "remark"),
    [
        ("", {}, 29, "The specified topic is blank."),
        ("a b", {}, 29, "contains illegal characters"),
        ("x" * 128, {}, 29, "is longer than topic max length: 127"),
        ("%RETRY%" + "x" * 249, {}, 29, "longer than topic max length: 255"),
        ("TBW102", {}, 29, "The topic[TBW102] is conflict with system topic."),
        ("rmq_sys_mine", {}, 29, "conflict with system topic"),
        ("t", {"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ("t", {"attributes": "+message.type=ODD"}, 1, "value is not in set: ["),
        ("t", {"attributes": "+no.such=1"}, 1, "unsupported key: no.such"),
        ("t", {"attributes": "message.type=FIFO"}, 1, "add/alter attribute format is wrong: message.type"),
        ("t", {"attributes": "message.type"}, 1, "delete attribute format is wrong: message.type"),
        ("t", {"attributes": "-message.type"}, 1, "only add attribute is supported while creating topic"),
        ("t", {"attributes": "+message.type=FIFO,+message.type=FIFO"}, 1, "key duplication: +message.type"),
        ("t", {"attributes": "+a+b=1"}, 1, "kv string format wrong."),
        ("t", {"attributes": "+reserve.time=1"}, 1, "Update topic reserveTime not supported"),
        ("t", {"topic_filter_type": "ODD"}, 1, "topicFilterType = [ODD] value invalid"),
    ],
)
async def test_what_can_not_be_made_is_refused_in_rocketmqs_words(asked, topic, fields, code, remark):
    got, why = await asked.create(topic, **fields)
    assert got == code
    assert remark in why
    assert asked.topics.get("t") is None


@pytest.mark.parametrize(
    ("modification", "result"),
    [
        ("+message.type=DELAY", {"message.type": "DELAY", "queue.type": "SimpleCQ"}),
        ("-message.type", {"queue.type": "SimpleCQ"}),
        ("+queue.type=BatchCQ", "attempt to update an unchangeable attribute. key: queue.type"),
        ("-queue.type", "attempt to update an unchangeable attribute. key: queue.type"),
        ("-cleanup.policy", "attempt to delete a nonexistent key: cleanup.policy"),
    ],
)
async def test_attributes_are_modified(asked, modification, result):
    had = {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    assert (await asked.create("t", attributes="+message.type=FIFO,+queue.type=SimpleCQ"))[0] == 0
    code, remark = await asked.create("t", attributes=modification)
    if isinstance(result, str):
        assert (code, remark) == (1, result)
        result = had
    assert asked.topics.get("t").attributes == result


async def test_several_at_once(asked):
    body = CreateTopicListRequestBody(topic_config_list=(TopicConfig(topic_name="a"), TopicConfig(topic_name="b")))
    await asked.ok(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body.encode())
    assert asked.topics.get("a").read_queue_nums == asked.topics.get("b").read_queue_nums == 16


async def test_a_deleted_topic_takes_messages_offsets_and_pop_retries_along(asked):
    parts = asked.parts
    parts.create_topic("orders")
    for retry in ("%RETRY%g+orders", "%RETRY%g_orders", "%RETRY%g"):
        parts.create_topic(retry)
        parts.append(retry)
    parts.append("orders")
    for topic in ("orders", "%RETRY%g+orders", "%RETRY%g"):
        parts.offsets.commit("g", topic, 0, 1)
    await asked.ok(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    for gone in ("orders", "%RETRY%g+orders", "%RETRY%g_orders"):
        assert asked.topics.get(gone) is None
        assert parts.store.max_offset(gone, 0) == 0
        assert parts.offsets.get("g", gone, 0) == -1
    assert (parts.store.max_offset("%RETRY%g", 0), parts.offsets.get("g", "%RETRY%g", 0)) == (1, 1)
    parts.create_topic("orders")
    assert parts.append("orders").queue_offset == 0


@pytest.mark.parametrize("topic", ["", "SCHEDULE_TOPIC_XXXX", "DefaultCluster"])
async def test_what_is_not_the_users_is_not_deleted(asked, topic):
    answer = await ask(asked.service, asked.connection, request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}))
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_all_and_by_pages(asked):
    for number in range(3):
        asked.parts.create_topic(f"a{number}")
    answer = await asked.ok(RequestCode.GET_ALL_TOPIC_CONFIG)
    everything = TopicConfigSerializeWrapper.decode(answer.body)
    assert everything.topic_config_table == asked.topics.all()
    assert everything.data_version == asked.topics.version
    assert answer.fields == {"totalTopicNum": "16"}

    async def page(begin: int, version: str) -> list[str]:
        fields = {"topicSeq": str(begin), "maxTopicNum": "10", "dataVersion": version}
        answer = await asked.ok(RequestCode.GET_ALL_TOPIC_CONFIG, fields)
        return sorted(TopicConfigSerializeWrapper.decode(answer.body).topic_config_table)

    version = json.dumps(asked.topics.version.to_json())
    names = sorted(asked.topics.all())
    assert await page(0, "") == names[:10]
    assert await page(10, version) == names[10:]
    assert await page(10, '{"counter":99,"timestamp":1,"stateVersion":0}') == names[:10], "read pages are stale"


async def test_one(asked):
    asked.parts.create_topic("orders", 5)
    answer = await asked.ok(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"})
    assert TopicConfig.decode(answer.body) == asked.topics.get("orders")
    missing = await ask(asked.service, asked.connection, request(RequestCode.GET_TOPIC_CONFIG, {"topic": "no"}))
    assert (missing.code, missing.remark) == (ResponseCode.TOPIC_NOT_EXIST, "No topic in this broker. topic: no")


async def test_the_systems_own_are_listed_and_what_nobody_needs_is_cleaned(asked):
    answer = await asked.ok(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert {"TBW102", "RMQ_SYS_TRACE_TOPIC", "DefaultCluster", "broker-a"} <= TopicList.decode(answer.body).topic_list
    asked.parts.append("unused")
    asked.parts.create_topic("used")
    asked.parts.append("used")
    await asked.ok(RequestCode.CLEAN_UNUSED_TOPIC)
    assert "unused" not in asked.parts.store.topics()
    assert asked.parts.store.max_offset("used", 0) == 1


async def test_an_answer_waits_until_name_servers_know(asked):
    told: list[str] = []

    async def tell() -> None:
        told.append("told")

    asked.topics.announced = tell
    await asked.create("orders")
    assert told == ["told"]
