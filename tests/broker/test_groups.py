from __future__ import annotations

from dataclasses import replace

import pytest

from rocketstream.broker.groups import Groups
from rocketstream.wire.bodies.group import (
    GroupRetryPolicy,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from rocketstream.wire.lenient_json import loads
from tests.broker.parts import Parts, ask, request, succeed


@pytest.fixture
def parts() -> Parts:
    return Parts()


def reborn(parts: Parts) -> Groups:
    return Groups(settings=parts.settings, clock=parts.clock, state=parts.state)


def put(config: SubscriptionGroupConfig):
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())


def test_whoever_asks_for_a_group_creates_it(parts):
    assert "g" not in parts.groups
    created = parts.groups.get("g")
    assert created == SubscriptionGroupConfig(
        group_name="g", group_retry_policy=GroupRetryPolicy(type="CUSTOMIZED"), attributes={}
    )
    assert (created.retry_max_times, created.retry_queue_nums, created.consume_enable) == (16, 1, True)
    assert "g" in reborn(parts)


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 121])
def test_a_name_that_is_not_legal_creates_nothing(parts, name):
    assert parts.groups.get(name) is None
    assert name not in parts.groups


def test_nothing_is_created_where_that_is_off_but_the_systems_own(parts):
    parts.settings.auto_create_groups = False
    assert parts.groups.get("g") is None
    assert parts.groups.get("TOOLS_CONSUMER") is not None
    assert parts.groups.get("CID_RMQ_SYS_x") is not None


async def test_an_operator_makes_changes_and_deletes_a_group(parts):
    connection = parts.connect()
    wanted = SubscriptionGroupConfig(group_name="g", retry_max_times=3, consume_enable=False)
    await succeed(parts.groups, connection, put(wanted))
    wanted = replace(wanted, attributes={}, group_retry_policy=GroupRetryPolicy())
    assert parts.groups.get("g") == wanted
    header = GetSubscriptionGroupConfigRequestHeader(group="g")
    answer = await succeed(parts.groups, connection, request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header))
    assert SubscriptionGroupConfig.decode(answer.body) == wanted
    assert reborn(parts).get("g") == wanted
    gone = DeleteSubscriptionGroupRequestHeader(group_name="g")
    await succeed(parts.groups, connection, request(RequestCode.DELETE_SUBSCRIPTIONGROUP, gone))
    assert "g" not in parts.groups
    assert "g" not in reborn(parts)


async def test_offsets_go_with_a_group_only_when_that_is_wanted(parts):
    connection, cleaned = parts.connect(), []
    parts.groups.cleaned.append(cleaned.append)
    for clean in (False, True):
        parts.groups.get("g")
        header = DeleteSubscriptionGroupRequestHeader(group_name="g", clean_offset=clean)
        await succeed(parts.groups, connection, request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header))
        assert cleaned == ["g"] * clean


async def test_a_group_that_is_not_there_and_may_not_be_made_is_said_so(parts):
    parts.settings.auto_create_groups = False
    header = GetSubscriptionGroupConfigRequestHeader(group="g")
    answer = await ask(parts.groups, parts.connect(), request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header))
    assert (answer.code, answer.remark) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")


async def test_a_bad_name_is_refused_and_a_list_with_one_changes_nothing(parts):
    connection = parts.connect()
    answer = await ask(parts.groups, connection, put(SubscriptionGroupConfig(group_name="a b")))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "illegal characters" in (answer.remark or "")
    good, bad = SubscriptionGroupConfig(group_name="good"), SubscriptionGroupConfig(group_name="a b")
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    body = SubscriptionGroupList(group_config_list=(good, bad)).encode()
    assert (await ask(parts.groups, connection, request(code, body=body))).code == ResponseCode.INVALID_PARAMETER
    assert "good" not in parts.groups
    body = SubscriptionGroupList(group_config_list=(good,)).encode()
    await succeed(parts.groups, connection, request(code, body=body))
    assert "good" in parts.groups


async def test_all_groups_at_once_and_by_pages(parts):
    connection = parts.connect()
    for name in ("b", "a"):
        parts.groups.get(name)
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    answer = await succeed(parts.groups, connection, request(code))
    everything = SubscriptionGroupWrapper.decode(answer.body)
    assert set(everything.subscription_group_table) == set(parts.groups.all())
    total = GetAllSubscriptionGroupResponseHeader.from_fields(answer.fields).total_group_num
    assert total == len(everything.subscription_group_table)
    version = everything.data_version.encode().decode()
    names: list[str] = []
    while len(names) < total:
        page = GetAllSubscriptionGroupRequestHeader(group_seq=len(names), data_version=version, max_group_num=3)
        answer = await succeed(parts.groups, connection, request(code, page))
        names += SubscriptionGroupWrapper.decode(answer.body).subscription_group_table
    assert names == sorted(parts.groups.all())
    stale = GetAllSubscriptionGroupRequestHeader(group_seq=3, data_version='{"counter":0}', max_group_num=3)
    answer = await succeed(parts.groups, connection, request(code, stale))
    assert list(SubscriptionGroupWrapper.decode(answer.body).subscription_group_table) == names[:3], "begins again"


async def test_attributes_are_changed_one_by_one(parts):
    connection = parts.connect()

    async def change(**attributes: str):
        config = SubscriptionGroupConfig(group_name="g", attributes=attributes)
        return await ask(parts.groups, connection, put(config))

    assert "only add attribute" in (await change(**{"-priority.factor": ""})).remark
    await change(**{"+priority.factor": "100", "+lite.bind.topic": "t"})
    await change(**{"-priority.factor": "", "+lite.bind.topic": "u"})
    assert parts.groups.get("g").attributes == {"lite.bind.topic": "u"}
    assert (await change(**{"-priority.factor": ""})).remark == "attempt to delete a nonexistent key: priority.factor"
    assert (await change(**{"+a": "1"})).remark == "unsupported key: a"
    assert (await change(a="1")).code == ResponseCode.SYSTEM_ERROR
    assert parts.groups.get("g").attributes == {"lite.bind.topic": "u"}


async def test_a_group_can_be_forbidden_to_read_a_topic(parts):
    code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    fields = {"group": "g", "topic": "t"}
    for readable in ("false", "true"):
        answer = await succeed(parts.groups, parts.connect(), request(code, {**fields, "readable": readable}))
        assert loads(answer.body) == {"group": "g", "topic": "t", "readable": readable == "true"}
        assert parts.groups.may_read("g", "t") == (readable == "true")
    assert parts.groups.may_read("g", "u")
    answer = await succeed(parts.groups, parts.connect(), request(code, fields))
    assert loads(answer.body)["readable"] is True
