"""What users of an embedded broker may do."""

from __future__ import annotations

import pytest

from rocketstream.broker import EmbeddedBroker, User
from rocketstream.broker.access import Access
from rocketstream.broker.demands import Demand, demands_of
from rocketstream.broker.dispatch import Dispatcher
from rocketstream.clock import ManualClock
from rocketstream.errors import ClientStateError, ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.remoting.acl import AclSigner, Credentials
from rocketstream.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketstream.wire.bodies.lock import LockBatchRequestBody, UnlockBatchRequestBody
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.subscription import subscription
from tests.broker.parts import FakeConnection, request

ADMIN = User("admin", "admin-secret", admin=True)


def user_credentials(user: User) -> Credentials:
    return Credentials(user.access_key, user.secret_key)


def wants(code: RequestCode, fields: dict[str, str] | None = None, body: bytes = b"") -> list[str]:
    """What a request wants, in short."""
    found = demands_of(request(code, fields or {}, body), "C")
    return [f"{'/'.join(demand.actions)} {demand.resource}" for demand in found]


@pytest.mark.parametrize(
    ("code", "fields", "wanted"),
    [
        (RequestCode.SEND_MESSAGE_V2, {"a": "p", "b": "t"}, ["PUB Topic:t"]),
        (RequestCode.SEND_BATCH_MESSAGE, {"a": "p", "b": "t"}, ["PUB Topic:t"]),
        (RequestCode.SEND_MESSAGE, {"producerGroup": "p", "topic": "t"}, ["PUB Topic:t"]),
        (RequestCode.SEND_MESSAGE_V2, {"a": "g", "b": "%RETRY%g"}, ["SUB Group:g"]),
        (RequestCode.SEND_MESSAGE_V2, {"b": "%RETRY%g"}, ["SUB Group:g"]),
        (RequestCode.PULL_MESSAGE, {"consumerGroup": "g", "topic": "t"}, ["SUB Topic:t", "SUB Group:g"]),
        (RequestCode.PULL_MESSAGE, {"consumerGroup": "g", "topic": "%RETRY%g"}, ["SUB Group:g"]),
        (
            RequestCode.QUERY_CONSUMER_OFFSET,
            {"consumerGroup": "g", "topic": "t"},
            ["SUB/GET Topic:t", "SUB/GET Group:g"],
        ),
        (RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "g", "topic": "%RETRY%g"}, ["SUB/UPDATE Group:g"]),
        (RequestCode.POP_MESSAGE, {"consumerGroup": "g", "topic": "t"}, ["SUB Group:g", "SUB Topic:t"]),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "g", "originTopic": "t"}, ["SUB Group:g"]),
        (RequestCode.GET_MAX_OFFSET, {"topic": "t"}, ["GET Topic:t"]),
        (RequestCode.GET_MAX_OFFSET, {"topic": "%RETRY%g"}, ["GET Group:g"]),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "t"}, ["CREATE Topic:t"]),
        (RequestCode.UNREGISTER_CLIENT, {"producerGroup": "p"}, []),
        (RequestCode.UNREGISTER_CLIENT, {"consumerGroup": "g"}, ["SUB Group:g"]),
        (RequestCode.GET_PRODUCER_CONNECTION_LIST, {}, ["GET Cluster:C"]),
        (RequestCode.GET_BROKER_CONFIG, {}, []),
    ],
)
def test_what_requests_want(code, fields, wanted):
    assert wants(code, fields) == wanted


def test_what_heartbeats_and_locks_want():
    subs = tuple(subscription(topic, "*", version=1) for topic in ("t", "%RETRY%g"))
    beat = HeartbeatData(
        client_id="c", consumer_data_set=(ConsumerData(group_name="g", subscription_data_set=subs),)
    ).encode()
    assert wants(RequestCode.HEART_BEAT, body=beat) == ["SUB Group:g", "SUB Topic:t"]
    queues = frozenset(MessageQueue(topic, "b", queue_id) for topic in ("t", "%RETRY%g") for queue_id in (0, 1))
    lock = LockBatchRequestBody(consumer_group="g", client_id="c", mq_set=queues).encode()
    assert wants(RequestCode.LOCK_BATCH_MQ, body=lock) == ["SUB Group:g", "SUB Topic:t"]
    unlock = UnlockBatchRequestBody(consumer_group="g", client_id="c", mq_set=queues).encode()
    assert wants(RequestCode.UNLOCK_BATCH_MQ, body=unlock) == ["SUB Group:g", "SUB Topic:t"]


@pytest.mark.parametrize(
    ("topics", "name", "action", "objection"),
    [
        ({}, "t", "PUB", "no matched policies."),
        ({"t": "PUB"}, "t", "PUB", None),
        ({"t": "pub | sub"}, "t", "SUB", None),
        ({"t": "PUB"}, "t", "SUB", "no matched policies."),
        ({"t": "ALL"}, "t", "DELETE", None),
        ({"t": "DENY", "*": "ALL"}, "t", "PUB", "the decision is deny."),
        ({"t": "DENY", "*": "ALL"}, "u", "PUB", None),
        ({"t": "PUB", "*": "DENY"}, "t", "PUB", None),
        ({"logs-open-*": "SUB", "logs-*": "DENY"}, "logs-open-1", "SUB", None),
        ({"logs-*": "SUB"}, "logs-1", "SUB", None),
        ({"logs-*": "SUB"}, "log", "SUB", "no matched policies."),
        ({"logs-*": "ALL", "logs-secret-*": "DENY"}, "logs-secret-1", "SUB", "the decision is deny."),
        ({"t": "PUB", "*": "SUB"}, "t", "SUB", None),  # an entry counts only for what it says
    ],
)
def test_of_several_entries_the_one_that_is_closest_decides(topics, name, action, objection):
    user = User("anna", "secret", topics=topics)
    assert user.objection(Demand("Topic", name, (action,))) == objection
    assert ADMIN.objection(Demand("Topic", name, (action,))) is None


def test_groups_and_clusters_are_asked_for_by_themselves():
    user = User("anna", "secret", topics={"*": "ALL"}, groups={"g": "SUB"}, cluster="GET")
    assert user.objection(Demand("Group", "g", ("SUB",))) is None
    assert user.objection(Demand("Group", "t", ("SUB",))) == "no matched policies."
    assert user.objection(Demand("Cluster", "C", ("GET",))) is None
    assert user.objection(Demand("Cluster", "C", ("UPDATE",))) == "no matched policies."


def test_a_missing_permission_is_answered_in_rocketmqs_words():
    anna = User("anna", "secret", topics={"t": "PUB"})
    access = Access([], [ADMIN, anna])
    connection = FakeConnection(Dispatcher(), ManualClock())

    def asks(user: User, topic: str) -> bool:
        command = request(RequestCode.SEND_MESSAGE_V2, {"b": topic})
        AclSigner(user_credentials(user)).before_request("", command)
        return access.broker_gate(connection, command)

    assert not asks(anna, "t")
    assert not asks(ADMIN, "u")
    assert asks(anna, "u")
    (answer,) = connection.sent
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "User:anna has no permission to access Topic:u from 127.0.0.1, no matched policies."
    access.set_users([ADMIN])
    assert asks(anna, "t")
    assert connection.sent[-1].remark == "User:anna is not found."


def test_a_body_that_cannot_be_read_is_refused_too():
    access = Access([], [ADMIN, User("anna", "secret")])
    command = request(RequestCode.HEART_BEAT, {"AccessKey": "anna"}, b"{")
    assert access.lack(command, "h") == "parse authorization context error."


def test_who_may_change_a_name_server():
    anna = User("anna", "secret", topics={"*": "ALL"}, groups={"*": "ALL"})
    access = Access([], [ADMIN, anna])
    connection = FakeConnection(Dispatcher(), ManualClock())
    for user, code, refused in (
        (anna, RequestCode.PUT_KV_CONFIG, True),
        (ADMIN, RequestCode.PUT_KV_CONFIG, False),
        (anna, RequestCode.GET_ROUTEINFO_BY_TOPIC, False),
    ):
        command = request(code, {"namespace": "n"})
        AclSigner(user_credentials(user)).before_request("", command)
        assert access.name_server_gate(connection, command) is refused


@pytest.mark.parametrize("wrong", [{"topics": {"t": "WRITE"}}, {"groups": {"g": ""}}, {"cluster": "PUB|X"}])
def test_actions_that_there_are_not(wrong):
    with pytest.raises(ConfigurationError, match=r"user 'anna': .* must be one or more of ALL, CREATE, .*, or DENY"):
        User("anna", "secret", **wrong)


def test_users_need_somebody_who_may_do_everything():
    with pytest.raises(ConfigurationError, match="one of them must be admin=True"):
        EmbeddedBroker(users=[User("anna", "secret")])
    with pytest.raises(ConfigurationError, match="both an access key and a secret key"):
        User("anna", "")
    assert "secret" not in repr(User("anna", "secret"))


def test_users_are_changed_only_where_somebody_asks():
    with EmbeddedBroker() as broker, pytest.raises(ClientStateError, match="it lets anybody in"):
        broker.set_users(ADMIN)
    with EmbeddedBroker(users=[ADMIN]) as broker, pytest.raises(ConfigurationError, match="must be admin=True"):
        broker.set_users(User("anna", "secret"))
