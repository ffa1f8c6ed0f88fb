"""docs/features.md: which feature is shown by which tests, on which brokers.

Made of the sections' rows and of what the tests' markers say, and of nothing else, so that it cannot say more than the
tests show. Values in, text out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.features.sections import TARGETS, Row, Section

JAVA = "Java"
ALONE = "no broker"
COLUMNS = (*TARGETS, JAVA, ALONE)

_HEAD = """\
# Features

Which features there are, and on which brokers tests show them. Written from the tests' markers by
`pytest --collect-only -q --write-features`; a run of all tests fails when a feature is shown by none, when a broker is
neither tested nor excused, or when this page is not what the markers say.

✓ 3 means that three tests show it there: on the embedded broker, on RocketMQ 5.5.0, on RocketMQ 4.9.7, together with
RocketMQ's own Java client (or `mqadmin`), and without any broker (against scripted peers, or no peer at all). – has a
note under the table that says why; an empty field says nothing.
"""
_DIGITS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(slots=True)
class Shown:
    """Which tests show a row: file and name of each, by column."""

    tests: dict[str, set[tuple[str, str]]] = field(default_factory=dict)

    def add(self, file: str, name: str, columns: Iterable[str]) -> None:
        """A test claims the row and runs there."""
        for column in columns:
            self.tests.setdefault(column, set()).add((file, name))

    def count(self, column: str) -> int:
        """How many tests show it there."""
        return len(self.tests.get(column, ()))

    @property
    def files(self) -> dict[str, list[str]]:
        """The names of its tests by file, sorted."""
        files: dict[str, set[str]] = {}
        for tests in self.tests.values():
            for file, name in tests:
                files.setdefault(file, set()).add(name)
        return {file: sorted(files[file]) for file in sorted(files)}


def complaints(sections: Sequence[Section], shown: Mapping[str, Shown]) -> list[str]:
    """What is missing or contradicts itself, a sentence for each row that is not complete."""
    nothing = Shown()
    found: list[str] = []
    for section in sections:
        for row in section.rows:
            tests = shown.get(row.id, nothing)
            missing = [target for target in row.needed if not tests.count(target)]
            surplus = [target for target in row.absent if tests.count(target)]
            if not tests.tests:
                found.append(f'{row.id}: no test shows it; mark one with @pytest.mark.feature("{row.id}")')
            elif missing:
                found.append(f"{row.id}: no test shows it on {', '.join(missing)}, and [absent] does not say why")
            if surplus:
                found.append(f"{row.id}: [absent] says that it is not there on {', '.join(surplus)}, but tests show it")
    return found


def page(sections: Sequence[Section], shown: Mapping[str, Shown]) -> str:
    """The whole document."""
    return "\n".join([_HEAD, *(_section(section, shown) for section in sections)])


def _section(section: Section, shown: Mapping[str, Shown]) -> str:
    nothing = Shown()
    notes: dict[str, int] = {}
    lines = [f"## {section.title}", ""]
    if section.about:
        lines += [section.about, ""]
    lines += [f"| feature | {' | '.join(COLUMNS)} |", f"|---|{':-:|' * len(COLUMNS)}"]
    for row in section.rows:
        tests = shown.get(row.id, nothing)
        cells = [_cell(row, tests, column, notes) for column in COLUMNS]
        lines.append(f"| {_escaped(row.text)} | {' | '.join(cells)} |")
    if notes:
        lines += ["", *(f"{_number(number)} {why[:1].upper()}{why[1:]}.  " for why, number in notes.items())]
    lines += ["", "<details><summary>Which tests</summary>", ""]
    for row in section.rows:
        lines.append(f"- **{_escaped(row.text)}** (`{row.id}`)")
        for file, names in shown.get(row.id, nothing).files.items():
            told = ", ".join(f"`{name}`" for name in names)
            lines.append(f"  - [{file.removeprefix('tests/')}](../{file}): {told}")
    return "\n".join([*lines, "", "</details>", ""])


def _cell(row: Row, tests: Shown, column: str, notes: dict[str, int]) -> str:
    if count := tests.count(column):
        return f"✓ {count}"
    if column in row.absent:
        why = row.absent[column].rstrip(".")
        return f"–{_number(notes.setdefault(why, len(notes) + 1))}"
    return "**missing**" if column in row.needed else ""


def _number(number: int) -> str:
    return str(number).translate(_DIGITS)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
