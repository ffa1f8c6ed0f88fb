"""One sentence out of what Spark says when something fails: the cause, not a hundred lines of Java."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

_PYTHON_ERROR = re.compile(r"^(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*): (?P<words>.+)$", re.MULTILINE)
_PYTHON_KINDS = re.compile(r"(Error|Exception|Interrupt|Exit|Warning|Timeout)$")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*$", re.DOTALL)
_JAVA_CLASS = re.compile(r"^(?:[a-z_][\w$]*\.)+[A-Z][\w$]*:\s*")
_LOST_TASK = re.compile(r"^.*?Lost task [^(]*\(TID \d+\) \([^)]*\):\s*", re.DOTALL)
_TERMINATED = re.compile(r"^.*?terminated with exception:\s*", re.DOTALL)
_LONGEST = 600


def cause(text: str) -> str:
    """The sentence that tells the cause, out of the text of an exception of Spark's."""
    python = _python_cause(text)
    if python:
        return _shortened(python)
    for pattern in (_TERMINATED, _LOST_TASK):
        text = pattern.sub("", text)
    text = re.split(r"\n\s*at |\n\nDriver stacktrace|\n=+ |;\n", text.strip(), maxsplit=1)[0]
    while (plain := _JAVA_CLASS.sub("", _CONDITION.sub("", text))) != text:
        text = plain
    text = _SQLSTATE.sub("", text)
    return _shortened(text or "Spark gave no reason")


def whole_text(error: Exception) -> str:
    """All that an exception of Spark's has to say, Java's stack trace, too."""
    trace = getattr(error, "_stackTrace", None)
    return f"{error}\n\n{trace}" if trace else str(error)


def _python_cause(text: str) -> str | None:
    """The message of the last Python exception in it; one of rocketstream's own is the sentence itself."""
    start = text.find("Traceback (most recent call last)")
    if start < 0:
        return None
    found = [one for one in _PYTHON_ERROR.finditer(text, start) if _PYTHON_KINDS.search(one["kind"])]
    ours = [one["words"] for one in found if one["kind"].startswith("rocketstream.")]
    if ours:
        return ours[-1]
    # A Java exception follows the Python one that it wraps, with a class name of many parts.
    theirs = [one for one in found if not re.match(r"(java|org|scala)\.", one["kind"])]
    return f"{theirs[-1]['kind'].rpartition('.')[2]}: {theirs[-1]['words']}" if theirs else None


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@contextmanager
def quiet() -> Iterator[None]:
    """PySpark logs the mistakes of queries by itself, as JSON, when it hands them over; we tell them our way."""
    from pyspark.logger import PySparkLogger

    # By PySpark's own class: a plain logger of that name, made before PySpark's, is one that it can't use.
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)
