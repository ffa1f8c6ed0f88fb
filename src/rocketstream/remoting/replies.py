"""What a response's code means: an answer, or a broker's error with its own words (REM-09, REM-10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rocketstream.errors import BrokerError
from rocketstream.remoting.denials import denial
from rocketstream.wire.codes import (
    POP_STATUS_BY_CODE,
    PULL_STATUS_BY_CODE,
    PopStatus,
    PullStatus,
    RequestCode,
    ResponseCode,
    code_name,
    request_name,
)
from rocketstream.wire.command import Command
from rocketstream.wire.headers.pop import PopMessageResponseHeader
from rocketstream.wire.headers.pull import PullMessageResponseHeader


def broker_error(address: str, request_code: int, response: Command) -> BrokerError:
    """The error that a response with an error code stands for."""
    denied = denial(address, request_code, response)
    if denied is not None:
        return denied
    return BrokerError(
        address, response.code, response.remark, request=request_name(request_code), code_name=code_name(response.code)
    )


def expect_success(address: str, request_code: int, response: Command) -> Command:
    """The response itself if its code is SUCCESS; any other code is a `BrokerError`."""
    if response.code != ResponseCode.SUCCESS:
        raise broker_error(address, request_code, response)
    return response


class PullResult(NamedTuple):
    """What a broker said to a pull; `body` holds the stored messages and is decoded only when something was found."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes
    offset_delta: int = 0
    """What lies between the offsets in the body and those of the queue that was asked: static topics only (5.x)."""


def read_pull_result(address: str, request_code: int, response: Command) -> PullResult:
    """The result of a pull; a code that is none of the four statuses is a `BrokerError`."""
    status = PULL_STATUS_BY_CODE.get(response.code)
    if status is None:
        raise broker_error(address, request_code, response)
    fields = response.fields
    try:
        # By hand what the typed header does: a pull has 32 messages, and this would be a tenth of what they cost.
        return PullResult(
            status,
            int(fields["nextBeginOffset"]),
            int(fields["minOffset"]),
            int(fields["maxOffset"]),
            int(fields["suggestWhichBrokerId"]),
            response.body,
            int(fields.get("offsetDelta") or 0),
        )
    except (KeyError, ValueError):
        pass  # something is odd: the header says what
    header = PullMessageResponseHeader.from_fields(fields)
    return PullResult(
        status=status,
        next_offset=header.next_begin_offset,
        min_offset=header.min_offset,
        max_offset=header.max_offset,
        suggested_broker_id=header.suggest_which_broker_id,
        body=response.body,
        offset_delta=header.offset_delta or 0,
    )


@dataclass(frozen=True, slots=True)
class PopResult:
    """What a broker said to a pop; the lease (`header`) is there when something was found."""

    status: PopStatus
    header: PopMessageResponseHeader | None
    body: bytes


def read_pop_result(address: str, response: Command) -> PopResult:
    """The result of a pop (POP-01); a code that is none of its statuses is a `BrokerError`."""
    status = POP_STATUS_BY_CODE.get(response.code)
    if status is None:
        raise broker_error(address, RequestCode.POP_MESSAGE, response)
    if status is PopStatus.FOUND and not response.body:
        status = PopStatus.NO_NEW_MSG
    header = PopMessageResponseHeader.from_fields(response.fields) if status is PopStatus.FOUND else None
    return PopResult(status, header, response.body)
