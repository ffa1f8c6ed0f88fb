"""Consumers whose permissions change while they, or others on the same client, are there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketstream import AdminClient, ConsumeResult, Credentials, MessageModel, PushConsumer
from rocketstream.broker import EmbeddedBroker, User
from rocketstream.errors import AccessDeniedError
from tests.bare_client import eventually

ADMIN = User("admin", "admin-secret", admin=True)
ANNA = User("anna", "anna-secret", topics={"orders": "SUB|GET"}, groups={"g": "SUB", "h": "SUB"})
KEYS = Credentials("anna", "anna-secret")

pytestmark = pytest.mark.feature("security/acl-denied-consumer")


def consumer(broker: EmbeddedBroker, group: str, **settings: object) -> PushConsumer:
    made = PushConsumer(
        group, broker.address, credentials=KEYS, listener=lambda messages, context: ConsumeResult.SUCCESS, **settings
    )
    made.subscribe("orders")
    return made


def test_queues_that_it_may_not_ask_about_show_in_its_status(tmp_path):
    settings = {"model": MessageModel.BROADCASTING, "local_offset_dir": tmp_path, "rebalance_interval": 0.05}
    with (
        EmbeddedBroker(users=[ADMIN, ANNA]) as broker,
        AdminClient(broker.address, credentials=Credentials("admin", "admin-secret")) as admin,
    ):
        admin.create_topic("orders", queues=1)
        with consumer(broker, "g", poll_name_server_interval=0.05, **settings) as running:
            assert running.status().problems == {}
            broker.set_users(ADMIN, replace(ANNA, topics={"orders": "SUB"}))
            admin.create_topic("orders", queues=2, update=True)
            eventually(lambda: "grant it GET on Topic:orders" in running.status().problems.get("orders", ""))
            assert len(running.assignment) == 1, "what it had, it keeps"
            broker.set_users(ADMIN, ANNA)
            eventually(lambda: len(running.assignment) == 2)
            eventually(lambda: running.status().problems == {})


def test_a_start_that_was_refused_may_be_tried_again():
    """Also on a client that others keep alive meanwhile: what was refused before counts no more."""
    with (
        EmbeddedBroker(users=[ADMIN, ANNA]) as broker,
        AdminClient(broker.address, credentials=Credentials("admin", "admin-secret")) as admin,
    ):
        admin.create_topic("orders", queues=1)
        other, refused = consumer(broker, "h", instance_name="one"), consumer(broker, "g", instance_name="one")
        with other:
            broker.set_users(ADMIN, replace(ANNA, groups={"h": "SUB"}))
            with pytest.raises(AccessDeniedError, match="grant it SUB on Group:g"):
                refused.start()
            broker.set_users(ADMIN, ANNA)
            with refused:
                assert refused.status().problems == {}
