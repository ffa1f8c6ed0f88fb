"""Brokers' versions: ordinals in RocketMQ's own list (`MQVersion`), as they come with every answer."""

from __future__ import annotations

from typing import Final

V4_1_0: Final = 232
"""Its snapshot, from which on brokers filter by more than tags."""
V5_0_0: Final = 413

# From 4.0.0 on the list is regular: a snapshot and a release for each of 100 numbers per major version.
_V4_0_0_SNAPSHOT: Final = 212


def version_text(ordinal: int) -> str:
    """The version that an ordinal stands for, for people."""
    if ordinal < _V4_0_0_SNAPSHOT:
        return f"older than 4.0.0 ({ordinal})"
    number, release = divmod(ordinal - _V4_0_0_SNAPSHOT, 2)
    major, rest = divmod(number, 100)
    return f"{4 + major}.{rest // 10}.{rest % 10}" + ("" if release else "-SNAPSHOT")
