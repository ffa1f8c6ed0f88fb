"""Ports in the groups that RocketMQ takes."""

from __future__ import annotations

import socket

import pytest

from rocketstream.testing import ports


def test_a_port_that_is_listened_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
    assert ports.is_free(port)


@pytest.mark.parametrize("taken_offset", ports.BROKER_OFFSETS)
def test_a_group_is_free_as_a_whole(monkeypatch: pytest.MonkeyPatch, taken_offset: int) -> None:
    base, free = ports.reserve(ports.BROKER_OFFSETS), ports.reserve(ports.BROKER_OFFSETS)
    ports.release(base, ports.BROKER_OFFSETS)
    ports.release(free, ports.BROKER_OFFSETS)
    drawn = iter([base, free])
    monkeypatch.setattr(ports._random, "randrange", lambda low, high: next(drawn))
    with socket.create_server(("127.0.0.1", base + taken_offset)):
        assert ports.reserve(ports.BROKER_OFFSETS) == free
    ports.release(free, ports.BROKER_OFFSETS)


def test_a_group_is_not_given_out_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    first, free = ports.reserve(ports.BROKER_OFFSETS), ports.reserve(ports.BROKER_OFFSETS)
    ports.release(free, ports.BROKER_OFFSETS)
    drawn = iter([first, first - 1, first + 2, free])
    monkeypatch.setattr(ports._random, "randrange", lambda low, high: next(drawn))
    assert ports.reserve(ports.BROKER_OFFSETS) == free
    ports.release(first, ports.BROKER_OFFSETS)
    ports.release(free, ports.BROKER_OFFSETS)


def test_no_group_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(ports.PortError, match=r"no free ports \['P-2', 'P\+0', 'P\+1'\]"):
        ports.reserve(ports.BROKER_OFFSETS)
