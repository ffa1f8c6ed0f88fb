"""What a replay of dead letters is told to do, and what it tells it has done: values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rocketstream.admin.values import Value
from rocketstream.errors import ConfigurationError


class LetterFate(StrEnum):
    """What a replay did with a dead letter."""

    REPLAYED = "replayed"
    WOULD_BE_REPLAYED = "would be replayed"
    ALREADY_REPLAYED = "already replayed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class ReplayedLetter(Value):
    """One dead letter that matched, and what became of it."""

    message_id: str
    origin_topic: str | None
    broker_name: str
    queue_id: int
    queue_offset: int
    """Where it lies among the dead letters."""
    fate: LetterFate
    target: str | None
    """The topic that its copy was sent to; None where that is not known."""
    why: str | None = None
    """Why it was skipped."""
    stored_as: str | None = None
    """The offset id of the copy."""


@dataclass(frozen=True, slots=True)
class ReplayReport(Value):
    """What a replay did so far, or would do."""

    group: str
    dry_run: bool
    letters: tuple[ReplayedLetter, ...]
    other_groups: dict[str, tuple[str, ...]]
    """Topic that copies go to → other groups that consume it, and get them too."""

    def count(self, fate: LetterFate) -> int:
        """How many met that fate."""
        return sum(letter.fate is fate for letter in self.letters)

    @property
    def replayed(self) -> int:
        """How many were sent, or would be."""
        return self.count(LetterFate.REPLAYED) + self.count(LetterFate.WOULD_BE_REPLAYED)

    @property
    def by_target(self) -> dict[str, int]:
        """How many were sent, or would be, to which topic."""
        sent = (LetterFate.REPLAYED, LetterFate.WOULD_BE_REPLAYED)
        return dict(sorted(Counter(one.target or "" for one in self.letters if one.fate in sent).items()))

    def to_dict(self) -> dict[str, Any]:
        """With the counts."""
        return {
            "group": self.group,
            "dry_run": self.dry_run,
            "replayed": self.replayed,
            "already_replayed": self.count(LetterFate.ALREADY_REPLAYED),
            "skipped": self.count(LetterFate.SKIPPED),
            "by_target": self.by_target,
            "other_groups": {topic: list(groups) for topic, groups in self.other_groups.items()},
            "letters": [letter.to_dict() for letter in self.letters],
        }


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """What a replay is told to do, besides which letters it is about."""

    to: str | None = None
    to_retry: bool = False
    limit: int | None = None
    rate: float | None = None
    again: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.to is not None and self.to_retry:
            raise ConfigurationError("`to` and `to_retry` are two places to send to: give one")
        if self.limit is not None and (
            isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 1
        ):
            raise ConfigurationError(f"limit={self.limit!r} must be a whole number greater than 0, or None")
        rate: object = self.rate
        if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1e6):
            raise ConfigurationError(f"rate={rate!r} must be messages per second, greater than 0, or None")
