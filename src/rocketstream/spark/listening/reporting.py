"""What the driver's log says of tasks: what they logged themselves, and why Spark could not end one."""

from __future__ import annotations

import logging
from typing import Final

from rocketstream.spark.listening.values import TaskResult

log = logging.getLogger("rocketstream.spark.listening")

_ERROR_LENGTH: Final = 1_500


def tell(result: TaskResult) -> None:
    """Log what a task logged, as loud as it did."""
    for line in result.log:
        log.log(line.level, "task %d on %s: %s", result.number, result.host, line.text)
    if result.not_logged:
        log.warning(
            "task %d on %s: %d more warnings are in that executor's log", result.number, result.host, result.not_logged
        )


def shortened(error: BaseException | None) -> str:
    """What Spark says, without its pages of stack."""
    lines = str(error).splitlines()
    text = f"{type(error).__name__}: " + " ".join(line.strip() for line in lines if not line.startswith("\tat "))
    return text if len(text) <= _ERROR_LENGTH else f"{text[:_ERROR_LENGTH]} ..."
