"""The ways to say when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from rocketstream.admin.moments import parse_moment, resolve_moment
from rocketstream.errors import ConfigurationError

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        (" latest ", "latest"),
        ("now", NOW),
        ("15m", NOW - 900_000),
        ("2h ago", NOW - 7_200_000),
        ("1.5d", NOW - 129_600_000),
        ("30s", NOW - 30_000),
        ("250ms", NOW - 250),
        ("1700000000001", 1_700_000_000_001),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("2023-11-14T22:13:20.5+00:00", NOW + 500),
    ],
)
def test_what_a_person_types(text, expected):
    assert parse_moment("--to", text, NOW) == expected


def test_a_time_without_a_zone_is_local():
    local = datetime(2026, 3, 1, 12, 0)
    assert parse_moment("--to", "2026-03-01T12:00", NOW) == round(local.timestamp() * 1000)
    assert parse_moment("--to", "2026-03-01 12:00:00", NOW) == round(local.timestamp() * 1000)


def test_what_a_program_gives():
    assert resolve_moment("to", datetime.fromtimestamp(NOW / 1000, UTC)) == NOW
    assert resolve_moment("to", datetime.fromtimestamp(NOW / 1000, timezone(timedelta(hours=8)))) == NOW
    assert resolve_moment("to", NOW) == NOW
    assert resolve_moment("to", "latest") == "latest"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("yesterday", "--to 'yesterday': expected earliest, latest, a time such as 2026-03-01T12:00"),
        ("", "--to '': expected earliest"),
        ("15 weeks", "--to '15 weeks': expected earliest"),
        (
            "1700000000",
            "--to=1700000000 is no time in milliseconds since the epoch (too small: seconds, or an offset?)",
        ),
        ("-5m", "--to '-5m': expected earliest"),
    ],
)
def test_what_is_no_time(text, problem):
    with pytest.raises(ConfigurationError) as caught:
        parse_moment("--to", text, NOW)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("value", [None, True, 5, 1.5, "soon", -1])
def test_what_is_no_moment(value):
    with pytest.raises(ConfigurationError, match=r"^to="):
        resolve_moment("to", value)
