"""What Spark's side raises beside the errors of the client."""

from __future__ import annotations

from rocketstream.errors import RocketStreamError
from rocketstream.spark.ranges import QueueRange


class DataLossError(RocketStreamError):
    """Messages that were to be read are gone from their broker."""

    def __init__(self, gone: QueueRange, why: str = "") -> None:
        super().__init__(
            f"messages are gone: offsets {gone.start} to {gone.end - 1} of queue {gone.queue.queue_id} of topic"
            f" {gone.queue.topic!r} on broker {gone.queue.broker_name!r} are not there any more"
            f"{f' ({why})' if why else ''}; failOnDataLoss=false goes on without them"
        )
        self.gone = gone


class UnreadableRangeError(RocketStreamError):
    """A range of a queue could not be read: the broker was away too long, or refuses."""

    def __init__(self, rest: QueueRange, waited: float, why: str) -> None:
        how_long = f" for {waited:.0f} s" if waited else ""
        super().__init__(
            f"offset {rest.start} and on of queue {rest.queue.queue_id} of topic {rest.queue.topic!r} on broker"
            f" {rest.queue.broker_name!r} could not be read{how_long}: {why}"
        )
        self.rest = rest


class OutageError(RocketStreamError):
    """What a broker or a name server was asked for could not be had for longer than an outage may last."""

    def __init__(self, what: str, waited: float, last: RocketStreamError) -> None:
        super().__init__(f"{what} could not be had within {waited:.0f} s (outageTimeout): {last}")
