"""Transactions: half messages, their end, and the questions about those without one."""

from __future__ import annotations

import pytest

from rocketstream.wire.codes import RequestCode, ResponseCode, TransactionFlag
from rocketstream.wire.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from rocketstream.wire.message_id import decode_offset_id
from rocketstream.wire.properties import decode_properties
from rocketstream.wire.record_decoder import decode_record
from rocketstream.wire.sysflag import TransactionType, transaction_type
from tests.broker.send_bench import KEY, Bench, FakeConnection

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT, ROLLBACK = TransactionFlag.COMMIT, TransactionFlag.ROLLBACK


@pytest.fixture
async def bench():
    bench = Bench()
    bench.create(queues=3)
    yield bench
    bench.stop()


async def begin(bench, body=b"x", **properties):
    properties = {"TRAN_MSG": "true", "PGROUP": "producers", **properties}
    answer = await bench.send(body=body, queue_id=2, properties=properties)
    assert answer.code == ResponseCode.SUCCESS
    return answer


async def end(bench, answer, how=COMMIT, **more):
    values = {
        "producer_group": "producers",
        "tran_state_table_offset": int(answer.fields["queueOffset"]),
        "commit_log_offset": decode_offset_id(answer.fields["msgId"]).commit_log_offset,
        "commit_or_rollback": int(how),
        "msg_id": KEY,
        "transaction_id": KEY,
    }
    return await bench.ask(RequestCode.END_TRANSACTION, EndTransactionRequestHeader(**(values | more)))


def questions(connection):
    return [
        (CheckTransactionStateRequestHeader.from_fields(one.fields), decode_record(one.body))
        for one in connection.sent
        if one.code == RequestCode.CHECK_TRANSACTION_STATE
    ]


async def test_a_commit(bench):
    answer = await begin(bench, TAGS="a")
    assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("2", "0")
    assert answer.fields["transactionId"] == KEY
    assert bench.stored(queue_id=2) == []
    (half,) = bench.stored(HALF)
    assert transaction_type(half.sys_flag) == TransactionType.NOT
    kept = decode_properties(half.properties)
    assert (kept["REAL_TOPIC"], kept["REAL_QID"], kept["__transactionId__"]) == ("t", "2", KEY)
    assert (await end(bench, answer)).code == ResponseCode.SUCCESS
    (record,) = bench.stored(queue_id=2)
    assert (record.body, record.prepared_transaction_offset) == (b"x", half.position)
    assert transaction_type(record.sys_flag) == TransactionType.COMMIT
    properties = decode_properties(record.properties)
    assert (properties["TAGS"], properties["TRAN_MSG"], properties["__transactionId__"]) == ("a", "true", KEY)
    assert "REAL_TOPIC" not in properties
    assert bench.bodies(OP) == [b"0,"]
    await bench.clock.advance(300)
    assert len(bench.stored(HALF)) == 1


async def test_a_rollback(bench):
    answer = await begin(bench)
    assert (await end(bench, answer, ROLLBACK)).code == ResponseCode.SUCCESS
    assert bench.stored(queue_id=2) == []
    await bench.clock.advance(300)
    assert len(bench.stored(HALF)) == 1


async def test_an_end_that_is_none(bench):
    answer = await begin(bench)
    assert await end(bench, answer, TransactionFlag.NOT_TYPE) is None
    assert bench.stored(OP) == []


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"commit_or_rollback": 3}, "commitOrRollback field wrong"),
        ({"producer_group": "others"}, "The producer group wrong"),
        ({"tran_state_table_offset": 5}, "The transaction state table offset wrong"),
        ({"commit_log_offset": 1}, "Find prepared transaction message failed"),
    ],
)
async def test_ends_that_are_refused(bench, wrong, remark):
    answer = await begin(bench)
    refused = await end(bench, answer, **wrong)
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert bench.stored(queue_id=2) == bench.stored(OP) == []


async def test_a_producer_is_asked_until_it_knows(bench):
    await bench.heartbeat(producer="producers")
    await begin(bench, b"x" * 100)
    await bench.clock.advance(29.9)
    assert questions(bench.connection) == []
    await bench.clock.advance(0.1)
    ((header, message),) = questions(bench.connection)
    half = bench.stored(HALF)[-1]
    assert (header.msg_id, header.transaction_id, header.topic) == (KEY, KEY, HALF)
    assert (header.commit_log_offset, header.tran_state_table_offset) == (half.position, 1)
    assert header.offset_msg_id == half.message_id
    assert (message.topic, message.body, message.properties["TRANSACTION_CHECK_TIMES"]) == ("t", b"x" * 100, "1")
    assert message.message_id == KEY
    assert bench.connection.sent[-1].is_one_way
    await bench.clock.advance(30)
    ((_, _), (header, message)) = questions(bench.connection)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "2"
    values = {
        "commit_log_offset": header.commit_log_offset,
        "tran_state_table_offset": header.tran_state_table_offset,
        "producer_group": "producers",
        "commit_or_rollback": int(COMMIT),
        "from_transaction_check": True,
        "msg_id": KEY,
    }
    await bench.ask(RequestCode.END_TRANSACTION, EndTransactionRequestHeader(**values))
    await bench.clock.advance(300)
    assert len(questions(bench.connection)) == 2
    assert bench.bodies(queue_id=2) == [b"x" * 100]


async def test_an_end_by_the_old_place_counts(bench):
    await bench.heartbeat(producer="producers")
    answer = await begin(bench)
    await bench.clock.advance(30)
    assert len(questions(bench.connection)) == 1
    assert (await end(bench, answer)).code == ResponseCode.SUCCESS
    await bench.clock.advance(120)
    assert len(questions(bench.connection)) == 1
    assert len(bench.stored(queue_id=2)) == 1


async def test_producers_take_turns(bench):
    others = [FakeConnection("127.0.0.1:1"), FakeConnection("127.0.0.1:2")]
    for other in others:
        await bench.heartbeat(producer="producers", connection=other)
    await begin(bench)
    await bench.clock.advance(60)
    assert [len(questions(other)) for other in others] == [1, 1]


async def test_nobody_is_there_to_be_asked(bench, caplog):
    await begin(bench)
    await bench.clock.advance(30)
    assert "nobody of producer group producers" in caplog.text


async def test_after_many_questions_it_is_given_up(bench):
    bench.settings.transaction_check_max = 3
    await bench.heartbeat(producer="producers")
    await begin(bench)
    await bench.clock.advance(300)
    assert len(questions(bench.connection)) == 3
    (given_up,) = bench.stored("TRANS_CHECK_MAX_TIME_TOPIC")
    assert decode_properties(given_up.properties)["TRANSACTION_CHECK_TIMES"] == "3"
    # Until an operator wants it to be asked about again.
    header = ResumeCheckHalfMessageRequestHeader(topic="t", msg_id=given_up.message_id)
    assert (await bench.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)).code == ResponseCode.SUCCESS
    await bench.clock.advance(60)
    assert questions(bench.connection)[-1][1].properties["TRANSACTION_CHECK_TIMES"] == "2"
    for wrong in ("", "00" * 16):
        header = ResumeCheckHalfMessageRequestHeader(topic="t", msg_id=wrong)
        assert (await bench.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)).code == ResponseCode.SYSTEM_ERROR


async def test_a_message_may_want_more_time(bench):
    await bench.heartbeat(producer="producers")
    answer = await begin(bench, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    await bench.clock.advance(90)
    assert questions(bench.connection) == []
    # Too late for an end of its own accord, and time for a question.
    await bench.clock.advance(30)
    assert len(questions(bench.connection)) == 1
    assert (await end(bench, answer)).code == ResponseCode.ILLEGAL_OPERATION


async def test_an_end_while_it_lets_others_pass(bench):
    await bench.heartbeat(producer="producers")
    answer = await begin(bench, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    await bench.clock.advance(60)
    assert len(bench.stored(HALF)) == 3
    assert (await end(bench, answer)).code == ResponseCode.SUCCESS
    await bench.clock.advance(300)
    assert questions(bench.connection) == []


async def test_a_new_life_knows_what_is_open(tmp_path):
    bench = Bench(tmp_path, flush="async")
    bench.create(queues=3)
    first = await begin(bench, b"1", UNIQ_KEY="1" * 32)
    second = await begin(bench, b"2", UNIQ_KEY="2" * 32)
    await begin(bench, b"3", UNIQ_KEY="3" * 32)
    await end(bench, first)
    await bench.clock.advance(30)
    for saved in (None, {"transactions": {}}):
        bench.restart(saved=saved)
        assert repr(bench.transactions) == "<Transactions 2 open>"
    # The producer ends one by the place that it knows of.
    await end(bench, second, ROLLBACK)
    bench.connection.sent.clear()
    await bench.heartbeat(producer="producers")
    await bench.clock.advance(30)
    assert [message.body for _, message in questions(bench.connection)] == [b"3"]
    bench.restart()
    assert repr(bench.transactions) == "<Transactions 1 open>"
    bench.stop()
