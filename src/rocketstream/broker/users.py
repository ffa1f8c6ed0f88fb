"""Who may come to an embedded broker, and what each may do there: RocketMQ 5's users and policies, as values.

The rule of this file: nothing is allowed that is not said. Of several entries that fit, the one that names the resource
decides, then the longest prefix, then `*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketstream.broker.demands import CLUSTER, GROUP, TOPIC, Demand
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import Credentials

ACTIONS: Final = frozenset({"ALL", "PUB", "SUB", "CREATE", "UPDATE", "DELETE", "GET", "LIST"})
_DENY: Final = "DENY"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with an access key, and what that one may do.

    `topics` and `groups` say what is allowed with which: `{"orders": "PUB|SUB|GET", "logs-*": "SUB", "*": "GET"}`. The
    actions are RocketMQ 5's: PUB to send, SUB to consume (of the topic and of the group), GET to ask where a queue
    begins and ends (a consumer without stored offsets does), CREATE, UPDATE, DELETE, LIST, or ALL; DENY forbids what a
    shorter name would allow. Who is `admin` may do everything.
    """

    access_key: str
    secret_key: str = field(repr=False)
    admin: bool = False
    topics: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    cluster: str = ""

    def __post_init__(self) -> None:
        Credentials(self.access_key, self.secret_key)  # refuses empty ones
        for what in (*self.topics.values(), *self.groups.values(), *([self.cluster] if self.cluster else [])):
            unknown = _actions(what) - ACTIONS - {_DENY}
            if unknown or not what:
                raise ConfigurationError(
                    f"user {self.access_key!r}: {what!r} must be one or more of {', '.join(sorted(ACTIONS))},"
                    " joined by |, or DENY"
                )

    def objection(self, demand: Demand) -> str | None:
        """What speaks against a demand, in RocketMQ's words; None if nothing does."""
        if self.admin:
            return None
        if demand.kind == CLUSTER:
            entries: Mapping[str, str] = {"*": self.cluster} if self.cluster else {}
        else:
            entries = {TOPIC: self.topics, GROUP: self.groups}[demand.kind]
        fitting = [
            (_rank(name), _DENY in _actions(allowed))
            for name, allowed in entries.items()
            if _names(name, demand.name) and _covers(_actions(allowed), demand.actions)
        ]
        if not fitting:
            return "no matched policies."
        return "the decision is deny." if max(fitting)[1] else None


def _actions(text: str) -> set[str]:
    return {part.strip().upper() for part in text.split("|")}


def _names(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _rank(pattern: str) -> tuple[bool, int]:
    return not pattern.endswith("*"), len(pattern)


def _covers(allowed: set[str], wanted: tuple[str, ...]) -> bool:
    return bool(allowed & {"ALL", _DENY, *wanted})
