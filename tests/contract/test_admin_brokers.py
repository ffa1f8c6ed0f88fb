"""The operator's client on a cluster of two brokers, one of which falls silent, then dies."""

from __future__ import annotations

import pytest

from rocketstream import AdminClient, Message, Producer
from rocketstream.errors import RemotingError
from rocketstream.testing.plugin import EMBEDDED
from tests.bare_client import eventually
from tests.contract.clusters import new_cluster, require_target, silenced
from tests.contract.consuming import new_consumer


def dead_letters_of_both(admin: AdminClient, address: str) -> None:
    """What a group gave up on two brokers is seen together, and sent again once."""

    def give_up(messages, context) -> None:
        context.delay_level_when_next_consume = -1

    with new_consumer("gives-up", address, give_up, "orders") as consumer:
        eventually(lambda: admin.dead_letters("gives-up").total == 20)
        (member,) = admin.consumer_connections("gives-up").members
        assert (member.client_id, member.brokers) == (consumer.client_id, ("broker-a", "broker-b"))
    letters = admin.dead_letters("gives-up", 100).letters
    assert sorted(int(letter.message.body) for letter in letters) == list(range(20))
    assert {letter.broker_name for letter in letters} == {"broker-a", "broker-b"}
    admin.create_topic("again", queues=2)
    assert admin.replay_dead_letters("gives-up", to="again").by_target == {"again": 20}
    eventually(lambda: len(admin.peek("again", 100)) == 20)
    assert sorted(int(message.body) for message in admin.peek("again", 100)) == list(range(20))
    eventually(lambda: admin.replay_dead_letters("gives-up", to="again", dry_run=True).replayed == 0)


@pytest.mark.parametrize("version", [EMBEDDED, "5.5.0"])
@pytest.mark.long(35, "starts two brokers, and waits for one that is silent", real=True)
@pytest.mark.slow(11, "waits for a broker that is silent")
def test_two_brokers_one_of_which_falls_silent_and_dies(version, request):
    require_target(request, version)
    with (
        new_cluster(version, brokers=2) as cluster,
        AdminClient(cluster.name_server_address) as admin,
        AdminClient(cluster.name_server_address, timeout=2.0) as hasty,
    ):
        route = admin.create_topic("orders", queues=2)
        assert [broker.broker_name for broker in route.brokers] == ["broker-a", "broker-b"]
        with Producer("g", cluster.name_server_address, send_timeout=10.0) as producer:
            receipts = [producer.send(Message("orders", b"%d" % number, keys="all")) for number in range(20)]
        eventually(lambda: len(admin.peek("orders", 100)) == 20)
        assert sorted(int(message.body) for message in admin.peek("orders", 100)) == list(range(20))
        assert {message.broker_name for message in admin.peek("orders", 20)} == {"broker-a", "broker-b"}
        assert {message.broker_name for message in admin.peek("orders", 20, broker_name="broker-b")} == {"broker-b"}
        eventually(lambda: len(admin.messages_by_key("orders", "all")) == 20)
        for receipt in receipts[:4]:
            assert admin.message(receipt.message_id, "orders").queue == receipt.queue
            assert admin.message(receipt.offset_message_id).message_id == receipt.message_id

        dead_letters_of_both(admin, cluster.name_server_address)

        # A broker of 5.5.0 answers SYSTEM_ERROR until it has taken its first sample of itself.
        eventually(lambda: not any(broker.problem for broker in admin.cluster().brokers))
        with silenced(cluster.brokers[1]):
            alive, silent = hasty.cluster().brokers
            assert (alive.broker_name, alive.problem) == ("broker-a", None)
            assert silent.broker_name == "broker-b"
            assert (silent.problem or "").startswith(f"{cluster.brokers[1].address}: ")
            # What could be told of half of the cluster only is not told as if it were all.
            for question in (hasty.topics, hasty.groups, lambda: hasty.peek("orders", 1)):
                with pytest.raises(RemotingError) as caught:
                    question()
                assert caught.value.address == cluster.brokers[1].address
        cluster.brokers[1].kill()
        eventually(lambda: [broker.broker_name for broker in admin.cluster().brokers] == ["broker-a"])
        assert {message.broker_name for message in admin.peek("orders", 20)} == {"broker-a"}
