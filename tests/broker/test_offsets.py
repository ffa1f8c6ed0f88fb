from __future__ import annotations

import pytest

from rocketstream.broker.offsets import Offsets
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.offsets import (
    ConsumerOffsetSerializeWrapper,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
)
from rocketstream.wire.codes import LanguageCode, RequestCode, ResponseCode
from rocketstream.wire.headers.group import DeleteSubscriptionGroupRequestHeader
from rocketstream.wire.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryCorrectionOffsetRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketstream.wire.lenient_json import loads
from tests.broker.parts import Parts, ask, heartbeat, request, succeed

LARGEST = (1 << 63) - 1


@pytest.fixture
def parts() -> Parts:
    parts = Parts()
    parts.create_topic("t", 2)
    parts.groups.get("g")
    return parts


async def query(parts: Parts, queue_id: int = 0, **others):
    header = QueryConsumerOffsetRequestHeader(consumer_group="g", topic="t", queue_id=queue_id, **others)
    return await ask(parts.offsets, parts.connect(), request(RequestCode.QUERY_CONSUMER_OFFSET, header))


async def update(parts: Parts, offset: int, group: str = "g", topic: str = "t"):
    header = UpdateConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=0, commit_offset=offset)
    return await ask(parts.offsets, parts.connect(), request(RequestCode.UPDATE_CONSUMER_OFFSET, header))


async def reset(parts: Parts, timestamp: int = 0, language: int = LanguageCode.JAVA, **others):
    fields = {"group": "g", "topic": "t", "is_force": True, **others}
    header = ResetOffsetRequestHeader(timestamp=timestamp, **fields)
    wanted = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, language=language)
    return await ask(parts.offsets, parts.connect(), wanted)


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue("t", "broker-a", queue_id)


# --- a group's offsets ------------------------------------------------------------------------------------------------


async def test_an_offset_is_committed_and_read_back(parts):
    assert (await update(parts, 7)).code == ResponseCode.SUCCESS
    assert (await query(parts)).fields == {"offset": "7"}
    await update(parts, 3)
    assert (await query(parts)).fields == {"offset": "3"}, "a group may go back"
    assert parts.offsets.get("g", "t", 1) == -1
    assert (parts.offsets.topics_of("g"), parts.offsets.groups_of("t")) == (["t"], ["g"])


async def test_a_new_group_has_no_offset_in_a_queue_without_messages(parts):
    answer = await query(parts)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert "V3_0_6_SNAPSHOT" in (answer.remark or "")


async def test_a_new_group_begins_with_the_first_message_while_that_is_there(parts):
    parts.append("t")
    assert (await query(parts)).fields == {"offset": "0"}
    assert (await query(parts, set_zero_if_not_found=False)).code == ResponseCode.QUERY_NOT_FOUND
    assert (await query(parts, 1)).code == ResponseCode.QUERY_NOT_FOUND


async def test_offsets_of_unknown_groups_and_topics_are_refused(parts):
    answer = await update(parts, 7, group="x")
    assert (answer.code, answer.remark) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group x not exist!")
    answer = await update(parts, 7, topic="x")
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "Topic x not exist!")
    fields = {"consumerGroup": "g", "topic": "t", "queueId": "0"}
    answer = await ask(parts.offsets, parts.connect(), request(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, "Offset is null, topic is t")
    assert list(parts.offsets.all()) == []


async def test_offsets_are_there_after_a_restart(parts):
    await update(parts, 7)
    parts.offsets.stop()
    again = Offsets(
        settings=parts.settings,
        clock=parts.clock,
        state=parts.state,
        store=parts.store,
        topics=parts.topics,
        groups=parts.groups,
        members=parts.members,
    )
    again.start()
    assert again.get("g", "t", 0) == 7
    again.stop()
    assert parts.clock.pending == []


async def test_a_broker_that_stops_acknowledges_nothing(parts):
    parts.offsets.stop()
    assert (await update(parts, 7)).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_all_offsets_at_once(parts):
    await update(parts, 7)
    answer = await succeed(parts.offsets, parts.connect(), request(RequestCode.GET_ALL_CONSUMER_OFFSET))
    assert ConsumerOffsetSerializeWrapper.decode(answer.body).offset_table == {"t@g": {0: 7}}


async def test_offsets_go_with_their_topic_and_their_group(parts):
    await update(parts, 7)
    parts.offsets.forget_topic("t")
    assert parts.offsets.get("g", "t", 0) == -1
    await update(parts, 7)
    parts.offsets.reset("g", "t", 1, 4)
    header = DeleteSubscriptionGroupRequestHeader(group_name="g", clean_offset=True)
    await succeed(parts.groups, parts.connect(), request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header))
    assert parts.offsets.get("g", "t", 0) == -1
    assert not parts.offsets.has_reset("g", "t", 1)


async def test_how_far_a_group_has_asked(parts):
    assert parts.offsets.pulled("g", "t", 0) == -1
    await update(parts, 7)
    assert parts.offsets.pulled("g", "t", 0) == 7
    parts.offsets.note_pull("g", "t", 0, 39)
    assert parts.offsets.pulled("g", "t", 0) == 39


async def test_one_groups_offsets_become_anothers(parts):
    await update(parts, 7)
    parts.create_topic("u")
    await update(parts, 5, topic="u")
    parts.offsets.commit("g", "gone", 0, 4)

    async def clone(to: str, topic: str | None = None, **others) -> dict[str, dict[int, int]]:
        header = CloneGroupOffsetRequestHeader(src_group="g", dest_group=to, topic=topic, **others)
        await succeed(parts.offsets, parts.connect(), request(RequestCode.CLONE_GROUP_OFFSET, header))
        return parts.offsets.of_group(to)

    assert await clone("one", "t") == {"t": {0: 7}}
    assert await clone("all") == {"t": {0: 7}, "u": {0: 5}}
    await succeed(parts.members, parts.connect(), heartbeat("c", {"g": ("u",)}))
    assert await clone("online") == {"u": {0: 5}}
    assert await clone("offline", offline=True) == {"t": {0: 7}, "u": {0: 5}}


async def test_the_smallest_offsets_of_other_groups(parts):
    for group, offset in (("a", 5), ("b", 3), ("c", 1)):
        parts.offsets.commit(group, "t", 0, offset)
    parts.offsets.commit("g", "t", 0, 4)

    async def smallest(compare: str, filtered: str | None = None) -> dict[int, int]:
        header = QueryCorrectionOffsetRequestHeader(topic="t", compare_group=compare, filter_groups=filtered)
        answer = await succeed(parts.offsets, parts.connect(), request(RequestCode.QUERY_CORRECTION_OFFSET, header))
        return dict(QueryCorrectionOffsetBody.decode(answer.body).correction_offsets)

    assert await smallest("g") == {0: 1}
    assert await smallest("x", "c") == {0: 3}
    assert await smallest("b", "b,c") == {0: LARGEST}, "it is behind all others: nothing to correct"


# --- queues -----------------------------------------------------------------------------------------------------------


async def test_the_limits_of_a_queue(parts):
    async def offset(code: RequestCode, header_type) -> str:
        header = header_type(topic="t", queue_id=0)
        return (await succeed(parts.offsets, parts.connect(), request(code, header))).fields["offset"]

    assert await offset(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader) == "0"
    parts.append("t")
    parts.append("t")
    assert await offset(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader) == "2"
    assert await offset(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader) == "0"


async def test_the_offset_of_a_moment(parts):
    times = []
    for _ in range(2):
        times += [parts.append("t").timestamp, parts.append("t").timestamp]
        await parts.clock.advance(1.0)

    async def search(timestamp: int, boundary: str | None = None) -> int:
        header = SearchOffsetRequestHeader(topic="t", queue_id=0, timestamp=timestamp, boundary_type=boundary)
        answer = await succeed(parts.offsets, parts.connect(), request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))
        return int(answer.fields["offset"])

    assert times[0] == times[1] < times[2]
    assert await search(times[2]) == 2
    assert await search(times[2], "LOWER") == 2
    assert await search(times[2], "UPPER") == 3
    header = GetEarliestMsgStoretimeRequestHeader(topic="t", queue_id=0)
    wanted = request(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
    assert (await succeed(parts.offsets, parts.connect(), wanted)).fields == {"timestamp": str(times[0])}
    wanted.fields["queueId"] = "1"
    assert (await succeed(parts.offsets, parts.connect(), wanted)).fields == {"timestamp": "-1"}


# --- resets by the broker ---------------------------------------------------------------------------------------------


async def test_a_reset_waits_for_the_next_pull_and_until_then_commits_do_not_count(parts):
    for _ in range(4):
        parts.append("t")
    await update(parts, 4)
    answer = await reset(parts, timestamp=0)
    assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 0, queue(1): 0}
    assert (await query(parts)).fields == {"offset": "0"}
    answer = await update(parts, 4)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "Offset has been previously reset")
    assert (await query(parts)).fields == {"offset": "0"}
    assert parts.offsets.has_reset("g", "t", 0)
    assert parts.offsets.take_reset("g", "t", 0) == 0
    assert parts.offsets.take_reset("g", "t", 0) is None
    assert parts.offsets.take_reset("x", "t", 0) is None
    await update(parts, 4)
    assert (await query(parts)).fields == {"offset": "4"}


async def test_a_reset_to_now_and_of_one_queue(parts):
    for _ in range(4):
        parts.append("t")
    assert ResetOffsetBody.decode((await reset(parts, -1)).body).offset_table == {queue(0): 4, queue(1): 0}
    answer = await reset(parts, -1, queue_id=0, offset=2)
    assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 2}
    assert ResetOffsetBody.decode((await reset(parts, 0, queue_id=0)).body).offset_table == {queue(0): 0}
    answer = await reset(parts, -1, queue_id=0, offset=6)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "Target offset 6 not in consume queue range [0-4]",
    )


async def test_a_reset_of_what_is_not_there_is_refused(parts):
    assert (await reset(parts, topic="x")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await reset(parts, group="x")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


# --- resets by members ------------------------------------------------------------------------------------------------


@pytest.fixture
def by_members(parts) -> Parts:
    parts.settings.server_side_reset = False
    for _ in range(4):
        parts.append("t")
    for queue_id in (0, 1):
        parts.offsets.commit("g", "t", queue_id, 2)
    return parts


async def test_members_are_told_to_reset(by_members):
    member = by_members.connect()
    await succeed(by_members.members, member, heartbeat("one", {"g": ("t",)}))
    member.sent.clear()
    answer = await reset(by_members, timestamp=0)
    wanted = {queue(0): 0, queue(1): 0}
    assert ResetOffsetBody.decode(answer.body).offset_table == wanted
    (notice,) = member.sent
    assert (notice.code, notice.is_one_way) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
    assert (notice.fields["group"], notice.fields["topic"], notice.fields["timestamp"]) == ("g", "t", "0")
    assert ResetOffsetBody.decode(notice.body).offset_table == wanted
    assert by_members.offsets.get("g", "t", 0) == 2, "that is the members' matter"
    answer = await reset(by_members, timestamp=-1, is_force=False)
    assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 2, queue(1): 0}, "never forward"


async def test_asked_by_cpp_members_are_told_in_its_form(by_members):
    member = by_members.connect()
    await succeed(by_members.members, member, heartbeat("one", {"g": ("t",)}))
    member.sent.clear()
    await reset(by_members, language=LanguageCode.CPP)
    assert loads(member.sent[0].body)["offsetTable"][0] == {
        "brokerName": "broker-a",
        "queueId": 0,
        "topic": "t",
        "offset": 0,
    }


async def test_without_members_nothing_can_be_reset(by_members):
    assert (await reset(by_members)).code == ResponseCode.CONSUMER_NOT_ONLINE
    assert (await reset(by_members, topic="x")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await reset(by_members, group="x")).code == ResponseCode.SYSTEM_ERROR
    await succeed(by_members.members, by_members.connect(), heartbeat("old", {"g": ("t",)}, version=20))
    assert "does not support" in ((await reset(by_members)).remark or "")
