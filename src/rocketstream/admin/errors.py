"""The errors that only operators meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstream.errors import RocketStreamError

if TYPE_CHECKING:
    from rocketstream.admin.replays import ReplayReport


class NotFoundError(RocketStreamError):
    """What was asked for by name or id is not there; the text says what was asked where."""


class ReplayStoppedError(RocketStreamError):
    """A dead letter could not be sent again, and the replay ended there; `report` has what was done before."""

    def __init__(self, text: str, report: ReplayReport) -> None:
        super().__init__(text)
        self.report = report
