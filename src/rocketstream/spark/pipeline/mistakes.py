"""What is wrong with a pipeline file: every mistake at once, each with the line where a person would mend it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from rocketstream.errors import ConfigurationError


class Mistake(NamedTuple):
    """One mistake: its line (0 if it is about the file as a whole) and one sentence."""

    line: int
    sentence: str

    def at(self, file: str) -> str:
        """`FILE:LINE: sentence`, as editors and compilers write it."""
        return f"{file}:{self.line}: {self.sentence}" if self.line else f"{file}: {self.sentence}"


class PipelineFileError(ConfigurationError):
    """A pipeline file that cannot work; `mistakes` has all that is wrong with it, in the order of their lines."""

    def __init__(self, file: str, mistakes: Iterable[Mistake]) -> None:
        self.file = file
        self.mistakes = tuple(sorted(dict.fromkeys(mistakes), key=lambda mistake: mistake.line))
        super().__init__("\n".join(mistake.at(file) for mistake in self.mistakes))


def nearest(wrong: str, known: Iterable[str]) -> str:
    """`: did you mean 'x'?`, if something known is near to what is there, or nothing."""
    by_lower = {name.lower(): name for name in known}
    found = get_close_matches(wrong.lower(), by_lower, n=1, cutoff=0.6)
    return f": did you mean {by_lower[found[0]]!r}?" if found else ""
