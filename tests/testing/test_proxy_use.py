"""The fault proxy as people use it: from plain code, as a fixture, in front of a whole cluster."""

from __future__ import annotations

import socket
import threading

import pytest

from rocketstream.testing.cluster_proxy import ClusterProxy
from rocketstream.testing.fault_proxy import FaultProxy
from rocketstream.testing.scripted_server import ScriptedServer
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.command import request, response
from rocketstream.wire.frame import encode_frame
from tests.testing.bare_peers import ASK, frame, serve_on_a_thread


def test_plain_code_uses_it_with_a_thread_of_its_own():
    address, stop = serve_on_a_thread()
    with FaultProxy(address) as proxy:
        host, port = proxy.address.split(":")
        with socket.create_connection((host, int(port)), 10) as client:
            client.sendall(frame(1))
            assert client.recv(65536) == frame(1)
            proxy.hold("down")
            client.sendall(frame(2))
            proxy.wait_until(lambda stats: stats.frames_down == 2)
            proxy.cut()
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        proxy.wait_until(lambda stats: stats.connections_cut == 1)
        with pytest.raises(TimeoutError, match="connections_made=1"):
            proxy.wait_until(lambda stats: stats.connections_made == 2, timeout=0.01)
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), 10)
        proxy.heal()
        socket.create_connection((host, int(port)), 10).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 10)
    stop.set()
    socket.create_connection(("127.0.0.1", int(address.split(":")[1]))).close()
    assert not [thread for thread in threading.enumerate() if thread.name == "FaultProxy"]


ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"%s",1:"%s"},"brokerName":"broker-a","cluster":"c"}],'
    b'"filterServerTable":{},"queueDatas":[{"brokerName":"10.0.0.9:1","perm":6}]}'
)


async def test_a_cluster_proxy_sits_in_front_of_every_broker_that_a_route_names(dial):
    async with ScriptedServer() as name_server, ScriptedServer() as master, ScriptedServer() as slave:
        body = ROUTE % (master.address.encode(), slave.address.encode())
        name_server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda asked: response(asked, 0, body=body))
        master.on(ASK, lambda asked: response(asked, 0, "master"))
        slave.on(ASK, lambda asked: response(asked, 0, "slave"))
        async with ClusterProxy(name_server.address, record=True) as cluster:
            client = await dial(cluster.name_servers[0])
            for _ in range(2):  # the second route names the same proxies
                client.transport.write(b"".join(encode_frame(request(RequestCode.GET_ROUTEINFO_BY_TOPIC))))
            answers = await client.answers(2)
            assert set(cluster.brokers) == {master.address, slave.address}
            expected = ROUTE % tuple(cluster.broker(peer.address).address.encode() for peer in (master, slave))
            assert [answer.body for answer in answers] == [expected, expected]
            for peer, name in ((master, "master"), (slave, "slave")):
                through = await dial(cluster.broker(peer.address))
                through.ask(1)
                assert [answer.remark for answer in await through.answers(1)] == [name]
            assert [proxy.stats.connections_made for proxy in cluster.proxies] == [1, 1, 1]
            assert cluster.name_server_address == cluster.name_servers[0].address


def test_a_cluster_proxy_works_from_plain_code():
    address, stop = serve_on_a_thread()
    with ClusterProxy(address) as cluster:
        broker = cluster.broker(address)
        assert cluster.broker(address) is broker
        host, port = broker.address.split(":")
        with socket.create_connection((host, int(port)), 10) as client:
            client.sendall(frame(1))
            assert client.recv(65536) == frame(1)
    stop.set()
    socket.create_connection(("127.0.0.1", int(address.split(":")[1]))).close()


def test_the_fixture_makes_proxies_and_closes_them(pytester):
    pytester.makepyfile(
        """
        import socket
        from rocketstream.testing import FaultProxy

        made = []

        def test_made(fault_proxy):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                target = f"127.0.0.1:{listener.getsockname()[1]}"
                made.extend([fault_proxy(target), fault_proxy(target, record=True)])
                assert made[0].address != made[1].address
                assert isinstance(made[1], FaultProxy)

        def test_closed():
            for proxy in made:
                assert " closed, 0 connections" in repr(proxy)
        """
    )
    pytester.runpytest("-p", "no:cacheprovider", "-p", "no:asyncio").assert_outcomes(passed=2)
