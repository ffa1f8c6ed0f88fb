"""RocketMQ's Java client with an access key and a client certificate beside ours, on the same brokers that deny."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rocketstream import Message, Producer
from rocketstream.testing.plugin import require_real
from tests.contract.clusters import TARGETS, AnyCluster, require_target
from tests.contract.consuming import Heard, new_consumer
from tests.contract.secured import CLERK, CLOSED, GROUP, ORDERS, Account, Pki, secured_cluster
from tests.interop.java_peer import JavaPeer, JavaPeerError


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module", params=TARGETS)
def secured(request: pytest.FixtureRequest, pki: Pki) -> Iterator[AnyCluster]:
    require_target(request, request.param)
    with secured_cluster(request.param, pki) as cluster:
        yield cluster


def java(cluster: AnyCluster, pki: Pki, account: Account) -> JavaPeer:
    """Java's client of the cluster's version (of 5.5.0 for embedded brokers), with a certificate and a key."""
    require_real(cluster.version)
    properties = {"tls.enable": "true", **pki.java_client(pki.client)}
    keys = {"peer.accessKey": account.access_key, "peer.secretKey": account.secret_key}
    return JavaPeer(cluster.version, cluster.name_server_address, jvm_properties={**properties, **keys})


@pytest.mark.feature("security/acl-produce", "security/acl-consume", "security/client-certificates")
@pytest.mark.slow(25, "starts servers with TLS and access control")
def test_java_and_python_talk_to_each_other_over_tls_with_access_keys(secured, pki):
    ours: dict[str, Any] = {"credentials": CLERK.credentials, "tls": pki.files(pki.client)}
    address = secured.name_server_address
    heard = Heard()
    with java(secured, pki, CLERK) as peer:
        with Producer("p", address, send_timeout=20.0, **ours) as producer:
            producer.send(Message(ORDERS, b"from Python", keys="größe 中文", properties={"a": "1"}))
        peer.produce(ORDERS, [b"from Java", b"from Java too"], keys="größe 中文")
        with new_consumer(GROUP, address, heard, ORDERS, **ours):
            heard.until_heard(b"from Python", b"from Java", b"from Java too")
        # Another member of the same group, after ours has left: it goes on where ours was.
        with Producer("p", address, send_timeout=20.0, **ours) as producer:
            producer.send(Message(ORDERS, b"for Java", keys="größe 中文", properties={"a": "1"}))
        (message,) = peer.consume(GROUP, ORDERS, count=1, timeout=60.0)
        assert (message.body, message.properties["a"], message.keys) == (b"for Java", "1", "größe 中文")
        with pytest.raises(JavaPeerError, match=r"closed-topic"):  # what we are refused, Java is refused too
            peer.produce(CLOSED, [b"x"])
