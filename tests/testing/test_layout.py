"""How nodes are configured, without starting any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstream.errors import ConfigurationError
from rocketstream.testing import RocketMQCluster, ports
from rocketstream.testing.jars import JarSet
from rocketstream.testing.java import Java
from rocketstream.testing.layout import Ground, Layout, lay_out


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Callable[..., Layout]]:
    """Lay a cluster out as `RocketMQCluster` would."""
    ground = Ground(
        directory=tmp_path,
        java=Java(Path("java"), 17),
        jars=JarSet("5.5.0", Path("jars")),
        launcher=lambda command, environment, output: pytest.fail("nothing is started here"),
        name_server_is_ready=lambda node: True,
        broker_is_ready=lambda node: True,
    )
    made: list[Layout] = []

    def plan(**settings: Any) -> Layout:
        made.append(lay_out(RocketMQCluster(**settings)._settings, ground))
        return made[-1]

    yield plan
    for layout in made:
        for node in (*layout.name_servers, *layout.brokers, *layout.slaves):
            ports.release(node.port, node.port_offsets)


def test_every_broker_knows_every_name_server(plan: Callable[..., Layout]) -> None:
    layout = plan(name_servers=2, brokers=2, slaves=1)
    addresses = ";".join(node.address for node in layout.name_servers)
    assert [node.name for node in layout.slaves] == ["broker-a-slave-1", "broker-b-slave-1"]
    for node in (*layout.brokers, *layout.slaves):
        assert node.config["namesrvAddr"] == addresses
        assert node.config["brokerIP1"] == node.config["brokerIP2"] == "127.0.0.1"
        assert int(node.config["haListenPort"]) == int(node.config["listenPort"]) + 1 == node.port + 1


def test_a_slave_finds_its_master_and_keeps_its_role(plan: Callable[..., Layout]) -> None:
    layout = plan(slaves=2, broker_config={"brokerRole": "ASYNC_MASTER", "maxMessageSize": 1}, slave_config={"x": True})
    [master] = layout.brokers
    assert (master.config["brokerRole"], master.config["brokerId"]) == ("ASYNC_MASTER", "0")
    assert "x" not in master.config
    for broker_id, slave in enumerate(layout.slaves, start=1):
        assert (slave.config["brokerRole"], slave.config["brokerId"]) == ("SLAVE", str(broker_id))
        assert slave.config["brokerName"] == master.config["brokerName"] == "broker-a"
        assert (slave.config["maxMessageSize"], slave.config["x"]) == ("1", "true")


def test_a_master_with_slaves_waits_for_them_unless_told_otherwise(plan: Callable[..., Layout]) -> None:
    assert plan(slaves=1).brokers[0].config["brokerRole"] == "SYNC_MASTER"
    assert plan().brokers[0].config["brokerRole"] == "ASYNC_MASTER"


def test_what_a_user_says_wins(plan: Callable[..., Layout]) -> None:
    [broker] = plan(broker_config={"autoCreateTopicEnable": False}).brokers
    assert broker.config["autoCreateTopicEnable"] == "false"
    assert broker.config["enablePropertyFilter"] == "true"


def test_benchmarks_run_on_the_jvm_and_files_of_real_installations(plan: Callable[..., Layout]) -> None:
    [small], [real] = plan().brokers, plan(profile="benchmark").brokers
    assert "-XX:TieredStopAtLevel=1" in small._command()
    assert "-XX:TieredStopAtLevel=1" not in real._command()
    assert "mappedFileSizeCommitLog" in small.config
    assert "mappedFileSizeCommitLog" not in real.config


def test_properties_and_options_reach_the_jvm(plan: Callable[..., Layout]) -> None:
    layout = plan(
        jvm_properties={"tls.server.mode": "enforcing"},
        broker_jvm_properties={"only.brokers": "1"},
        jvm_options=["-verbose:gc"],
        broker_heap="300m",
    )
    [name_server], [broker] = layout.name_servers, layout.brokers
    assert {"-Dtls.server.mode=enforcing", "-verbose:gc"} <= set(name_server._command())
    assert {"-Dtls.server.mode=enforcing", "-verbose:gc", "-Donly.brokers=1", "-Xmx300m"} <= set(broker._command())
    assert "-Donly.brokers=1" not in name_server._command()
    assert f"-Duser.home={broker.directory / 'home'}" in broker._command()


@pytest.mark.parametrize("told", [{}, {"jvm_properties": {"a": "1"}}, {"broker_jvm_properties": {"a": "1"}}])
def test_servers_that_are_told_nothing_of_tls_speak_none_and_start_sooner(plan: Callable[..., Layout], told) -> None:
    layout = plan(**told)
    for node in (*layout.name_servers, *layout.brokers):
        assert "-Dtls.server.mode=disabled" in node._command()


@pytest.mark.parametrize("kind", ["jvm_properties", "broker_jvm_properties"])
def test_servers_that_are_told_of_tls_do_as_they_are_told(plan: Callable[..., Layout], kind: str) -> None:
    layout = plan(**{kind: {"tls.server.certPath": "somewhere"}})
    for node in (*layout.name_servers, *layout.brokers):
        assert "-Dtls.server.mode=disabled" not in node._command()


@pytest.mark.parametrize("wrong", [{"brokers": 0}, {"brokers": 27}, {"slaves": -1}, {"name_servers": 0}])
def test_a_cluster_that_can_not_be(wrong: dict[str, int]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(ConfigurationError, match=f"{name}={value}"):
        RocketMQCluster(**wrong)


def test_an_unknown_profile() -> None:
    with pytest.raises(ConfigurationError, match="profile='fast' is not one of test, benchmark"):
        RocketMQCluster(profile="fast")


def test_files_of_a_users_own_are_put_beside_the_configuration(plan: Callable[..., Layout]) -> None:
    [broker] = plan(conf_files={"plain_acl.yml": "accounts:\n"}).brokers
    broker._write_files()
    file = broker.directory / "conf" / "plain_acl.yml"
    assert file.read_text() == "accounts:\n"
    file.write_text("changed by the broker\n")
    broker._write_files()  # it starts again
    assert file.read_text() == "changed by the broker\n"
