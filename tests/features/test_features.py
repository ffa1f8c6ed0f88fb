"""The feature table says what tests show, and a run of everything fails where it would have to say less."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features import plugin
from tests.features.page import Shown, complaints, page
from tests.features.sections import SectionError, load_sections

PLUGINS = ("-p", "tests.whole_run", "-p", "tests.features.plugin", "-p", "no:cacheprovider")
LITE = """
title = "Lite pull"
[rows]
"lite/seek" = "Seek to | wherever"
"lite/pop" = "Pop"
"lite/fork" = "Forked"
[absent]
"lite/pop" = { "4.9.7" = "brokers before 5.0 have no pop" }
[client]
rows = ["lite/fork"]
"""
TESTS = """
import pytest

@pytest.mark.feature("lite/seek", "lite/pop")
@pytest.mark.parametrize("version", ["embedded", "5.5.0"])
def test_both(version): pass

@pytest.mark.feature("lite/seek")
@pytest.mark.parametrize("version", ["4.9.7"])
def test_old(version): {old}

@pytest.mark.feature("lite/fork")
def test_fork(): pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a section of three features, and tests that show all of it."""
    pytester.makeini(
        """
        [pytest]
        asyncio_default_fixture_loop_scope = function
        testpaths = tests
        markers =
            feature(*ids): what is shown
            behaviour(*ids): what is proven
        """
    )
    (pytester.path / "tests").mkdir()
    monkeypatch.setattr(plugin, "SECTIONS", pytester.path)
    monkeypatch.setattr(plugin, "DOCUMENT", pytester.path / "features.md")
    (pytester.path / "lite.toml").write_text(LITE)
    write_tests(pytester)
    return pytester


def write_tests(project: pytest.Pytester, old: str = "pass", more: str = "") -> None:
    (project.path / "tests" / "test_lite.py").write_text(TESTS.replace("{old}", old) + more)


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_inprocess(*PLUGINS, *arguments)


def write_page(project: pytest.Pytester) -> str:
    assert run(project, "--collect-only", "-q", "--write-features").ret == 0
    return (project.path / "features.md").read_text("utf-8")


def test_the_page_counts_tests_by_broker_and_names_them(project: pytest.Pytester):
    lines = write_page(project).splitlines()
    assert "| feature | embedded | 5.5.0 | 4.9.7 | Java | no broker |" in lines
    assert r"| Seek to \| wherever | ✓ 1 | ✓ 1 | ✓ 1 |  |  |" in lines
    assert "| Pop | ✓ 1 | ✓ 1 | –¹ |  |  |" in lines
    assert "| Forked |  |  |  |  | ✓ 1 |" in lines
    assert "¹ Brokers before 5.0 have no pop.  " in lines
    assert "  - [test_lite.py](../tests/test_lite.py): `test_both`, `test_old`" in lines


def test_a_run_of_everything_passes_when_all_is_shown_and_written(project: pytest.Pytester):
    write_page(project)
    result = run(project)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["6 of 6 features on brokers have a passing test"])


def test_a_page_that_says_something_else_ends_a_run_of_everything_only(project: pytest.Pytester):
    write_page(project)
    write_tests(project, more='\n@pytest.mark.feature("lite/fork")\ndef test_more(): pass\n')
    result = run(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*docs/features.md does not say what the tests' markers say*"])
    assert run(project, "tests/test_lite.py").ret == 0
    assert run(project, "-k", "fork").ret == 0


def test_other_documents_may_be_old_while_the_page_is_written(project: pytest.Pytester):
    both = ("-p", "tests.behaviours.checklist", "--collect-only", "-q")
    assert run(project, *both).ret == pytest.ExitCode.USAGE_ERROR
    assert run(project, *both, "--write-features").ret == 0


def test_an_id_that_is_declared_nowhere_ends_the_run(project: pytest.Pytester):
    write_tests(project, more='\n@pytest.mark.feature("lite/sek")\ndef test_more(): pass\n')
    result = run(project, "tests/test_lite.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_more claims [[]'lite/sek'], which no file of tests/features declares"])


def test_a_broker_without_a_test_or_an_excuse_ends_a_run_of_everything(project: pytest.Pytester):
    (project.path / "lite.toml").write_text(LITE.replace('"lite/pop" = {', '"lite/seek" = {'))
    result = run(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*the feature table is not complete:",
            "  lite/seek: [[]absent] says that it is not there on 4.9.7, but tests show it",
            "  lite/pop: no test shows it on 4.9.7, and [[]absent] does not say why",
        ]
    )
    assert run(project, "tests/test_lite.py").ret == 0


@pytest.mark.parametrize(
    ("old", "missing"),
    [
        ("pytest.skip('no Java')", True),  # a row that nobody has shown
        ("assert False", False),  # a test that fails does so by itself
    ],
)
def test_what_no_test_has_shown_in_the_end_fails_a_run_of_everything(project: pytest.Pytester, old: str, missing: bool):
    write_tests(project, old=old)
    write_page(project)
    result = run(project)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = "a run of everything fails without them: lite/seek on 4.9.7"
    assert (told in result.outlines) is missing


def test_where_a_test_shows_it_is_read_off_its_fixtures_and_its_marker(project: pytest.Pytester):
    interop = project.path / "tests" / "interop"
    interop.mkdir()
    (interop / "test_java.py").write_text(
        "import pytest\n"
        '@pytest.mark.feature("lite/pop")\ndef test_fixture(embedded_broker): pass\n'
        '@pytest.mark.feature("lite/pop", on=["5.5.0"])\ndef test_told(): pass\n'
    )
    assert "| Pop | ✓ 2 | ✓ 2 | –¹ | ✓ 2 |  |" in write_page(project).splitlines()
    (interop / "test_java.py").write_text(
        'import pytest\n@pytest.mark.feature("lite/pop", on="6")\ndef test_x(): pass\n'
    )
    result = run(project, "tests/interop")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*on= one or some of embedded, 5.5.0, 4.9.7"])


def test_the_page_is_written_of_all_tests_or_not_at_all(project: pytest.Pytester):
    assert run(project, "--collect-only", "--write-features", "tests").ret == pytest.ExitCode.USAGE_ERROR
    (project.path / "tests" / "test_broken.py").write_text("import no_such_module\n")
    assert run(project, "--collect-only", "--write-features").ret == pytest.ExitCode.INTERRUPTED
    assert not (project.path / "features.md").exists()


def test_a_row_that_nobody_shows_is_told(tmp_path: Path):
    (tmp_path / "lite.toml").write_text(LITE)
    sections = load_sections(tmp_path)
    assert complaints(sections, {})[0] == (
        'lite/seek: no test shows it; mark one with @pytest.mark.feature("lite/seek")'
    )
    shown = Shown()
    shown.add("tests/test_lite.py", "test_a", ["embedded", "4.9.7"])
    assert complaints(sections, {"lite/seek": shown})[0] == (
        "lite/seek: no test shows it on 5.5.0, and [absent] does not say why"
    )
    assert "| ✓ 1 | **missing** | ✓ 1 |" in page(sections, {"lite/seek": shown})


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("title =", "is not TOML"),
        ('[rows]\n"a/b" = "c"', "has no title"),
        ('title = "T"', "has no [rows]"),
        ('title = "T"\nrwos = 1', "unknown rwos"),
        ('title = "T"\n[rows]\n"A B" = "c"', "'A B' is no id"),
        ('title = "T"\n[rows]\n"a/b" = " "', "'a/b' says nothing"),
        ('title = "T"\n[rows]\n"a/b" = "c"\n[absent]\n"a/c" = {"4.9.7" = "old"}', "[absent] names a/c"),
        ('title = "T"\n[rows]\n"a/b" = "c"\n[absent]\n"a/b" = {"4.9" = "old"}', "names 4.9, not embedded"),
        ('title = "T"\n[rows]\n"a/b" = "c"\n[absent]\n"a/b" = "old"', "must be like"),
        ('title = "T"\n[rows]\n"a/b" = "c"\n[client]\nrows = ["a/c"]', "[client] names a/c"),
        (
            'title = "T"\n[rows]\n"a/b" = "c"\n[client]\nrows = ["a/b"]\n[absent]\n"a/b" = {"4.9.7" = "old"}',
            "is in [client]",
        ),
    ],
)
def test_a_section_that_says_something_wrong_is_refused(tmp_path: Path, text: str, mistake: str):
    (tmp_path / "wrong.toml").write_text(text)
    with pytest.raises(SectionError) as refused:
        load_sections(tmp_path)
    assert str(refused.value).startswith("wrong.toml")
    assert mistake in str(refused.value)


def test_a_row_has_one_home(tmp_path: Path):
    for name in ("first", "second"):
        (tmp_path / f"{name}.toml").write_text('title = "T"\n[rows]\n"a/b" = "c"\n')
    with pytest.raises(SectionError, match=r"second.toml: the row 'a/b' is in first.toml already"):
        load_sections(tmp_path)


def test_a_broken_section_is_told_to_those_who_need_it(project: pytest.Pytester):
    (project.path / "lite.toml").write_text("title =")
    (project.path / "tests" / "test_other.py").write_text("def test_other(): pass\n")
    assert run(project, "tests/test_other.py").ret == 0
    for result in (run(project), run(project, "tests/test_lite.py")):
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*tests/features/lite.toml is not TOML*"])
