"""Paths of a pipeline file: relative ones begin at the file, so that it means the same wherever it is run from."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def resolved(path: str, base: Path) -> str:
    """The path that Spark is given; one with a scheme (`s3a://...`, `hdfs://...`) is left alone."""
    if _SCHEME.match(path):
        return path
    return os.path.normpath(base / Path(path).expanduser())


def is_missing(path: str) -> bool:
    """Whether a path is of this machine and nothing is there; a pattern (`*.csv`) is for Spark to look at."""
    return not _SCHEME.match(path) and not re.search(r"[*?\[{]", path) and not os.path.exists(path)


def contains(outer: str, inner: str) -> bool:
    """Whether a path is another, or inside of it."""
    outer, inner = outer.rstrip("/"), inner.rstrip("/")
    return inner == outer or inner.startswith(f"{outer}/")
