"""How far a run is, out of Spark's progress documents."""

from __future__ import annotations

from typing import Any

from rocketstream.message import MessageQueue
from rocketstream.spark.pipeline.progress import Tally, run_progress
from rocketstream.spark.pipeline.shared_groups import finished_by_all


def document(batch: int, *, rows: int = 10, end: int = 10, latest: Any = 15, bad: int = 0, idle: bool = False) -> Any:
    def offsets(count: int) -> dict[str, Any]:
        return {"orders": {"broker-a": {"0": count, "1": count}}}

    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{batch:02}.{'5' if idle else '0'}00Z",
        "numInputRows": 0 if idle else rows,
        "processedRowsPerSecond": 0.0 if idle else 250.0,
        "durationMs": {"latestOffset": 3} if idle else {"addBatch": 100, "triggerExecution": 1500},
        "sources": [{"endOffset": offsets(end), "latestOffset": None if latest is None else offsets(latest)}],
        "observedMetrics": {} if idle else {"orders": {"rows": rows, "bad_rows": bad}},
    }


def test_rows_are_summed_and_lag_is_what_is_left() -> None:
    tally = Tally("files", "sink")
    assert tally.progress("waiting").lag is None
    tally.add([document(0), document(1, bad=2)])
    tally.add([document(1, bad=2)])  # again the same
    progress = tally.progress("running")
    assert (progress.rows, progress.batches, progress.bad_rows) == (20, 2, 2)
    assert (progress.lag, progress.rows_per_second, progress.batch_seconds) == (10, 250.0, 1.5)


def test_idle_documents_tell_the_lag_but_are_no_batches() -> None:
    tally = Tally("files", "sink")
    tally.add([document(0), document(0, latest=40, idle=True)])
    progress = tally.progress("waiting")
    assert (progress.batches, progress.batch_seconds, progress.lag, progress.rows_per_second) == (1, 1.5, 60, 0.0)


def test_a_gap_between_documents_is_seen() -> None:
    tally = Tally("files", "sink")
    assert not tally.missed(document(0))
    assert tally.missed(document(3))
    tally.add([document(0)])
    assert not tally.missed(document(0, idle=True))
    assert not tally.missed(document(1))
    assert tally.missed(document(2))


def test_offsets_may_be_text_or_unknown() -> None:
    tally = Tally("files", "sink")
    one = document(0)
    one["sources"][0]["endOffset"] = '{"orders": {"broker-a": {"0": 14, "1": 15}}}'
    tally.add([one])
    assert tally.progress("x").lag == 1
    again = Tally("files", "sink")
    again.add([document(1, latest=None)])
    assert again.progress("x").lag is None
    tally.add([document(1, latest=None)])
    assert tally.progress("x").lag == 10  # by what was the latest before
    one = document(2)
    one["sources"][0]["endOffset"] = "5"
    tally.add([one])
    assert tally.progress("x").lag == 30


def test_a_bad_row_counts_once() -> None:
    first, second, letters = Tally("a", "sink"), Tally("b", "sink"), Tally("orders.dead_letter", "dead_letter")
    first.add([document(0, bad=5)])
    second.add([document(0, bad=3)])
    dropped = run_progress({"a": (first, "running"), "b": (second, "ended")})
    assert dropped.dead_letters == 5
    all_three = {"a": (first, "running"), "b": (second, "running"), "l": (letters, "running")}
    assert run_progress(all_three).dead_letters == 0  # none is written yet in this run
    letters.add([document(0, bad=4)])
    written = run_progress(all_three)
    assert written.dead_letters == 4
    assert (written.rows, written.lag, written.rows_per_second) == (10, 10, 250.0)
    assert written.query("b").state == "running"
    assert written.to_dict()["queries"][2]["name"] == "orders.dead_letter"


def test_lag_is_unknown_until_all_have_told() -> None:
    first, second = Tally("a", "sink"), Tally("b", "sink")
    first.add([document(0)])
    assert run_progress({"a": (first, "running"), "b": (second, "running")}).lag is None


def test_a_group_is_where_the_last_of_its_queries_is() -> None:
    one, two, three = (MessageQueue("orders", "broker-a", number) for number in range(3))
    assert finished_by_all([[{one: 5, two: 7}], [{one: 6, two: 3, three: 1}]]) == {one: 5, two: 3}
    assert finished_by_all([[{one: 5}, {one: 4}], [{one: 9}]]) == {one: 4}  # two sources of one query
    assert finished_by_all([[{one: 5}], []]) == {}  # the other has not begun
    assert finished_by_all([]) == {}
