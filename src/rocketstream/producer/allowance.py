"""How much time a trace may take of the program that it traces, so that it never slows it down by much."""

from __future__ import annotations

from typing import Final

# Of the time that the process computes: a trace shall cost no more than a tenth of the speed, metrics included.
_SHARE: Final = 0.03
_MOST: Final = 0.020
_LONGEST_PAUSE: Final = 1.0


class Allowance:
    """How much time may be spent: a share of what the process computes, another where it idles, up to a bound."""

    __slots__ = ("_at", "_cpu_at", "_idle_share", "_left")

    def __init__(self, now: float, cpu: float, *, idle_share: float) -> None:
        self._left = _MOST
        self._at, self._cpu_at = now, cpu
        self._idle_share = idle_share

    def spend(self, seconds: float, now: float, cpu: float, *, late: bool = False) -> float:
        """So much was spent. 0 while something is left, else the seconds after which it is worth while to look again.

        `cpu` is the time that the process has computed. Where it is `late`, time in which it did not was no idle time:
        it waited for a processor.
        """
        computed = cpu - self._cpu_at
        idle = 0.0 if late else max(now - self._at - computed, 0.0)
        self._left = min(self._left + computed * _SHARE + idle * self._idle_share, _MOST) - seconds
        self._at, self._cpu_at = now, cpu
        return 0.0 if self._left > 0 else min((_MOST / 2 - self._left) / _SHARE, _LONGEST_PAUSE)
