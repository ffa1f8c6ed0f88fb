"""Members of a group that do not want the same, and settings that are nobody's business."""

from __future__ import annotations

import asyncio

import pytest

from rocketstream.admin.asking import Node
from rocketstream.admin.brokers import read_properties
from rocketstream.admin.connections import ConnectedConsumer, absences, disagreements
from rocketstream.admin.core import AdminCore
from rocketstream.admin.running import RunningInfo
from rocketstream.admin.secrets import REDACTED, is_secret, redacted
from rocketstream.admin.values import Subscription
from rocketstream.cluster.settings import ClientSettings
from rocketstream.wire.bodies.members import Connection, ConsumerConnection
from rocketstream.wire.bodies.subscription import SubscriptionData


def member(client_id: str, *wanted: tuple[str, str] | tuple[str, str, str], **fields: object) -> ConnectedConsumer:
    subscriptions = tuple(Subscription(one[0], one[1], one[2] if len(one) > 2 else "TAG") for one in wanted)
    values: dict[str, object] = {
        "client_id": client_id,
        "address": None,
        "language": "PYTHON",
        "version": "5.5.0",
        "brokers": ("broker-a",),
        "subscriptions": subscriptions,
        "orderly": False,
        "start_timestamp": None,
    }
    return ConnectedConsumer(**{**values, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ([], []),
        ([member("a", ("t", "*"))], []),
        ([member("a", ("t", "*")), member("b", ("t", "*"))], []),
        ([member("a", ("t", "x || y")), member("b", ("t", "y||x"))], []),
        ([member("a", ("t", "*"), ("%RETRY%g", "*")), member("b", ("t", "*"))], []),
        ([member("a", ("t", "*")), member("b", ("t", "x"))], ["topic 't': a wants '*'; b wants 'x'"]),
        (
            [member("a", ("t", "*")), member("b", ("t", "*"), ("u", "*")), member("c", ("t", "*"))],
            ["topic 'u': a, c does not subscribe to it; b wants '*'"],
        ),
        (
            [member("a", ("t", "a > 1", "SQL92")), member("b", ("t", "a > 1"))],
            ["topic 't': a wants 'a > 1'; b wants 'a > 1'"],
        ),
        ([member("a", ("t", "*")), member("b", subscriptions=None)], []),
        ([member("a", ("t", "*"), orderly=True), member("b", ("t", "*"))], ["a consumes in order; b does not"]),
    ],
)
def test_where_members_disagree(members, told):
    assert disagreements(members) == told


def test_a_member_that_is_not_where_the_others_are_is_told():
    everywhere = member("a", brokers=("broker-a", "broker-b"))
    assert absences([everywhere, member("b", brokers=("broker-a", "broker-b"))]) == []
    assert absences([everywhere, member("b")]) == ["b is connected to broker-a, but not to broker-b"]


@pytest.mark.parametrize(
    "name",
    [
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "secretKey",
        "accessKey",
        "tls.server.keyPassword",
        "securityToken",
        "metricsGrpcExporterHeader",
        "aclPassword",
    ],
)
def test_secrets_are_hidden(name):
    assert redacted({name: "hunter2", "brokerName": "broker-a"}) == {name: REDACTED, "brokerName": "broker-a"}
    assert redacted({name: ""}) == {name: ""}, "there is nothing to hide"


@pytest.mark.parametrize(
    "name",
    ["brokerName", "authenticationEnabled", "authenticationProvider", "tls.server.keyPath", "aclEnable", "listenPort"],
)
def test_what_is_no_secret_is_shown(name):
    assert not is_secret(name)


def test_a_properties_file_as_java_writes_it():
    assert read_properties(b"a=1\n\nb = x=y \nnonsense\nc=\n") == {"a": "1", "b": "x=y", "c": ""}


class TwoBrokers(AdminCore):
    """Two brokers that were told different stories by two members, of which none answers and one knows only one."""

    async def readable(self) -> list[Node]:
        return [Node("c", name, 0, f"{name}:1") for name in ("broker-a", "broker-b")]

    async def connections_at(self, node: Node, full_group: str) -> ConsumerConnection:
        both = (Connection(client_id="x"), Connection(client_id="y"))
        text = "*" if node.name == "broker-a" else "red"
        return ConsumerConnection(
            connection_set=both if node.name == "broker-a" else both[:1],
            subscription_table={"t": SubscriptionData(topic="t", sub_string=text)},
        )

    async def running_infos(self, full_group: str) -> list[RunningInfo | None]:
        return [None, None]


def test_brokers_that_were_told_different_stories_are_heard():
    core = TwoBrokers(ClientSettings.make("127.0.0.1:1"))
    found = asyncio.run(core.consumer_connections("g"))
    assert found.disagreements == (
        "y is connected to broker-a, but not to broker-b",
        "topic 't': the brokers were last told different subscriptions (broker-a '*', broker-b 'red')",
    )
    assert found.silent == ("x", "y")
    assert [member.brokers for member in found.members] == [("broker-a", "broker-b"), ("broker-a",)]
