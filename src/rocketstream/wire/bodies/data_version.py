"""The version of a broker's tables."""

from __future__ import annotations

from rocketstream.wire.bodies.base import Body, body
from rocketstream.wire.java import Int64


@body
class DataVersion(Body):
    """Grows with each change; `state_version` is 5.x's."""

    timestamp: Int64 = 0
    counter: Int64 = 0
    state_version: Int64 = 0
