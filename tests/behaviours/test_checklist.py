"""The checklist counts what passed, and only that."""

from __future__ import annotations

import pytest

from tests.behaviours.checklist import DOCUMENT, behaviour_ids, lines
from tests.whole_run import Checklist

PLUGINS = ("-p", "tests.whole_run", "-p", "tests.behaviours.checklist")


@pytest.fixture(autouse=True)
def settings(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        """
        [pytest]
        asyncio_default_fixture_loop_scope = function
        markers = behaviour(*ids): what is proven
        """
    )


def test_the_document_has_each_row_once():
    ids = behaviour_ids(DOCUMENT.read_text("utf-8"))
    assert len(ids) == len(set(ids)) == 120
    assert ids[0] == "REM-01"
    assert ids[-1] == "POP-04"


def test_a_row_is_proven_by_a_passing_test_and_no_failing_one():
    checklist = Checklist(["A-01", "A-02", "A-03", "B-01"])
    checklist.record(["A-01", "A-02"], passed=True)
    checklist.record(["A-02"], passed=False)
    assert checklist.proven == ["A-01"]
    assert checklist.missing == ["A-02", "A-03", "B-01"]
    assert lines(checklist) == [
        "1 of 4 behaviours have a passing test",
        "  missing A: 02 03",
        "  missing B: 01",
    ]


def test_a_run_reports_passed_failed_and_skipped_as_they_are(pytester: pytest.Pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.behaviour("REM-01")
        def test_passes(): pass

        @pytest.mark.behaviour("REM-02")
        def test_fails(): assert False

        @pytest.mark.behaviour("REM-03")
        def test_skips(): pytest.skip("no broker")

        @pytest.fixture
        def broken(): raise RuntimeError

        @pytest.mark.behaviour("REM-04")
        def test_errors(broken): pass
        """
    )
    result = pytester.runpytest_inprocess(*PLUGINS)
    result.stdout.fnmatch_lines(["1 of 120 behaviours have a passing test", "  missing REM: 02 03 04 05 *"])


def test_an_id_that_is_not_in_the_document_ends_the_run(pytester: pytest.Pytester):
    pytester.makepyfile('import pytest\n\n@pytest.mark.behaviour("REM-99")\ndef test_x(): pass\n')
    result = pytester.runpytest_inprocess(*PLUGINS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_x claims [[]'REM-99']*"])
