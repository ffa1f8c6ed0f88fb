from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.errors import ConfigurationError, ProtocolError
from rocketstream.wire.host import decode_host, encode_host
from rocketstream.wire.message_id import (
    OffsetMessageId,
    UniqueId,
    UniqueIds,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    month_of,
)

ips = st.ip_addresses()
ports = st.integers(0, 65535)


def host_of(ip: IPv4Address | IPv6Address, port: int) -> str:
    return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"


# Java's MessageDecoder.createMessageId (5.5.0).
@pytest.mark.parametrize(
    ("host", "message_id"),
    [
        ("192.168.200.9:10911", "C0A8C80900002A9F00000016FEE0E52D"),
        ("[fe80::2]:10911", "FE80000000000000000000000000000200002A9F00000016FEE0E52D"),
    ],
)
def test_offset_id_is_javas(host: str, message_id: str) -> None:
    assert encode_offset_id(host, 98765432109) == message_id
    assert decode_offset_id(message_id) == OffsetMessageId(host, 98765432109)
    assert decode_offset_id(message_id.lower()) == OffsetMessageId(host, 98765432109)


@given(ips, ports, st.integers(0, 2**63 - 1))
def test_offset_id_round_trip(ip: IPv4Address | IPv6Address, port: int, offset: int) -> None:
    host = host_of(ip, port)
    assert decode_offset_id(encode_offset_id(host, offset)) == (host, offset)


@given(st.text(st.sampled_from("0123456789abcdefG \n"), max_size=60))
def test_what_is_no_id_is_a_protocol_error(text: str) -> None:
    for decode in (decode_offset_id, lambda text: decode_unique_id(text, 0)):
        with suppress(ProtocolError):
            decode(text)


@pytest.mark.parametrize("bad", ["", "12", "Z" * 32, "00 " * 10 + "00", "0" * 57, " " * 32])
def test_bad_ids_are_refused(bad: str) -> None:
    with pytest.raises(ProtocolError, match="is not a message id: 32 hexadecimal digits, or 56"):
        decode_offset_id(bad)


def test_unique_id_of_java_is_read() -> None:
    # MessageClientIDSetter.createUniqID (5.5.0) in process 10748 at 1794786441530, in UTC.
    parts = decode_unique_id("FD00000000000000000000000000000229FC30946E094D33D13A0000", 1794786441530)
    assert parts == UniqueId("fd00::2", 10748, 0x30946E09, 1794786441530, 0)


def test_unique_id_by_hand() -> None:
    ids = UniqueIds("10.2.3.4", 0x1_0102, 0xDEADBEEF)
    month = round(datetime(2024, 2, 1, tzinfo=UTC).timestamp() * 1000)
    assert ids.next(month + 0x01020304) == "0A0203040102DEADBEEF010203040000"
    assert ids.next(month + 0x01020305) == "0A0203040102DEADBEEF010203050001"


def test_counter_wraps_and_no_thread_repeats_another() -> None:
    ids = UniqueIds("10.2.3.4", 1, 2)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: ids.next(1_700_000_000_000), range(65536)))
    assert len(set(made)) == 65536
    assert ids.next(1_700_000_000_000) in set(made)


def test_new_month_starts_from_zero_and_a_clock_set_back_does_not_wrap() -> None:
    ids = UniqueIds("10.2.3.4", 1, 2)
    march = round(datetime(2024, 3, 1, tzinfo=UTC).timestamp() * 1000)
    assert ids.next(march - 1)[20:28] == f"{29 * 86_400_000 - 1:08X}"
    assert ids.next(march)[20:28] == "00000000"
    assert ids.next(march - 5000)[20:28] == "00000000"


def test_time_of_a_unique_id_is_the_latest_that_is_not_after_now() -> None:
    born = round(datetime(2024, 1, 20, tzinfo=UTC).timestamp() * 1000)
    unique_id = UniqueIds("10.2.3.4", 1, 2).next(born)
    day = 86_400_000
    assert decode_unique_id(unique_id, born).born_timestamp == born
    assert decode_unique_id(unique_id, born + 30 * day).born_timestamp == born
    assert decode_unique_id(unique_id, born + 31 * day).born_timestamp == born + 31 * day


@given(
    ips,
    st.integers(0, 65535),
    st.integers(0, 2**32 - 1),
    st.integers(0, 4_000_000_000_000),
    st.integers(0, 20 * 86_400_000),
    st.integers(-14, 14),
)
def test_unique_id_round_trip(
    ip: IPv4Address | IPv6Address, pid: int, loader_hash: int, born: int, age: int, hours: int
) -> None:
    offset = hours * 3_600_000
    unique_id = UniqueIds(str(ip), pid, loader_hash, utc_offset=offset).next(born)
    assert len(unique_id) == (32 if ip.version == 4 else 56)
    parts = decode_unique_id(unique_id, born + age, utc_offset=offset)
    assert parts == (str(ip), pid, loader_hash, born, 0)


@given(st.datetimes(datetime(1970, 2, 1), datetime(2399, 12, 31)), st.integers(-14, 14))
def test_months_are_the_calendars(moment: datetime, hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    local = moment.replace(tzinfo=zone)
    start = datetime(local.year, local.month, 1, tzinfo=zone)
    end = datetime(local.year + local.month // 12, local.month % 12 + 1, 1, tzinfo=zone)
    now = (local - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert month_of(now, hours * 3_600_000) == (start.timestamp() * 1000, end.timestamp() * 1000)


@given(ips, ports)
def test_host_round_trip(ip: IPv4Address | IPv6Address, port: int) -> None:
    raw = ip.packed + port.to_bytes(4, "big")
    assert decode_host(raw) == host_of(ip, port)
    assert encode_host(host_of(ip, port)) == raw


@pytest.mark.parametrize(
    "bad", ["", "localhost:1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:65536", "1.2.3.4:-1", "[::1]", "1.2.3:4"]
)
def test_bad_hosts_are_named(bad: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        encode_host(bad)
    assert bad in str(error.value)
