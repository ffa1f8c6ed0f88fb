"""Codes against RocketMQ's own constants (golden/protocol-*.txt), and the texts made from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstream.wire import codes
from rocketstream.wire.codes import (
    PULL_STATUS_BY_CODE,
    PullStatus,
    RequestCode,
    ResponseCode,
    code_name,
    request_name,
)

GOLDEN = Path(__file__).parent / "golden"
ENUM_OF = {
    "RequestCode": RequestCode,
    "ResponseCode": ResponseCode,
    "RemotingSysResponseCode": ResponseCode,
    "LanguageCode": codes.LanguageCode,
}


def java_codes(version: str) -> dict[tuple[str, str], int]:
    lines = (GOLDEN / f"protocol-{version}.txt").read_text("utf-8").splitlines()
    found = [line.split() for line in lines if line.startswith("CODE ")]
    return {(kind, name): int(value) for _, kind, name, value in found}


@pytest.fixture(params=["5.5.0", "4.9.7"])
def java(request: pytest.FixtureRequest) -> dict[tuple[str, str], int]:
    return java_codes(request.param)


def test_every_code_has_javas_value(java: dict[tuple[str, str], int]) -> None:
    checked = 0
    for (kind, name), value in java.items():
        ours = ENUM_OF[kind].__members__.get(name)
        if ours is not None:
            assert (name, int(ours)) == (name, value)
            checked += 1
    assert checked > 130


def test_only_the_controllers_codes_are_left_out(java: dict[tuple[str, str], int]) -> None:
    ours = {name for enum in ENUM_OF.values() for name in enum.__members__}
    missing = {name: value for (_, name), value in java.items() if name not in ours}
    assert all(1000 < value < 1100 or 2000 <= value < 2100 for value in missing.values()), missing


def test_no_code_is_invented() -> None:
    known = {name for version in ("5.5.0", "4.9.7") for _, name in java_codes(version)}
    assert {name for enum in ENUM_OF.values() for name in enum.__members__} <= known


def test_names_for_error_texts() -> None:
    assert code_name(19) == "PULL_NOT_FOUND"
    assert code_name(209) == "POLLING_FULL"
    assert code_name(4711) == "code 4711"
    assert request_name(11) == "PULL_MESSAGE"
    assert request_name(4711) == "request 4711"


def test_pull_answers_map_to_statuses() -> None:
    assert PULL_STATUS_BY_CODE == {
        0: PullStatus.FOUND,
        19: PullStatus.NO_NEW_MSG,
        20: PullStatus.NO_MATCHED_MSG,
        21: PullStatus.OFFSET_ILLEGAL,
    }


def test_pull_flags() -> None:
    assert {flag.name: int(flag) for flag in codes.PullFlag} == {
        "COMMIT_OFFSET": 1,
        "SUSPEND": 2,
        "SUBSCRIPTION": 4,
        "CLASS_FILTER": 8,
        "LITE_PULL": 16,
    }
