"""Whether a send that failed is tried again, where, and after which pause.

The rule of this file: it decides and does nothing. What has failed so far goes in, address by address with its reason;
`ProducerCore` acts on what comes out.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, TypeAlias

from rocketstream.errors import AccessDeniedError, BrokerError
from rocketstream.wire.codes import ResponseCode

Attempts: TypeAlias = Sequence[tuple[str, BaseException]]

#: What another broker may well do better (Java's retryResponseCodes).
RETRY_CODES: Final = frozenset(
    map(
        int,
        (
            ResponseCode.TOPIC_NOT_EXIST,
            ResponseCode.SERVICE_NOT_AVAILABLE,
            ResponseCode.SYSTEM_ERROR,
            ResponseCode.SYSTEM_BUSY,
            ResponseCode.NO_PERMISSION,
            ResponseCode.NO_BUYER_ID,
            ResponseCode.NOT_IN_CURRENT_UNIT,
        ),
    )
)
_BUSY_CODES: Final = frozenset(map(int, (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL)))
_BUSY_PAUSE: Final = 0.05


class NotStoredSafely(Exception):
    """An attempt that stored the message less safely than asked, where another broker was to be tried."""


def may_try(attempts: Attempts, retries: int) -> bool:
    """Whether there is one more attempt to make: a refusal that others would repeat is final."""
    if not attempts:
        return True
    error = attempts[-1][1]
    if isinstance(error, AccessDeniedError):  # else a missing permission would look like an outage
        return False
    return len(attempts) <= retries and not (isinstance(error, BrokerError) and error.code not in RETRY_CODES)


def has_moved(attempts: Attempts) -> bool:
    """Whether the last attempt failed because a static topic's queue has another leader now."""
    error = attempts[-1][1] if attempts else None
    return isinstance(error, BrokerError) and error.code == ResponseCode.NOT_LEADER_FOR_QUEUE


def pause_before_next(attempts: Attempts) -> float:
    """A broker that said it is busy is given a moment; anything else is tried elsewhere at once."""
    error = attempts[-1][1]
    if isinstance(error, BrokerError) and error.code in _BUSY_CODES:
        return _BUSY_PAUSE * 2.0 ** (len(attempts) - 1) * random.uniform(0.5, 1.5)
    return 0.0
