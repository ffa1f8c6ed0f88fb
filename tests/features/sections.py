"""What the feature table has to say: the rows that `tests/features/*.toml` declare.

One file is one section of docs/features.md:

    title = "Lite pull"
    about = "One paragraph under the title."                     # optional
    order = 40                                                   # optional: where it stands; 100 without it
    [rows]
    "lite-pull/seek" = "Seek to the begin, the end, an offset, a moment"
    [absent]                                                     # optional: what a broker cannot show, and why
    "pop/orderly" = { "4.9.7" = "brokers before 5.0 have no pop" }
    [client]                                                     # optional: rows that need no broker
    rows = ["processes/fork"]

What is written wrongly is refused with the file's name and the mistake.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketstream.testing.plugin import EMBEDDED, VERSIONS

#: The brokers on which every feature has to be shown, unless the row says why not.
TARGETS = (EMBEDDED, *VERSIONS)
_KEYS = {"title", "about", "order", "rows", "absent", "client"}
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*/[a-z0-9]+(-[a-z0-9]+)*")


class SectionError(Exception):
    """A section's file says something that cannot be."""


@dataclass(frozen=True, slots=True)
class Row:
    """One feature, in a user's words."""

    id: str
    text: str
    absent: Mapping[str, str]
    """The targets that cannot show it, and why."""
    client: bool
    """Whether it is shown without any broker."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The targets on which some test has to show it."""
        return () if self.client else tuple(target for target in TARGETS if target not in self.absent)


@dataclass(frozen=True, slots=True)
class Section:
    """Features that belong together."""

    title: str
    about: str
    order: int
    rows: tuple[Row, ...]


def load_sections(directory: Path) -> list[Section]:
    """All sections of a directory, in the order of the page."""
    sections: list[Section] = []
    homes: dict[str, str] = {}
    for file in sorted(directory.glob("*.toml")):
        section = _read(file)
        for row in section.rows:
            if row.id in homes:
                raise SectionError(f"{file.name}: the row {row.id!r} is in {homes[row.id]} already")
            homes[row.id] = file.name
        sections.append(section)
    return sorted(sections, key=lambda section: (section.order, section.title))


def all_rows(sections: Iterable[Section]) -> dict[str, Row]:
    """Every row by its id."""
    return {row.id: row for section in sections for row in section.rows}


def _read(file: Path) -> Section:
    try:
        told = tomllib.loads(file.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SectionError(f"{file.name} is not TOML: {error}") from error
    unknown = sorted(set(told) - _KEYS)
    if unknown:
        raise SectionError(f"{file.name}: unknown {', '.join(unknown)}; it may have {', '.join(sorted(_KEYS))}")
    title, rows, absent = told.get("title"), told.get("rows", {}), told.get("absent", {})
    client = told.get("client", {}).get("rows", [])
    if not isinstance(title, str) or not title:
        raise SectionError(f"{file.name} has no title")
    if not rows:
        raise SectionError(f"{file.name} has no [rows]")
    for place, ids in (("absent", absent), ("client", client)):
        strange = [row for row in ids if row not in rows]
        if strange:
            raise SectionError(f"{file.name}: [{place}] names {', '.join(strange)}, which [rows] does not have")
    made = tuple(_row(file, row, text, absent.get(row, {}), row in client) for row, text in rows.items())
    return Section(title, str(told.get("about", "")), int(told.get("order", 100)), made)


def _row(file: Path, row: str, text: Any, absent: Any, client: bool) -> Row:
    if not _ID.fullmatch(row):
        raise SectionError(f"{file.name}: {row!r} is no id: write it like 'lite-pull/seek'")
    if not isinstance(text, str) or not text.strip():
        raise SectionError(f"{file.name}: {row!r} says nothing")
    if not isinstance(absent, dict) or not all(isinstance(why, str) and why for why in absent.values()):
        raise SectionError(f'{file.name}: [absent] of {row!r} must be like {{ "4.9.7" = "why" }}')
    strange = [target for target in absent if target not in TARGETS]
    if strange:
        raise SectionError(f"{file.name}: [absent] of {row!r} names {', '.join(strange)}, not {', '.join(TARGETS)}")
    if client and absent:
        raise SectionError(f"{file.name}: {row!r} is in [client], where no target is needed, and in [absent]")
    return Row(row, text.strip(), absent, client)
