"""The operator's client on a cluster of two brokers, one of which falls silent, then dies."""

from __future__ import annotations

import pytest

from rocketstream import AdminClient, Message, Producer
from rocketstream.errors import RemotingError
from rocketstream.testing.plugin import EMBEDDED
from tests.bare_client import eventually
from tests.contract.clusters import new_cluster, require_target, silenced


@pytest.mark.parametrize("version", [EMBEDDED, "5.5.0"])
def test_two_brokers_one_of_which_falls_silent_and_dies(version, request):
    require_target(request, version)
    with (
        new_cluster(version, brokers=2) as cluster,
        AdminClient(cluster.name_server_address, timeout=2.0) as admin,
    ):
        route = admin.create_topic("orders", queues=2)
        assert [broker.broker_name for broker in route.brokers] == ["broker-a", "broker-b"]
        with Producer("g", cluster.name_server_address) as producer:
            receipts = [producer.send(Message("orders", b"%d" % number, keys="all")) for number in range(20)]
        eventually(lambda: len(admin.peek("orders", 100)) == 20)
        assert sorted(int(message.body) for message in admin.peek("orders", 100)) == list(range(20))
        assert {message.broker_name for message in admin.peek("orders", 20)} == {"broker-a", "broker-b"}
        assert {message.broker_name for message in admin.peek("orders", 20, broker_name="broker-b")} == {"broker-b"}
        eventually(lambda: len(admin.messages_by_key("orders", "all")) == 20)
        for receipt in receipts[:4]:
            assert admin.message(receipt.message_id, "orders").queue == receipt.queue
            assert admin.message(receipt.offset_message_id).message_id == receipt.message_id

        # A broker of 5.5.0 answers SYSTEM_ERROR until it has taken its first sample of itself.
        eventually(lambda: not any(broker.problem for broker in admin.cluster().brokers))
        with silenced(cluster.brokers[1]):
            alive, silent = admin.cluster().brokers
            assert (alive.broker_name, alive.problem) == ("broker-a", None)
            assert silent.broker_name == "broker-b"
            assert (silent.problem or "").startswith(f"{cluster.brokers[1].address}: ")
            # What could be told of half of the cluster only is not told as if it were all.
            for question in (admin.topics, admin.groups, lambda: admin.peek("orders", 1)):
                with pytest.raises(RemotingError) as caught:
                    question()
                assert caught.value.address == cluster.brokers[1].address
        cluster.brokers[1].kill()
        eventually(lambda: [broker.broker_name for broker in admin.cluster().brokers] == ["broker-a"])
        assert {message.broker_name for message in admin.peek("orders", 20)} == {"broker-a"}
