from __future__ import annotations

import pytest

from rocketstream.wire.bodies.group import SubscriptionGroupConfig
from rocketstream.wire.bodies.members import (
    ConsumerConnection,
    ConsumerListByGroup,
    ProducerConnection,
    ProducerTableInfo,
)
from rocketstream.wire.bodies.subscription import CheckClientRequestBody, SubscriptionData
from rocketstream.wire.codes import ConsumeFromWhere, ConsumeType, MessageModel, RequestCode, ResponseCode
from rocketstream.wire.headers.group import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetProducerConnectionListRequestHeader,
    UnregisterClientRequestHeader,
)
from tests.broker.parts import FakeConnection, Parts, ask, heartbeat, request, succeed


@pytest.fixture
def parts() -> Parts:
    return Parts()


async def join(parts: Parts, client_id: str, *topics: str, **others) -> FakeConnection:
    connection = parts.connect()
    await succeed(parts.members, connection, heartbeat(client_id, {"g": topics or ("t",)}, **others))
    return connection


async def leave(parts: Parts, connection: FakeConnection, **groups: str) -> None:
    header = UnregisterClientRequestHeader(client_id="whoever", **groups)
    await succeed(parts.members, connection, request(RequestCode.UNREGISTER_CLIENT, header))


async def members_of(parts: Parts, group: str):
    header = GetConsumerListByGroupRequestHeader(consumer_group=group)
    return await ask(parts.members, parts.connect(), request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header))


# --- coming ---------------------------------------------------------------------------------------------------------


async def test_a_heartbeat_makes_a_member(parts):
    connection = await join(
        parts,
        "one",
        consume_type=ConsumeType.CONSUME_POP,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    group = parts.members.consumers("g")
    assert group.client_ids() == ["one"]
    assert group.connection("one") is connection
    assert group.connection("two") is None
    assert group.subscription("t").sub_string == "*"
    assert group.subscription("u") is None
    assert group.consume_type == ConsumeType.CONSUME_POP
    assert group.consume_from == ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert parts.members.groups_of("t") == ["g"]
    assert "g" in parts.groups
    retry = parts.topics.get("%RETRY%g")
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
    assert ConsumerListByGroup.decode((await members_of(parts, "g")).body).consumer_id_list == ("one",)


async def test_the_retry_topic_has_as_many_queues_as_the_group_wants(parts):
    parts.groups.put(SubscriptionGroupConfig(group_name="g", retry_queue_nums=3))
    await join(parts, "one", unit_mode=True)
    retry = parts.topics.get("%RETRY%g")
    assert (retry.write_queue_nums, retry.topic_sys_flag) == (3, 2)


async def test_a_group_that_may_not_be_made_has_no_members(parts):
    parts.settings.auto_create_groups = False
    await join(parts, "one")
    assert parts.members.consumers("g") is None
    assert parts.topics.get("%RETRY%g") is None


async def test_heartbeats_say_what_the_broker_can(parts):
    connection = parts.connect()

    async def told(fingerprint: int, **others) -> tuple[str, str]:
        wanted = heartbeat("one", {"g": ("t",)}, fingerprint=fingerprint, **others)
        fields = (await succeed(parts.members, connection, wanted)).fields
        return fields["IS_SUPPORT_HEART_BEAT_V2"], fields["IS_SUB_CHANGE"]

    assert await told(0) == ("true", "true")
    assert await told(5) == ("true", "true"), "another fingerprint than before"
    assert await told(5) == ("true", "false")
    assert await told(6) == ("true", "true")
    assert await told(0) == ("true", "true")


async def test_a_heartbeat_without_subscriptions_leaves_them_as_they_are(parts):
    connection = await join(parts, "one", fingerprint=5)
    empty = heartbeat("one", {"g": ()}, fingerprint=5, without_sub=True)
    await succeed(parts.members, connection, empty)
    assert parts.members.consumers("g").topics() == ["t"]


# --- changes are told -----------------------------------------------------------------------------------------------


async def test_members_are_told_of_a_new_one(parts):
    one = await join(parts, "one")
    assert one.notices() == ["g"]
    two = await join(parts, "two")
    assert (one.notices(), two.notices()) == (["g"], ["g"])
    await succeed(parts.members, two, heartbeat("two", {"g": ("t",)}))
    assert (one.notices(), two.notices()) == ([], []), "nothing has changed"


async def test_members_are_told_of_topics_that_come_and_go(parts):
    one = await join(parts, "one", "t")
    one.sent.clear()
    for topics, told in ((("t", "u"), ["g"]), (("t", "u"), []), (("u",), ["g"])):
        await succeed(parts.members, one, heartbeat("one", {"g": topics}))
        assert one.notices() == told
    assert parts.members.consumers("g").topics() == ["u"]


async def test_an_expression_is_replaced_by_a_newer_one_only_and_nobody_is_told(parts):
    one = await join(parts, "one", sub_version=5)
    one.sent.clear()
    for version, kept in ((4, 5), (6, 6)):
        await succeed(parts.members, one, heartbeat("one", {"g": ("t",)}, sub_version=version))
        assert parts.members.subscription("g", "t").sub_version == kept
    assert one.notices() == []


async def test_in_a_broadcasting_group_nobody_is_told(parts):
    one = await join(parts, "one", message_model=MessageModel.BROADCASTING)
    await join(parts, "two", message_model=MessageModel.BROADCASTING)
    assert one.notices() == []


@pytest.mark.parametrize("where", ["group", "broker"])
async def test_nobody_is_told_where_that_is_off(parts, where):
    if where == "group":
        parts.groups.put(SubscriptionGroupConfig(group_name="g", notify_consumer_ids_changed_enable=False))
    else:
        parts.settings.notify_members = False
    one = await join(parts, "one")
    two = await join(parts, "two")
    await leave(parts, two, consumer_group="g")
    assert one.notices() == []


# --- going ----------------------------------------------------------------------------------------------------------


async def test_who_says_good_bye_is_gone_and_the_others_are_told(parts):
    one, two = await join(parts, "one"), await join(parts, "two")
    one.sent.clear()
    two.sent.clear()
    await leave(parts, two, consumer_group="g")
    assert parts.members.consumers("g").client_ids() == ["one"]
    assert (one.notices(), two.notices()) == (["g"], [])
    await leave(parts, one, consumer_group="g")
    assert parts.members.consumers("g") is None
    assert parts.members.groups_of("t") == []
    answer = await members_of(parts, "g")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, g")


async def test_a_connection_that_ends_takes_its_members_with_it(parts):
    one, two = await join(parts, "one"), await join(parts, "two", producers=("p",))
    one.sent.clear()
    two.close()
    assert parts.members.consumers("g").client_ids() == ["one"]
    assert one.notices() == ["g"]
    assert parts.members.producers("p") == []


async def test_who_is_silent_for_too_long_is_cut_off(parts):
    parts.members.start()
    one, two = await join(parts, "one"), await join(parts, "two", producers=("p",))
    await parts.clock.advance(115.0)
    assert parts.members.consumers("g").client_ids() == ["one", "two"]
    await succeed(parts.members, one, heartbeat("one", {"g": ("t",)}))
    one.sent.clear()
    await parts.clock.advance(16.0)
    assert parts.members.consumers("g").client_ids() == ["one"]
    assert (one.was_cut, two.was_cut) == (False, True)
    assert one.notices() == ["g"]
    parts.members.stop()
    assert parts.clock.pending == []


# --- producers ------------------------------------------------------------------------------------------------------


async def test_producers_are_known_by_group_and_by_client(parts):
    connection = parts.connect()
    await succeed(parts.members, connection, heartbeat("one", producers=("p", "q")))
    assert parts.members.producers("p") == [connection]
    assert parts.members.producers("r") == []
    assert parts.members.connection_of("one") is connection
    assert parts.members.connection_of("two") is None
    await leave(parts, connection, producer_group="p")
    assert parts.members.producers("p") == []
    assert parts.members.producers("q") == [connection]


async def test_operators_see_producers(parts):
    connection = parts.connect()
    await succeed(parts.members, connection, heartbeat("one", producers=("p",), version=401))
    header = GetProducerConnectionListRequestHeader(producer_group="p")
    answer = await succeed(parts.members, connection, request(RequestCode.GET_PRODUCER_CONNECTION_LIST, header))
    (shown,) = ProducerConnection.decode(answer.body).connection_set
    assert (shown.client_id, shown.client_addr, shown.language, shown.version) == (
        "one",
        connection.address,
        "PYTHON",
        401,
    )
    answer = await succeed(parts.members, connection, request(RequestCode.GET_ALL_PRODUCER_INFO))
    (info,) = ProducerTableInfo.decode(answer.body).data["p"]
    assert (info.client_id, info.last_update_timestamp) == ("one", parts.clock.wall_ms())
    header = GetProducerConnectionListRequestHeader(producer_group="x")
    answer = await ask(parts.members, connection, request(RequestCode.GET_PRODUCER_CONNECTION_LIST, header))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the producer group[x] not exist")


async def test_operators_see_consumers(parts):
    connection = await join(parts, "one")
    header = GetConsumerConnectionListRequestHeader(consumer_group="g")
    answer = await succeed(parts.members, connection, request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header))
    shown = ConsumerConnection.decode(answer.body)
    assert [one.client_id for one in shown.connection_set] == ["one"]
    assert set(shown.subscription_table) == {"t"}
    assert shown.message_model == MessageModel.CLUSTERING
    header = GetConsumerConnectionListRequestHeader(consumer_group="x")
    answer = await ask(parts.members, connection, request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header))
    assert (answer.code, answer.remark) == (ResponseCode.CONSUMER_NOT_ONLINE, "the consumer group[x] not online")


# --- would this subscription do? ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expression", "sql_filter", "code"),
    [
        ("TAG", "a || b", False, ResponseCode.SUCCESS),
        ("SQL92", "a > 5", True, ResponseCode.SUCCESS),
        ("SQL92", "a > 5", False, ResponseCode.SYSTEM_ERROR),
        ("SQL92", "a >", True, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("XPATH", "a", True, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_subscriptions_are_checked(parts, kind, expression, sql_filter, code):
    parts.settings.sql_filter = sql_filter
    wanted = SubscriptionData(topic="t", sub_string=expression, expression_type=kind)
    body = CheckClientRequestBody(client_id="one", group="g", subscription_data=wanted).encode()
    answer = await ask(parts.members, parts.connect(), request(RequestCode.CHECK_CLIENT_CONFIG, body=body))
    assert answer.code == code
