"""The address in client ids and message ids: what others may know this machine by, whatever the network is like."""

from __future__ import annotations

import socket

import pytest

from rocketstream.cluster import client_id as module
from rocketstream.cluster.client_id import client_id, local_ip
from rocketstream.wire.message_id import UniqueIds, decode_unique_id


class Network:
    """A machine's network as the socket module shows it: outgoing addresses per family, and what its name says."""

    def __init__(self) -> None:
        self.outgoing: dict[int, str | OSError] = {
            socket.AF_INET: OSError("Network is unreachable"),
            socket.AF_INET6: OSError("Network is unreachable"),
        }
        self.named: list[str] | Exception = socket.gaierror("Name or service not known")
        self.open = 0

    def socket(self, family, kind):
        assert kind == socket.SOCK_DGRAM, "connecting anything else would send something"
        network = self

        class Probe:
            def __enter__(self):
                network.open += 1
                return self

            def __exit__(self, *_):
                network.open -= 1

            def connect(self, address):
                if isinstance(network.outgoing[family], OSError):
                    raise network.outgoing[family]

            def getsockname(self):
                return (network.outgoing[family], 40000)

        return Probe()

    def getaddrinfo(self, host, port, family, type):
        if isinstance(self.named, Exception):
            raise self.named
        return [(family, type, 6, "", (address, 0)) for address in self.named]


@pytest.fixture
def network(monkeypatch):
    made = Network()
    monkeypatch.setattr(module.socket, "socket", made.socket)
    monkeypatch.setattr(module.socket, "getaddrinfo", made.getaddrinfo)
    yield made
    assert made.open == 0


def test_the_address_that_packets_leave_from_wins_over_a_host_name_that_means_loopback(network):
    network.outgoing = {socket.AF_INET: "10.1.2.3", socket.AF_INET6: "2001:db8::2"}
    network.named = ["127.0.1.1"]
    assert local_ip() == "10.1.2.3"


def test_a_network_without_a_way_out_is_known_by_its_host_name(network):
    network.outgoing[socket.AF_INET6] = "2001:db8::2"
    network.named = ["127.0.0.1", "192.168.7.5"]
    assert local_ip() == "192.168.7.5"


@pytest.mark.parametrize("named", [["127.0.0.1"], [], socket.gaierror("no such name"), UnicodeError("label too long")])
def test_ipv6_is_better_than_loopback(network, named):
    network.named = named
    network.outgoing[socket.AF_INET6] = "2001:db8::2"
    assert local_ip() == "2001:db8::2"
    assert client_id("1#a", "unit") == "[2001:db8::2]@1#a@unit"
    assert decode_unique_id(UniqueIds(local_ip(), 1, 2).next(1_700_000_000_000), 1_700_000_000_000).ip == "2001:db8::2"


@pytest.mark.parametrize("useless", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("useless_6", ["::1", "::", "fe80::1%eth0"])
def test_a_machine_that_nobody_can_reach_has_the_loopback_address(network, useless, useless_6):
    network.named = ["127.0.0.1"]
    network.outgoing = {socket.AF_INET: useless, socket.AF_INET6: useless_6}
    assert local_ip() == "127.0.0.1"


def test_without_a_network_or_a_name_it_still_has_one(network, monkeypatch):
    def no_sockets_left(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(module.socket, "socket", no_sockets_left)
    assert local_ip() == "127.0.0.1"
    assert client_id("1#a") == "127.0.0.1@1#a"


def test_what_this_very_machine_says_is_an_address_of_it():
    """The one test with the real network: only an own address can be bound to."""
    address = local_ip()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as own:
        own.bind((address, 0))
