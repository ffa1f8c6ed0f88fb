"""The demo on a terminal and in a log; and where it writes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from rocketstream.demo.checks import Check, check
from rocketstream.demo.files import DemoFiles
from rocketstream.demo.settings import DemoSettings
from rocketstream.demo.showing import LineDisplay, LiveDisplay, picture, print_summary
from rocketstream.demo.summary import summarize
from rocketstream.errors import ConfigurationError
from tests.demo.runs import perfect_run


def console(*, terminal: bool = False) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=160, highlight=False), out


def test_a_log_gets_a_line_every_few_seconds() -> None:
    expected, outcome = perfect_run()
    to, out = console()
    with LineDisplay(to, spark=True) as display:
        display.say("starting [the broker]")
        display.wait("Spark is starting")
        for sample in outcome.samples:
            display.show(sample, expected, "sending")
    first, *lines = out.getvalue().splitlines()
    assert first == "starting [the broker]"
    assert [line.split(" s,")[0].strip() for line in lines] == ["3.0", "6.0", "9.0"]
    assert lines[0].endswith("Spark: 250 rows, lag 0, 0 results: sending")


@pytest.mark.parametrize("spark", [True, False])
def test_a_terminal_gets_bars_and_curves(spark: bool) -> None:
    expected, outcome = perfect_run()
    to, out = console()
    to.print(picture(outcome.samples, expected, "sending [minute] 7", spark=spark))
    shown = out.getvalue()
    assert "sending [minute] 7" in shown
    assert "1,000 of 1,000" in shown
    assert ("read by Spark" in shown) is spark
    assert "100/s" in shown  # 1,000 messages in 10 s


def test_the_picture_moves_and_goes_away() -> None:
    expected, outcome = perfect_run()
    to, out = console(terminal=True)
    with LiveDisplay(to, spark=False) as display:
        display.wait("Spark is starting")
        display.show(outcome.samples[3], expected, "sending")
        display.say("reading")
    assert "Spark is starting" in out.getvalue()
    assert "· reading" in out.getvalue()


def test_the_summary_shows_what_does_not_hold() -> None:
    expected, outcome = perfect_run()
    summary = summarize(outcome)
    to, out = console()
    print_summary(to, summary, check(expected, outcome), None)
    assert "Everything adds up: all 12 checks hold." in out.getvalue()
    to, out = console()
    print_summary(to, summary, [Check("The [sky] is blue", False, "grey")], None)
    assert "✗ The [sky] is blue (grey)" in out.getvalue()
    assert "1 of 1 checks do not hold." in out.getvalue()
    to, out = console()
    print_summary(to, summary, [], "it was interrupted")
    assert "Not complete: it was interrupted." in out.getvalue()


# --- where it writes ------------------------------------------------------------------------------------------------


def test_a_second_demo_takes_the_place_of_the_first(tmp_path: Path) -> None:
    files = DemoFiles.prepared(tmp_path / "out" / "report.html")
    files.orders.mkdir()
    files.report.write_text("old")
    again = DemoFiles.prepared(tmp_path / "out" / "report.html")
    assert again == files
    assert not files.orders.exists()
    assert not files.report.exists()


def test_what_is_not_the_demos_is_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "report-files"
    own.mkdir()
    (own / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigurationError, match="is not of an earlier demo"):
        DemoFiles.prepared(tmp_path / "report.html")
    assert (own / "thesis.txt").exists()


def test_a_place_that_can_not_be_written_to_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"--report .*can't write there"):
        DemoFiles.prepared(tmp_path / "file" / "report.html")


@pytest.mark.parametrize("messages", [99, 1_000_001, -1])
def test_so_many_messages_are_refused(messages: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"--messages {messages} must be from 100 to 1000000"):
        DemoSettings(messages=messages)


def test_a_directory_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a directory"):
        DemoSettings(report=tmp_path)
