"""What a consumer counts beyond its speed (`stats`): durations, what was sent back, waits, queues won and lost.

The rule of this file: numbers only, added to on the I/O thread; `metering` shows them.
"""

from __future__ import annotations

from collections import defaultdict

from rocketstream.metrics.values import Histogram


class TopicMeters:
    """The counts of one topic."""

    __slots__ = (
        "dead_letters",
        "expired",
        "listener",
        "lost",
        "not_sent_back",
        "pull",
        "pulled_bytes",
        "sent_back",
        "stalls",
        "waits",
        "won",
    )

    def __init__(self) -> None:
        self.listener = Histogram()
        """Seconds of the listener's calls."""
        self.pull = Histogram()
        """Seconds of pulls and pops that brought messages."""
        self.pulled_bytes = 0
        self.sent_back = 0
        """Failed messages that a broker has taken back."""
        self.not_sent_back = 0
        """How often none did."""
        self.dead_letters = 0
        self.waits: dict[str, int] = defaultdict(int)
        """How often a queue was not pulled for a moment, by the reason."""
        self.stalls = 0
        self.won = 0
        self.lost = 0
        self.expired = 0
        """Popped messages whose lease was over too soon."""

    def __repr__(self) -> str:
        return f"<TopicMeters {self.counts()}>"

    def counts(self) -> dict[str, int]:
        """The plain numbers by name, as `consumer.metrics` has them."""
        return {
            "pulled_bytes": self.pulled_bytes,
            "sent_back_messages": self.sent_back,
            "dead_letters": self.dead_letters,
            "waits": sum(self.waits.values()),
            "stalls": self.stalls,
            "queues_won": self.won,
            "queues_lost": self.lost,
            "expired_messages": self.expired,
        }


class GroupMeters:
    """The counts of a whole consumer."""

    __slots__ = ("acks", "nacks", "rebalances")

    def __init__(self) -> None:
        self.rebalances: dict[str, int] = defaultdict(int)
        """Passes by their result, balanced or again."""
        self.acks: dict[str, int] = defaultdict(int)
        """Popped messages that were acknowledged, ok or failed."""
        self.nacks: dict[str, int] = defaultdict(int)
        """Popped messages that are to come again, ok or failed."""

    def __repr__(self) -> str:
        told = (f"{name} {dict(getattr(self, name))}" for name in self.__slots__)
        return f"<GroupMeters {', '.join(told)}>"
