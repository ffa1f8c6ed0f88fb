"""Ids of rows: stable whatever order Spark gives the rows in, and never shared by two rows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketstream.errors import ConfigurationError
from rocketstream.spark.row_ids import (
    CopyCounter,
    RowId,
    RowIds,
    TaskId,
    batch_task,
    check_write_id,
    parse_row_id,
    stream_task,
)

TASK = TaskId("3f1c-query", 7, 2)
rows_of_a_task = st.lists(st.sampled_from([b"a", b"b", b"c", b"", b"\x02"]) | st.binary(max_size=3), max_size=60)


def ids_of(rows: list[bytes], cuts: list[int] | None = None, **options: int) -> list[str]:
    """The ids of rows that come in parts."""
    ids = RowIds(TASK, **options)
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts or []), len(rows)]
    return [one.decode() for start, end in pairwise(bounds) for one in ids.next(rows[start:end]).to_pylist()]


@given(rows_of_a_task, st.lists(st.integers(0, 60), max_size=3), st.randoms())
def test_a_row_keeps_its_id_in_whatever_order_and_parts_the_rows_come(rows, cuts, random):
    shuffled = random.sample(rows, len(rows))
    first, second = ids_of(rows), ids_of(shuffled, cuts)
    assert len(set(first)) == len(rows), "no two rows share one"
    assert set(first) == set(second)
    by_id = dict(zip(first, rows, strict=True))
    assert all(by_id[one] == row for one, row in zip(second, shuffled, strict=True))


def test_what_an_id_says():
    first, second, third = map(parse_row_id, ids_of([b"x", b"y", b"x"]))
    assert first[:3] == ("3f1c-query", 7, 2)
    assert (first.copy, second.copy, third.copy) == (0, 0, 1)
    assert first.digest == third.digest != second.digest
    assert parse_row_id(str(first)) == first
    assert ids_of([]) == []


def test_an_id_does_not_change_with_the_version_of_this_package():
    # Rows of a stream that is upgraded in the middle of a batch come again with their ids.
    assert ids_of([b"body", b"body"]) == ["3f1c-query:7:2:ec2edbeabbed4a40:0", "3f1c-query:7:2:ec2edbeabbed4a40:1"]


def test_the_same_row_of_another_task_has_another_id():
    tasks = [TASK, TASK._replace(batch=8), TASK._replace(partition=3), TASK._replace(write_id="other")]
    assert len({RowIds(task).next([b"row"])[0].as_py() for task in tasks}) == 4


@given(st.lists(st.binary(max_size=1), max_size=40), st.lists(st.integers(0, 40), max_size=4))
@example([b"the same"] * 40, [8, 16, 24, 30])
def test_rows_beyond_what_is_kept_in_memory_never_share_an_id(rows, cuts):
    ids = ids_of(rows, cuts, stretch=8)
    assert len(set(ids)) == len(rows)


def test_what_is_kept_of_the_rows_is_bounded():
    ids = RowIds(TASK, stretch=100)
    for number in range(50):
        ids.next([b"%d" % (number * 30 + row) for row in range(30)])
        assert int(repr(ids).split()[-2]) < 130, repr(ids)


@given(st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=12))
def test_copies_are_counted_over_all_that_came(batches):
    counter, seen = CopyCounter(), Counter()
    for batch in batches:
        expected = []
        for digest in batch:
            expected.append(seen[digest])
            seen[digest] += 1
        assert counter.count(np.array(batch, np.uint64)).tolist() == expected
    assert str(sum(seen.values())) in repr(counter)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "q:1:2",
        "q:1:2:0123456789abcdef",
        "q:1:2:0123456789ABCDEF:0",
        "q:1:2:0123:0",
        "q:-1:2:0123456789abcdef:0",
        "q",
    ],
)
def test_other_texts_are_no_ids(text):
    with pytest.raises(ConfigurationError, match="is no row id"):
        parse_row_id(text)


def test_a_task_of_a_stream_is_known_by_what_spark_tells_it():
    told = {"sql.streaming.queryId": "e51", "streaming.sql.batchId": "12"}
    assert stream_task(told.get, 3) == TaskId("e51", 12, 3)
    for name in told:
        with pytest.raises(ConfigurationError, match="cannot be given stable ids"):
            stream_task({**told, name: None}.get, 3)


def test_a_task_of_a_batch_write_is_known_by_the_write():
    assert str(batch_task("run-2026-11-16", 4)) == "run-2026-11-16:0:4"
    assert str(RowId("w", 0, 4, "0" * 16, 1)) == f"w:0:4:{'0' * 16}:1"


@pytest.mark.parametrize("write_id", ["", "a:b", "a b", "ü", "x" * 129, "a\n"])
def test_write_ids_that_could_not_be_taken_apart_are_refused(write_id):
    with pytest.raises(ConfigurationError, match="writeId="):
        check_write_id(write_id)
    check_write_id("x" * 128)
