"""The errors that only operators meet."""

from __future__ import annotations

from rocketstream.errors import RocketStreamError


class NotFoundError(RocketStreamError):
    """What was asked for by name or id is not there; the text says what was asked where."""
