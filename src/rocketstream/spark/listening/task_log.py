"""What a task logs is told on the driver too: nobody reads the logs of executors first.

The rule of this file: the first few lines with their tracebacks, and a count of the rest. A listener that fails for
each of a million messages must not fill the driver's memory.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final, Self

from rocketstream.spark.listening.values import LogLine

_LINES: Final = 5
_LENGTH: Final = 8_000
_ROOMS: Final = logging.getLogger("rocketstream")
# Where a driver or a broker runs in the same process, what they say is not the task's.
_NOT_OURS: Final = ("rocketstream.spark", "rocketstream.broker")


class TaskLog(logging.Handler):
    """Keeps the first warnings of a task: `with TaskLog() as log: ...`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[LogLine] = []
        self.more = 0
        self._format = logging.Formatter("%(message)s").format

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, or count it."""
        if record.name.startswith(_NOT_OURS):
            return
        if len(self.lines) >= _LINES:
            self.more += 1
            return
        try:
            text = self._format(record)
        except Exception as error:  # a message or an exception that cannot be printed is the user's own
            text = f"a line could not be formatted: {type(error).__name__}"
        if len(text) > _LENGTH:
            # The end of a traceback says what happened, its beginning where.
            text = f"{text[: _LENGTH // 2]}\n...\n{text[-_LENGTH // 2 :]}"
        self.lines.append(LogLine(record.levelno, text))

    def __enter__(self) -> Self:
        _ROOMS.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _ROOMS.removeHandler(self)
