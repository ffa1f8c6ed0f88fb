"""The embedded broker: a name server and a broker in one process, the other end of `wire/`.

The names below are imported when they are first asked for: whoever needs one part does not pay for all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketstream.broker.embedded import EmbeddedBroker as EmbeddedBroker
    from rocketstream.broker.faults import Fault as Fault
    from rocketstream.broker.faults import Faults as Faults
    from rocketstream.broker.settings import BrokerSettings as BrokerSettings
    from rocketstream.broker.users import User as User

_HOME = {
    "BrokerSettings": "rocketstream.broker.settings",
    "EmbeddedBroker": "rocketstream.broker.embedded",
    "Fault": "rocketstream.broker.faults",
    "Faults": "rocketstream.broker.faults",
    "User": "rocketstream.broker.users",
}

__all__ = ["BrokerSettings", "EmbeddedBroker", "Fault", "Faults", "User"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
