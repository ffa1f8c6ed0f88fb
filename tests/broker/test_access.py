"""Who may ask a broker that has credentials, and who may not."""

from __future__ import annotations

import pytest

from rocketstream import AdminClient, Message, Producer
from rocketstream.broker import EmbeddedBroker
from rocketstream.broker.access import Access
from rocketstream.broker.dispatch import Dispatcher
from rocketstream.clock import ManualClock
from rocketstream.errors import BrokerError
from rocketstream.remoting.acl import AclSigner, Credentials
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command
from tests.broker.parts import FakeConnection, request

ANNA = Credentials("anna", "secret-1")
BERT = Credentials("bert", "secret-2")


def signed(credentials: Credentials, code: RequestCode = RequestCode.GET_BROKER_CONFIG, **more: object) -> Command:
    command = request(code, {"topic": "größe", "queueId": "1"}, b"body", **more)
    AclSigner(credentials).before_request("", command)
    return command


@pytest.fixture
def access() -> Access:
    return Access([ANNA, BERT])


def test_signed_by_anybody_who_is_known(access):
    assert access.objection(signed(ANNA)) is None
    assert access.objection(signed(BERT)) is None


def test_what_is_not_signed_or_not_rightly_is_objected_to(access):
    assert access.objection(request(RequestCode.GET_BROKER_CONFIG)) == "username cannot be null."
    assert access.objection(signed(Credentials("carl", "x"))) == "User:carl is not found."
    assert access.objection(signed(Credentials("anna", "secret-2"))) == "check signature failed."
    for spoil in (
        lambda command: command.fields.update(queueId="2"),
        lambda command: command.fields.update(more="1"),
        lambda command: command.fields.pop("Signature"),
        lambda command: setattr(command, "body", b"Body"),
    ):
        command = signed(ANNA)
        spoil(command)
        assert access.objection(command) == "check signature failed."


@pytest.mark.parametrize(("version", "objection"), [(399, None), (400, "check signature failed.")])
def test_clients_before_4_9_4_leave_a_field_unsigned(access, version, objection):
    command = signed(ANNA, RequestCode.QUERY_MESSAGE, version=version)
    command.fields["_UNIQUE_KEY_QUERY"] = "true"
    assert access.objection(command) == objection


def test_a_refusal_is_an_answer_unless_nobody_wants_one(access):
    connection = FakeConnection(Dispatcher(), ManualClock())
    assert access.broker_gate(connection, request(RequestCode.PULL_MESSAGE))
    (answer,) = connection.sent
    assert (answer.code, answer.opaque) == (ResponseCode.NO_PERMISSION, 7)
    assert access.broker_gate(connection, request(RequestCode.PULL_MESSAGE, one_way=True))
    assert len(connection.sent) == 1
    assert not access.broker_gate(connection, signed(ANNA))


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, False),
        (RequestCode.GET_BROKER_CLUSTER_INFO, False),
        (RequestCode.REGISTER_BROKER, True),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, True),
        (RequestCode.PUT_KV_CONFIG, True),
        (4711, True),
    ],
)
def test_a_name_server_lets_everybody_read(access, code, refused):
    connection = FakeConnection(Dispatcher(), ManualClock())
    assert access.name_server_gate(connection, request(code)) is refused


def test_a_whole_broker_with_credentials():
    with EmbeddedBroker(credentials=(ANNA,)) as broker:
        with Producer("g", broker.address, credentials=ANNA) as producer:
            producer.send(Message("orders", b"x"))
        with AdminClient(broker.address, credentials=ANNA) as admin:
            assert [message.body for message in admin.peek("orders")] == [b"x"]
        for stranger in (None, BERT):
            with AdminClient(broker.address, credentials=stranger) as admin, pytest.raises(BrokerError) as caught:
                admin.create_topic("mine")
            assert caught.value.code == ResponseCode.NO_PERMISSION


def test_a_second_broker_registers_with_its_credentials():
    with (
        EmbeddedBroker(credentials=(ANNA,)) as first,
        EmbeddedBroker(credentials=(ANNA,), broker_name="broker-b", name_servers=first.address),
        AdminClient(first.address, credentials=ANNA) as admin,
    ):
        assert [broker.broker_name for broker in admin.cluster().brokers] == ["broker-a", "broker-b"]
