"""Namespaces of the second kind: in the header of every request, beside names that stay as they are."""

from __future__ import annotations

import pytest

from rocketstream import AdminClient, Producer, PushConsumer
from rocketstream.clock import ManualClock
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.settings import ClientSettings
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import Credentials, sign
from rocketstream.remoting.hooks import RpcHook
from rocketstream.wire.command import Command
from tests.cluster.test_client_instance import Consumer


class Seeing(RpcHook):
    """A user's hook: it sees the namespace, and its own field is signed."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []

    def before_request(self, address: str, request: Command) -> None:
        self.seen.append(request.fields.get("ns"))
        request.fields["mine"] = "x"


async def test_every_request_says_the_namespace(name_server, broker):
    hook = Seeing()
    name_server.set_route("t", {"a": {0: broker.address}})
    settings = ClientSettings.make(
        name_server.address, namespace_v2="shop", rpc_hooks=[hook], credentials=Credentials("key", "secret")
    )
    instance = ClientInstance("me", settings, clock=ManualClock())
    await instance.start()
    instance.register_consumer(Consumer("g", "t"))
    await instance.routes.refresh("t")
    assert await instance.heartbeat() == 1
    await instance.stop()
    asked = [*name_server.received, *broker.received]
    assert len(asked) >= 2
    assert {(one.fields["nsd"], one.fields["ns"]) for one in asked} == {("true", "shop")}
    assert {one.fields["topic"] for one in name_server.received} == {"t"}, "names stay as they are"
    assert set(hook.seen) == {"shop"}
    for one in asked:
        assert one.fields["Signature"] == sign("secret", one.fields, one.body), "it is signed like all else"


async def test_without_one_no_request_has_the_fields(name_server, broker):
    name_server.set_route("t", {"a": {0: broker.address}})
    instance = ClientInstance("me", ClientSettings.make(name_server.address), clock=ManualClock())
    await instance.start()
    await instance.routes.refresh("t")
    await instance.stop()
    assert not {"ns", "nsd"} & set(name_server.received[0].fields)


MAKE = [
    pytest.param(lambda **settings: Producer("g", **settings), id="Producer"),
    pytest.param(lambda **settings: PushConsumer("g", **settings), id="PushConsumer"),
    pytest.param(AdminClient, id="AdminClient"),
]


@pytest.mark.parametrize("make", MAKE)
def test_two_namespaces_are_refused(make):
    with pytest.raises(ConfigurationError, match="namespace='a' and namespace_v2='b' cannot be used together"):
        make(name_servers="127.0.0.1:9876", namespace="a", namespace_v2="b")


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("wrong", ["", "a b", "a%b", 5])
def test_a_namespace_that_is_no_name_is_refused(make, wrong):
    with pytest.raises(ConfigurationError, match=r"namespace_v2=.* must be a text of letters, digits"):
        make(name_servers="127.0.0.1:9876", namespace_v2=wrong)
