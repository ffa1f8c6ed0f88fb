"""Embedded brokers in the clothes of a cluster."""

from __future__ import annotations

import pytest

from rocketstream import AdminClient, Message, Producer
from rocketstream.errors import ConfigurationError, RocketStreamError
from rocketstream.testing import EmbeddedCluster
from rocketstream.testing._ask import registered_brokers


def test_masters_and_name_servers_are_nodes_of_their_own():
    with EmbeddedCluster(brokers=2, name_servers=2) as cluster:
        assert [node.broker_name for node in cluster.brokers] == ["broker-a", "broker-b"]
        everybody = {f"{node.broker_name}/0@{node.address}" for node in cluster.brokers}
        for server in cluster.name_servers:
            assert registered_brokers(server.address) == everybody
        assert cluster.name_server_address == ";".join(server.address for server in cluster.name_servers)
        assert cluster.broker("broker-b") is cluster.brokers[1]
        with pytest.raises(ConfigurationError, match="no broker 'broker-c'"):
            cluster.broker("broker-c")
        cluster.brokers[1].kill()
        assert [node.alive for node in cluster.nodes] == [True, True, True, False]
        assert "broker-b@" in repr(cluster)
        directory = cluster.directory
    assert not directory.exists()


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("together", [True, False])
def test_a_broker_comes_back_at_the_same_place_with_its_messages(end, together):
    with EmbeddedCluster(together=together) as cluster:
        (broker,) = cluster.brokers
        address = broker.address
        with Producer("g", cluster.name_server_address) as producer:
            producer.send(Message("orders", b"x"))
        getattr(broker, end)()
        assert not broker.alive
        broker.start()
        assert broker.address == address
        with AdminClient(cluster.name_server_address) as admin:
            assert [message.body for message in admin.peek("orders")] == [b"x"]


def test_settings_have_rocketmqs_names_and_defaults(tmp_path):
    config = {"messageDelayLevel": "1s 2s", "transactionTimeOut": 2000, "enablePropertyFilter": False, "odd": "1"}
    with (
        EmbeddedCluster(broker_config=config, directory=tmp_path, lock_expiry=5.0) as cluster,
        AdminClient(cluster.name_server_address) as admin,
    ):
        told = admin.broker_config(cluster.brokers[0].address)
        assert {name: told[name] for name in config} == {
            "messageDelayLevel": "1s 2s",
            "transactionTimeOut": "2000",
            "enablePropertyFilter": "false",
            "odd": "1",
        }
        assert told["recallMessageEnable"] == "false", "as with RocketMQ"
        assert cluster.brokers[0].broker.settings.lock_expiry == 5.0
        assert admin.cluster().brokers[0].version == cluster.version == "5.5.0"
    assert (tmp_path / "broker-a").is_dir()


def test_a_name_server_that_comes_back_is_told_again():
    with EmbeddedCluster() as cluster:
        (server,) = cluster.name_servers
        server.restart()
        assert registered_brokers(server.address) == set(), "until the broker registers again, after 30 s"
        cluster.brokers[0].restart()
        assert registered_brokers(server.address) == {f"broker-a/0@{cluster.brokers[0].address}"}


def test_what_it_is_not_is_refused():
    with pytest.raises(ConfigurationError, match=r"follow RocketMQ 5\.5\.0 only"):
        EmbeddedCluster("4.9.7")
    with pytest.raises(ConfigurationError, match="one broker with one name server"):
        EmbeddedCluster(brokers=2, together=True)
    with pytest.raises(RocketStreamError, match="not started"):
        EmbeddedCluster().directory  # noqa: B018
