"""Many responses walked side by side begin their records where each does by itself."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketstream.wire import record_table
from rocketstream.wire.record import MIN_RECORD_SIZE
from rocketstream.wire.record_table import record_starts, response_starts


def record(size: int, told: int | None = None) -> bytes:
    """Bytes of a size that say to have it, or another."""
    return struct.pack(">I", size if told is None else told).ljust(size, b"\x5a")[:size]


SOUND = st.integers(MIN_RECORD_SIZE, MIN_RECORD_SIZE + 9).map(record)
TOLD = st.integers(MIN_RECORD_SIZE, MIN_RECORD_SIZE + 20) | st.sampled_from([0, MIN_RECORD_SIZE - 1, 2**31, 2**32 - 1])
WRONG = st.tuples(st.integers(0, MIN_RECORD_SIZE + 9), TOLD).map(lambda pair: record(*pair))
RESPONSES = st.lists(
    st.one_of(st.lists(SOUND, max_size=9), st.lists(SOUND | WRONG, max_size=5)).map(b"".join), max_size=12
)


@pytest.mark.parametrize("worth_it", [1, 3, 1000])
@given(responses=RESPONSES)
@example(responses=[b"\x00"])  # less than the size of a record's size
def test_responses_are_walked_as_each_by_itself(worth_it, responses):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_table, "_WORTH_IT", worth_it)
        buffer = b"".join(responses)
        starts, parts, damaged = response_starts(buffer, [len(response) for response in responses])
    expected: list[tuple[int, int]] = []
    wrong: list[int] = []
    begin = 0
    for number, response in enumerate(responses):
        found = record_starts(buffer, begin, begin + len(response))
        if found is None:
            wrong.append(number)
        else:
            expected += [(start, number) for start in found]
        begin += len(response)
    assert list(zip(starts.tolist(), parts.tolist(), strict=True)) == expected
    assert damaged == wrong
