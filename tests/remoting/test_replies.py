"""What response codes mean."""

from __future__ import annotations

import pytest

from rocketstream.errors import BrokerError, ProtocolError
from rocketstream.remoting.replies import expect_success, read_pull_result
from rocketstream.wire.codes import PullStatus, RequestCode, ResponseCode
from rocketstream.wire.command import Command, request, response

PULL = RequestCode.PULL_MESSAGE
FIELDS = {"suggestWhichBrokerId": "1", "nextBeginOffset": "42", "minOffset": "3", "maxOffset": "99"}


def answer(code: int, fields: dict[str, str] = FIELDS, remark: str | None = None) -> Command:
    return response(request(PULL), code, remark, fields, b"records")


@pytest.mark.behaviour("REM-10")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, PullStatus.FOUND),
        (ResponseCode.PULL_NOT_FOUND, PullStatus.NO_NEW_MSG),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, PullStatus.NO_MATCHED_MSG),
        (ResponseCode.PULL_OFFSET_MOVED, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_pull_codes_map_to_statuses(code, status):
    result = read_pull_result("b:1", PULL, answer(code))
    assert result.status is status
    assert (result.next_offset, result.min_offset, result.max_offset) == (42, 3, 99)
    assert result.suggested_broker_id == 1
    assert result.body == b"records"


@pytest.mark.behaviour("REM-09", "REM-10")
@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_NOT_EXIST, 4711])
def test_any_other_code_is_a_broker_error_with_its_code_and_remark(code):
    for read in (read_pull_result, expect_success):
        with pytest.raises(BrokerError) as caught:
            read("b:1", PULL, answer(code, {}, "the broker's own words"))
        assert (caught.value.address, caught.value.code) == ("b:1", code)
        assert caught.value.remark == "the broker's own words"
        assert "to PULL_MESSAGE: the broker's own words" in str(caught.value)


def test_a_pull_answer_without_its_offsets_is_a_protocol_error():
    with pytest.raises(ProtocolError, match="nextBeginOffset"):
        read_pull_result("b:1", PULL, answer(ResponseCode.SUCCESS, {"suggestWhichBrokerId": "0"}))
