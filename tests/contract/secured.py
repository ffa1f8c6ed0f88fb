"""Clusters that deny, on every target: TLS with client certificates, and the same accounts.

4.9.7 has them in plain_acl.yml, 5.5.0 in its auth 2.0, the embedded broker as users.

The rule of this file: who may do what is said once, in `ACCOUNTS`; each kind of cluster is told in its own words.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization

from rocketstream import AdminClient, Credentials, Producer, PushConsumer, TlsFiles
from rocketstream.broker import User
from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.testing import EmbeddedCluster, RocketMQCluster
from rocketstream.testing.plugin import EMBEDDED
from rocketstream.wire.codes import RequestCode
from tests.bare_client import BareClient
from tests.contract.clusters import AnyCluster
from tests.contract.consuming import new_consumer


@dataclass(frozen=True, slots=True)
class Account:
    """Somebody with an access key, and what that one may do; nothing else is allowed."""

    access_key: str
    secret_key: str
    admin: bool = False
    topics: Mapping[str, str] = field(default_factory=dict)
    """Topic -> "PUB", "SUB" or "PUB|SUB"."""
    groups: Mapping[str, str] = field(default_factory=dict)
    more: tuple[str, ...] = ("GET",)
    """What RocketMQ 5 asks for beside these with topics; 4.9 knows no such thing."""

    @property
    def credentials(self) -> Credentials:
        """What a client is given."""
        return Credentials(self.access_key, self.secret_key)


ORDERS, CLOSED = "orders", "closed-topic"
GROUP, CLOSED_GROUP = "orders-group", "closed-group"
ADMIN = Account("the-admin", "admin-secret-0000", admin=True)
# RocketMQ 5 asks for a permission to write traces too, 4.9 does not.
CLERK = Account(
    "the-clerk",
    "clerk-secret-1111",
    topics={ORDERS: "PUB|SUB", "RMQ_SYS_TRACE_TOPIC": "PUB"},
    groups={GROUP: "SUB"},
)
WRITER = Account("the-writer", "writer-secret-222", topics={ORDERS: "PUB"}, groups={GROUP: "SUB"})
SUB_ONLY = Account("sub-only", "reader-secret-333", topics={ORDERS: "SUB"}, groups={GROUP: "SUB"}, more=())
TEMP_GROUP = "temporary-group"
TEMP = Account("temporary", "temporary-secret-4", topics={ORDERS: "SUB"}, groups={TEMP_GROUP: "SUB"})
ACCOUNTS = (ADMIN, CLERK, WRITER, SUB_ONLY, TEMP)


def plain_acl(accounts: tuple[Account, ...] = ACCOUNTS) -> str:
    """The accounts as 4.9's `plain_acl.yml`."""
    lines = ["accounts:"]
    for one in accounts:
        lines += [
            f"- accessKey: {one.access_key}",
            f"  secretKey: {one.secret_key}",
            f"  admin: {str(one.admin).lower()}",
        ]
        if one.admin:
            lines += ["  defaultTopicPerm: PUB|SUB", "  defaultGroupPerm: PUB|SUB"]
            continue
        lines += ["  defaultTopicPerm: DENY", "  defaultGroupPerm: DENY"]
        for what, permitted in (("topicPerms", one.topics), ("groupPerms", one.groups)):
            lines += [f"  {what}:", *(f"  - {name}={may}" for name, may in permitted.items())]
    return "\n".join(lines) + "\n"


def auth_config() -> dict[str, Any]:
    """What makes a broker of 5.x ask who comes, and deny."""
    auth = "org.apache.rocketmq.auth"
    return {
        "authenticationEnabled": True,
        "authenticationProvider": f"{auth}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{auth}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationEnabled": True,
        "authorizationProvider": f"{auth}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{auth}.authorization.provider.LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}
        ),
    }


def register(client: BareClient, cluster: AnyCluster, account: Account) -> None:
    """Have 5.5.0 know an account, as `mqadmin createUser` and `createAcl` do."""
    address = cluster.brokers[0].address
    user = {"username": account.access_key, "password": account.secret_key, "userType": "Normal"}
    who = _Fields({"username": account.access_key})
    client.ask(address, RequestCode.AUTH_CREATE_USER, who, json.dumps(user).encode())
    give(client, cluster, account)


def give(client: BareClient, cluster: AnyCluster, account: Account) -> None:
    """Have 5.5.0 allow an account what it may."""
    entries = [
        {"resource": f"{kind}:{name}", "actions": [*may.split("|"), *more], "decision": "Allow"}
        for kind, permitted, more in (("Topic", account.topics, account.more), ("Group", account.groups, ()))
        for name, may in permitted.items()
    ]
    subject = f"User:{account.access_key}"
    acl = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
    address = cluster.brokers[0].address
    client.ask(address, RequestCode.AUTH_CREATE_ACL, _Fields({"subject": subject}), json.dumps(acl).encode())


def write_account(client: BareClient, cluster: AnyCluster, account: Account) -> None:
    """Have 4.9.7 know an account, as `mqadmin updateAclConfig` does: at once, while its file is read every 5 s."""
    fields = {
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "topicPerms": ",".join(f"{name}={may}" for name, may in account.topics.items()),
        "groupPerms": ",".join(f"{name}={may}" for name, may in account.groups.items()),
    }
    client.ask(cluster.brokers[0].address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, _Fields(fields))


def embedded_users(accounts: tuple[Account, ...] = ACCOUNTS) -> tuple[User, ...]:
    """The accounts as an embedded broker knows them."""
    return tuple(
        User(
            one.access_key,
            one.secret_key,
            admin=one.admin,
            topics={name: "|".join((may, *one.more)) for name, may in one.topics.items()},
            groups=one.groups,
        )
        for one in accounts
    )


@contextlib.contextmanager
def without_permissions(cluster: AnyCluster, client: BareClient, account: Account) -> Iterator[None]:
    """Take from an account what it may, for a while."""
    poor = tuple(replace(one, topics={}, groups={}) if one is account else one for one in ACCOUNTS)
    if isinstance(cluster, EmbeddedCluster):
        broker = cluster.brokers[0].broker
        broker.set_users(*embedded_users(poor))
        yield
        broker.set_users(*embedded_users())
    elif cluster.version.startswith("4"):
        write_account(client, cluster, replace(account, topics=dict.fromkeys(account.topics, "DENY")))
        yield
        write_account(client, cluster, account)
    else:
        subject = _Fields({"subject": f"User:{account.access_key}"})
        client.ask(cluster.brokers[0].address, RequestCode.AUTH_DELETE_ACL, subject)
        yield
        give(client, cluster, account)


@dataclass(frozen=True, slots=True)
class _Fields:
    fields: dict[str, str]

    def to_fields(self) -> dict[str, str]:
        return dict(self.fields)


class Pki:
    """An authority, its certificate for servers, and client certificates of this and of another authority, as files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        authority, stranger = trustme.CA(), trustme.CA()
        self.ca_file = self._write("ca.pem", authority.cert_pem.bytes())
        self.other_ca_file = self._write("other-ca.pem", stranger.cert_pem.bytes())
        self.server = self._issued("server", authority, "127.0.0.1", "localhost")
        self.elsewhere = self._issued("elsewhere", authority, "broker.example")
        self.client = self._issued("client", authority, "client@example.com")
        self.stranger = self._issued("stranger", stranger, "client@example.com")

    def _write(self, name: str, content: bytes) -> str:
        path = self._directory / name
        path.write_bytes(content)
        return str(path)

    def _issued(self, name: str, authority: trustme.CA, *hosts: str) -> tuple[str, str]:
        """Certificate and key files."""
        certificate = authority.issue_cert(*hosts, key_type=trustme.KeyType.RSA)
        key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
        # Netty reads keys in PKCS #8 only.
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return (
            self._write(f"{name}.pem", b"".join(pem.bytes() for pem in certificate.cert_chain_pems)),
            self._write(f"{name}.key", key.private_bytes(*form)),
        )

    def files(self, who: tuple[str, str] | None = None) -> TlsFiles:
        """A client's that trusts the authority; `who` is its own certificate."""
        return TlsFiles(self.ca_file, *(who or ()))

    def context(self, who: tuple[str, str] | None = None) -> ssl.SSLContext:
        """The same as a context."""
        return self.files(who).context()

    def server_context(self, *, of: tuple[str, str] | None = None, wants_clients: bool = False) -> ssl.SSLContext:
        """An embedded server's; `wants_clients`: only who has a certificate of the authority is let in."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*(of or self.server))
        if wants_clients:
            context.load_verify_locations(self.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def jvm_properties(self) -> dict[str, str]:
        """Of a node that speaks nothing but TLS, and trusts the authority in what it asks of others."""
        return {
            "tls.server.mode": "enforcing",
            "tls.test.mode.enable": "false",
            "tls.server.certPath": self.server[0],
            "tls.server.keyPath": self.server[1],
            "tls.enable": "true",
            **self.java_client(self.client),
        }

    def java_client(self, who: tuple[str, str] | None) -> dict[str, str]:
        """A Java client's (also of a broker that speaks to others), with its certificate."""
        trust = {"tls.test.mode.enable": "false", "tls.client.authServer": "true"}
        trust |= {"tls.client.trustCertPath": self.ca_file}
        return trust if who is None else trust | {"tls.client.certPath": who[0], "tls.client.keyPath": who[1]}

    def wanting_clients(self) -> dict[str, str]:
        """For a node that lets nobody in without a certificate of the authority."""
        return {
            "tls.server.need.client.auth": "require",
            "tls.server.authClient": "true",
            "tls.server.trustCertPath": self.ca_file,
        }


@contextlib.contextmanager
def secured_cluster(target: str, pki: Pki) -> Iterator[AnyCluster]:
    """A cluster with the accounts that speaks nothing but TLS; `ADMIN` has made the topics `ORDERS` and `CLOSED`.

    Its brokers want client certificates. The name servers of real ones do not, so that both are seen.
    """
    with _new_cluster(target, pki) as cluster, admin_client(cluster, pki) as client:
        if target.startswith("5"):
            for account in ACCOUNTS[1:]:
                register(client, cluster, account)
        for topic in (ORDERS, CLOSED):
            client.create_topic(cluster.brokers[0].address, topic, queues=2)
        yield cluster


@contextlib.contextmanager
def admin_client(cluster: AnyCluster, pki: Pki) -> Iterator[BareClient]:
    """A bare client that may do everything."""
    remoting = RemotingSettings(tls=pki.context(pki.client))
    client = BareClient(
        cluster.name_server_address, IoThread.shared(), credentials=ADMIN.credentials, remoting=remoting
    )
    try:
        yield client
    finally:
        client.close()


def _new_cluster(target: str, pki: Pki) -> AnyCluster:
    if target == EMBEDDED:
        return EmbeddedCluster(
            users=embedded_users(),
            tls=pki.server_context(wants_clients=True),
            name_server_tls=pki.context(pki.client),
        )
    options: dict[str, Any] = {
        "jvm_properties": pki.jvm_properties(),
        "broker_jvm_properties": pki.wanting_clients(),
        "tls": pki.context(),
    }
    if target.startswith("4"):
        config = {"aclEnable": True}
        return RocketMQCluster(target, broker_config=config, conf_files={"plain_acl.yml": plain_acl()}, **options)
    return RocketMQCluster(target, broker_config=auth_config(), **options)


@dataclass(frozen=True, slots=True)
class Secured:
    """The cluster of a target, and clients of it."""

    target: str
    cluster: AnyCluster
    pki: Pki

    @property
    def address(self) -> str:
        return self.cluster.name_server_address

    @property
    def broker(self) -> str:
        return self.cluster.brokers[0].address

    def settings(self, credentials: Credentials | None) -> dict[str, Any]:
        """What a client is given that has a certificate."""
        return {"credentials": credentials, "tls": self.pki.files(self.pki.client)}

    def producer(self, credentials: Credentials | None, **settings: Any) -> Producer:
        return Producer("p", self.address, send_timeout=20.0, **{**self.settings(credentials), **settings})

    def consumer(
        self, credentials: Credentials | None, listener: Any, topic: str = ORDERS, group: str = GROUP, **settings: Any
    ) -> PushConsumer:
        return new_consumer(group, self.address, listener, topic, **{**self.settings(credentials), **settings})

    def admin(self, credentials: Credentials | None) -> AdminClient:
        return AdminClient(self.address, timeout=10.0, **self.settings(credentials))

    def spark_options(self, account: Account, **others: str) -> dict[str, str]:
        """The same for Spark's source and sink."""
        return {
            "nameServers": self.address,
            "accessKey": account.access_key,
            "secretKey": account.secret_key,
            "tlsCaFile": self.pki.ca_file,
            "tlsCertFile": self.pki.client[0],
            "tlsKeyFile": self.pki.client[1],
            **others,
        }
