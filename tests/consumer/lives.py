"""What the tests of starts and ends have in common: that a start fails with a text, works, and leaves nothing."""

from __future__ import annotations

import threading

import pytest

from rocketstream.clock import ManualClock
from rocketstream.cluster.client import ClientState
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.consumer.core import ConsumerCore

_LAST_STEP = 10.0


def nothing_left(core: ConsumerCore, instances: ClientInstances, clock: ManualClock) -> bool:
    """No instance, no timer, no thread of this consumer's."""
    name = f"rocketstream-consume-{core.consumer.group}"
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(name)]
    for thread in threads:
        thread.join(_LAST_STEP)  # a worker says that it goes just before it is gone
    left = [*instances._instances, *instances._users, *clock.pending, *(one for one in threads if one.is_alive())]
    assert left == [], f"left: {left}"
    return True


async def fails(core: ConsumerCore, error: type[Exception], text: str) -> None:
    """A start raises exactly this, and may be tried again."""
    with pytest.raises(error) as caught:
        await core.start()
    assert str(caught.value) == text
    assert core.state is ClientState.CREATE_JUST


async def starts(core: ConsumerCore) -> None:
    """It can be started now, gets the one queue there is, and ends."""
    await core.start()
    assert core.state is ClientState.RUNNING
    assert len(core.rebalancer.assigned) == 1
    await core.shutdown(1.0)
