"""Real clusters: each way to have one, each way to lose one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstream.testing import RocketMQCluster, ports
from rocketstream.testing._ask import accepts_connections, registered_brokers
from rocketstream.testing.cluster import ClusterError
from rocketstream.testing.plugin import FOLLOWED, VERSIONS, require_real
from tests.interop.java_peer import JavaPeer
from tests.testing.processes import eventually, exists


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    wanted = request.config.getoption("--rocketmq-version")
    if wanted and request.param not in wanted:
        pytest.skip(f"--rocketmq-version is {wanted}")
    require_real(request.param)
    return str(request.param)


@pytest.fixture
def temporary_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary directories are made; none may be left at the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long(35, "kills a broker and starts it again")
def test_a_killed_broker_comes_back_with_its_store_and_its_ports(version: str, temporary_directories: Path) -> None:
    with RocketMQCluster(version) as cluster:
        assert cluster.directory.is_relative_to(temporary_directories)
        [broker] = cluster.brokers
        address, pid = broker.address, broker.pid
        assert pid is not None
        with JavaPeer(version, cluster.name_server_address) as peer:
            peer.create_topic("orders")
            receipts = peer.produce("orders", [b"%d" % number for number in range(20)])
            assert {receipt.status for receipt in receipts} == {"SEND_OK"}

            broker.kill()

            assert (broker.alive, broker.pid) == (False, None)
            assert not exists(pid)
            assert not accepts_connections(address)
            [name_server] = cluster.name_servers
            assert eventually(lambda: registered_brokers(name_server.address) == set())
            assert "broker-a@" + address + " down" in repr(cluster)

            broker.start()

            assert broker.address == address
            assert broker.pid not in (None, pid)
            messages = peer.consume("group", "orders", count=20)
            assert {message.body for message in messages} == {b"%d" % number for number in range(20)}
        pids = [node.pid for node in cluster.nodes]
    assert not any(exists(pid) for pid in pids if pid is not None)


@pytest.mark.long(60, "waits for a slave to find its master")
def test_a_master_and_its_slave(version: str) -> None:
    with RocketMQCluster(version, slaves=1) as cluster:
        [master], [slave] = cluster.brokers, cluster.slaves
        assert cluster.broker("broker-a", 1) is slave
        known = registered_brokers(cluster.name_server_address)
        assert known == {f"broker-a/0@{master.address}", f"broker-a/1@{slave.address}"}
        with JavaPeer(version, cluster.name_server_address) as peer:
            peer.create_topic("orders", queues=2)

            def status_of_a_send() -> str:
                return peer.produce("orders", [b"1"])[0].status

            # A synchronous master says SEND_OK only once its slave has the message too.
            assert eventually(lambda: status_of_a_send() == "SEND_OK", timeout=60)
            slave.kill()
            assert eventually(lambda: status_of_a_send() in ("SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"))


@pytest.mark.long(20, "starts four servers and stops some in order")
def test_two_masters_and_two_name_servers_and_stopping_one_in_order(temporary_directories: Path) -> None:
    version = "4.9.7"  # stops in 5 s; 5.5.0 takes half a minute
    require_real(version)
    with RocketMQCluster(version, brokers=2, name_servers=2) as cluster:
        everybody = {f"{node.name}/0@{node.address}" for node in cluster.brokers}
        assert [node.name for node in cluster.brokers] == ["broker-a", "broker-b"]
        assert cluster.name_server_address.count(";") == 1
        for name_server in cluster.name_servers:
            assert registered_brokers(name_server.address) == everybody
        first, second = cluster.name_servers
        with JavaPeer(version, cluster.name_server_address) as peer:
            assert sorted(peer.create_topic("orders", queues=2)) == ["broker-a", "broker-b"]
            used = {receipt.broker_name for receipt in peer.produce("orders", count=8)}
            assert used == {"broker-a", "broker-b"}

        cluster.brokers[1].stop()
        assert "broker-b" not in str(registered_brokers(first.address))
        second.kill()
        second.start()
        cluster.wait_until_ready(timeout=40)
        assert registered_brokers(second.address) == {f"broker-a/0@{cluster.brokers[0].address}"}
        with pytest.raises(ClusterError, match="namesrv-2 is already running"):
            second.start()


def test_a_broker_that_can_not_start_shows_its_logs(version: str, temporary_directories: Path) -> None:
    with pytest.raises(ClusterError) as error:
        RocketMQCluster(version, broker_config={"brokerRole": "SLAVE"}).start()

    assert "broker-a (127.0.0.1:" in str(error.value)
    assert "ended with 253" in str(error.value)
    assert "Slave's brokerId must be > 0" in str(error.value)


@pytest.mark.rocketmq_real
def test_the_logs_of_rocketmq_itself_are_shown_too(rocketmq_cluster: RocketMQCluster) -> None:
    broker = rocketmq_cluster.brokers[0]
    assert eventually(lambda: "boot success" in broker.log_tail(10_000))
    assert [path.name for path in broker.log_files()] == ["console.log", "broker.log"]
    assert eventually(lambda: all(f"the end of {path}" in broker.log_tail() for path in broker.log_files()))
    assert "|-INFO in" not in rocketmq_cluster.log_tail(10_000), "logback's talk about itself hides the cause"


def test_a_broker_that_takes_too_long_is_given_up(version: str, temporary_directories: Path) -> None:
    cluster = RocketMQCluster(version, start_timeout=0.2)
    with pytest.raises(ClusterError, match=r"is not ready after 0 s"):
        cluster.start()
    assert not any(node.alive for node in cluster.nodes)


@pytest.mark.long(20, "starts a cluster twice")
def test_a_port_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch, temporary_directories: Path) -> None:
    """Between our look and the server's, somebody else may listen; here the first port drawn is taken."""
    require_real("4.9.7")
    draw = ports.reserve
    with socket.create_server(("", 0)) as other:
        taken = [other.getsockname()[1]]
        monkeypatch.setattr(ports, "reserve", lambda offsets=(0,): taken.pop() if taken else draw(offsets))
        with RocketMQCluster("4.9.7") as cluster:
            assert taken == []
            assert str(other.getsockname()[1]) not in cluster.name_server_address
            assert registered_brokers(cluster.name_server_address)


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(temporary_directories: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ports.PortError, match=f"port {port} of 127.0.0.1 is taken"):
            RocketMQCluster(FOLLOWED, name_server_port=port).start()


@pytest.mark.long(25, "stops a broker in order")
def test_a_directory_that_was_given_is_closed_in_order_and_stays(tmp_path: Path) -> None:
    require_real("4.9.7")
    store = tmp_path / "kept" / "broker-a" / "store"
    with RocketMQCluster("4.9.7", directory=tmp_path / "kept") as cluster:
        assert (store / "abort").exists(), "RocketMQ's own mark of a store that is in use"
    assert not any(node.alive for node in cluster.nodes)
    assert (store / "config").is_dir()
    assert not (store / "abort").exists()


RUN = """
import json, sys, time
from rocketstream.testing import RocketMQCluster
cluster = RocketMQCluster(sys.argv[1])
cluster.start()
print(json.dumps([str(cluster.directory), [node.pid for node in cluster.nodes]]), flush=True)
if sys.argv[2] == "killed":
    time.sleep(600)
"""


@pytest.mark.parametrize(("version", "end"), [("5.5.0", "killed"), ("4.9.7", "killed"), ("4.9.7", "forgotten")])
@pytest.mark.long(20, "starts a cluster and kills its owner")
def test_a_test_run_that_is_killed_leaves_nothing_behind(version: str, end: str) -> None:
    """Nor does one that ends without closing its cluster."""
    require_real(version)
    run = subprocess.Popen([sys.executable, "-c", RUN, version, end], stdout=subprocess.PIPE, process_group=0)
    assert run.stdout is not None
    with run.stdout as answers:
        directory, pids = json.loads(answers.readline())
    if end == "killed":
        assert all(exists(pid) for pid in pids)
        assert Path(directory).exists()
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()

    assert eventually(lambda: not any(exists(pid) for pid in pids))
    assert eventually(lambda: not Path(directory).exists())
