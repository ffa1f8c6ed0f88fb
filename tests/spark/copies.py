"""Messages that a Spark sink has written: which are copies of the same row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from rocketstream.message import ReceivedMessage
from rocketstream.spark.row_ids import ROW_ID


class Copy(NamedTuple):
    """One message of a sink's topic."""

    row_id: str
    store_timestamp: int


def copies_by_body(messages: Iterable[ReceivedMessage]) -> dict[bytes, list[Copy]]:
    """What was sent once or again, by its body, which is a row's own."""
    found: dict[bytes, list[Copy]] = defaultdict(list)
    for message in messages:
        found[message.body].append(Copy(message.properties[ROW_ID], message.store_timestamp))
    return found


def ids_of_several(messages: Iterable[ReceivedMessage]) -> list[str]:
    """Row ids that two different rows share: there must be none."""
    bodies: dict[str, set[bytes]] = defaultdict(set)
    for message in messages:
        bodies[message.properties[ROW_ID]].add(message.body)
    return [row_id for row_id, shared in bodies.items() if len(shared) > 1]
