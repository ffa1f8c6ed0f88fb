"""The two ids of a message: where a broker stored it, and what its producer called it.

The rule of this file: ids are arithmetic. Who I am (address, process) and what time it is come in as arguments.

Offset id:  IP, port 4, commit-log offset 8                             in hexadecimal: 32 digits, 56 with IPv6.
Unique id:  IP, process 2, class loader's hash 4, time in month 4, counter 2, in hexadecimal: 32 digits, 56 with IPv6.
"""

from __future__ import annotations

import itertools
import struct
from ipaddress import ip_address
from typing import NamedTuple

from rocketstream.errors import ProtocolError
from rocketstream.wire.host import decode_host, encode_host, parse_ip

_OFFSET = struct.Struct(">q")
_PROCESS = struct.Struct(">HI")
_MOMENT = struct.Struct(">IH")

_DAY_MS = 86_400_000
# A clock set back by less than this is NTP at work: Java then writes 0, we too.
_NTP_MS = 1_000_000


class OffsetMessageId(NamedTuple):
    """Where a message is stored: the broker's `host:port` and the offset in its commit log."""

    store_host: str
    commit_log_offset: int


def encode_offset_id(store_host: str, commit_log_offset: int) -> str:
    return offset_id_of(encode_host(store_host), commit_log_offset)


def offset_id_of(raw_host: bytes, commit_log_offset: int) -> str:
    """The same from a host's bytes, as they lie in a record."""
    return (raw_host + _OFFSET.pack(commit_log_offset)).hex().upper()


def decode_offset_id(message_id: str) -> OffsetMessageId:
    raw = _id_bytes(message_id)
    return OffsetMessageId(decode_host(raw[:-8]), _OFFSET.unpack(raw[-8:])[0])


class UniqueId(NamedTuple):
    """What a unique id tells of its message's producer."""

    ip: str
    pid: int
    loader_hash: int
    born_timestamp: int
    counter: int


class UniqueIds:
    """Makes the unique ids of one process: 65,536 per millisecond without a repetition.

    `utc_offset` (milliseconds) is the local time's: a month begins at local midnight, in Java as here, and whoever
    decodes the time of an id needs the same.
    """

    __slots__ = ("_counter", "_latest", "_month_end", "_month_start", "_prefix", "_utc_offset")

    def __init__(self, ip: str, pid: int, loader_hash: int, *, utc_offset: int = 0) -> None:
        raw = parse_ip(ip).packed + _PROCESS.pack(pid & 0xFFFF, loader_hash & 0xFFFFFFFF)
        self._prefix = raw.hex().upper()
        self._utc_offset = utc_offset
        self._counter = itertools.count()
        self._month_start = self._month_end = 0
        self._latest = (-1, "")  # the last millisecond and what its ids begin with, in one value for all threads

    def next(self, now: int) -> str:
        """The next id, at `now` milliseconds since the epoch; may be called from any thread."""
        moment, start = self._latest
        if moment != now:
            start = self._start(now)
        return f"{start}{next(self._counter) & 0xFFFF:04X}"

    def several(self, now: int, count: int) -> tuple[bytes, list[bytes]]:
        """The next ids (at most 65,536) in two parts: how all of them begin, and how each ends."""
        counters = itertools.islice(self._counter, count)
        digits = struct.pack(f">{count}Q", *counters).hex().upper().encode()
        # The last four of each sixteen digits: what is above 65,535 is cut off.
        return self._start(now).encode(), [digits[end - 4 : end] for end in range(16, 16 * count + 16, 16)]

    def _start(self, now: int) -> str:
        if now >= self._month_end:
            self._month_start, self._month_end = month_of(now, self._utc_offset)
        elapsed = now - self._month_start
        if -_NTP_MS < elapsed < 0:
            elapsed = 0
        start = f"{self._prefix}{elapsed & 0xFFFFFFFF:08X}"
        self._latest = now, start
        return start


def decode_unique_id(unique_id: str, now: int, *, utc_offset: int = 0) -> UniqueId:
    """The parts of a unique id. It holds only the time in its month: the latest that is not after `now` is meant.

    (Java takes an id that is made in this very millisecond for one of last month; that helps nobody.)
    """
    raw = _id_bytes(unique_id)
    ip, rest = raw[:-12], raw[-12:]
    pid, loader_hash = _PROCESS.unpack_from(rest)
    elapsed, counter = _MOMENT.unpack_from(rest, _PROCESS.size)
    month_start, _ = month_of(now, utc_offset)
    if month_start + elapsed > now:
        month_start, _ = month_of(month_start - 1, utc_offset)
    return UniqueId(str(ip_address(ip)), pid, loader_hash, month_start + elapsed, counter)


def month_of(now: int, utc_offset: int) -> tuple[int, int]:
    """The first millisecond of the month of `now`, and of the next.

    By arithmetic (the civil calendar from 1 March, so that the leap day comes last), since `wire/` has no clock and
    `datetime` is one.
    """
    days = (now + utc_offset) // _DAY_MS + 719_468
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    year = era * 400 + year_of_era
    month = (5 * (day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)) + 2) // 153
    return _month_start(year, month) - utc_offset, _month_start(year, month + 1) - utc_offset


def _month_start(year: int, month: int) -> int:
    """UTC midnight of the first day of `month`, counted from 0 = March of `year`."""
    year, month = year + month // 12, month % 12
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5
    return (days - 719_468) * _DAY_MS


def _id_bytes(message_id: str) -> bytes:
    if len(message_id) in (32, 56):
        try:
            raw = bytes.fromhex(message_id)
        except ValueError:
            raw = b""
        if 2 * len(raw) == len(message_id):
            return raw
    raise ProtocolError(f"{message_id!r} is not a message id: 32 hexadecimal digits, or 56 with an IPv6 address")
