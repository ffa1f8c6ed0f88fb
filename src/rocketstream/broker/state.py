"""The broker's small files (topics, groups, offsets): each replaced as a whole, so a crash leaves the old or the new.

Without a directory they live in memory and are gone with the broker.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

log = logging.getLogger("rocketstream.broker")

# What a client sends as JSON may hold half a character: one such name must not keep all others from being saved.
_SURROGATES = "surrogatepass"


class StateFiles:
    """JSON values by name."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._written: dict[str, str] = {}
        self._frozen = False

    def freeze(self) -> None:
        """Save nothing any more, as if the process had crashed."""
        self._frozen = True

    @property
    def frozen(self) -> bool:
        """Whether nothing is saved any more."""
        return self._frozen

    def load(self, name: str) -> Any | None:
        """What was saved last, or None."""
        if self._directory is None:
            return json.loads(self._written[name]) if name in self._written else None
        path = self._directory / f"{name}.json"
        try:
            text = path.read_text("utf-8", _SURROGATES)
            value = json.loads(text)
        except FileNotFoundError:
            return None
        except ValueError as error:
            aside = path.with_suffix(".json.broken")
            os.replace(path, aside)
            log.warning("%s is not JSON (%s): set aside as %s, starting without it", path, error, aside.name)
            return None
        self._written[name] = text
        return value

    def save(self, name: str, value: Any) -> None:
        """Replace what was saved; what has not changed is not written."""
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        if self._frozen or self._written.get(name) == text:
            return
        if self._directory is not None:
            self._replace(self._directory / f"{name}.json", text)
        self._written[name] = text

    def _replace(self, path: Path, text: str) -> None:
        temporary = path.with_suffix(".json.new")
        with temporary.open("w", encoding="utf-8", errors=_SURROGATES) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
