"""Brokers that deny, over TLS with client certificates: who may, may; who may not is told so in one sentence.

One cluster for each target has all of it: accounts with few permissions, and servers that speak nothing but TLS.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from rocketstream import (
    AdminClient,
    ConsumeResult,
    Credentials,
    LitePullConsumer,
    Message,
    MessageModel,
    OrderlyResult,
    Producer,
    RotatingCredentials,
    StartFrom,
    TlsFiles,
    TransactionProducer,
    TransactionState,
)
from rocketstream.cli.app import make_app
from rocketstream.errors import (
    AccessDeniedError,
    AuthenticationFailedError,
    NameServerError,
    RocketStreamError,
    SendFailedError,
)
from rocketstream.testing.embedded_cluster import EmbeddedCluster
from rocketstream.testing.plugin import EMBEDDED
from tests.bare_client import BareClient, eventually
from tests.contract.clusters import TARGETS, require_target
from tests.contract.consuming import Heard
from tests.contract.secured import (
    ACCOUNTS,
    ADMIN,
    CLERK,
    CLOSED,
    CLOSED_GROUP,
    GROUP,
    ORDERS,
    SUB_ONLY,
    TEMP,
    TEMP_GROUP,
    WRITER,
    Account,
    Pki,
    Secured,
    admin_client,
    secured_cluster,
    without_permissions,
)

UNKNOWN = Credentials("the-unknown", "some-secret-9999")
WRONG = Credentials(CLERK.access_key, "wrong-secret-8888")
SECRETS = (UNKNOWN.secret_key, WRONG.secret_key, *(account.secret_key for account in ACCOUNTS))


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module", params=TARGETS)
def secured(request: pytest.FixtureRequest, pki: Pki) -> Iterator[Secured]:
    require_target(request, request.param)
    with secured_cluster(request.param, pki) as cluster:
        yield Secured(request.param, cluster, pki)


@pytest.fixture
def operator(secured: Secured) -> Iterator[BareClient]:
    with admin_client(secured.cluster, secured.pki) as client:
        yield client


@pytest.fixture(autouse=True)
def kept(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a test does: no secret is in any log, at DEBUG."""
    caplog.set_level(logging.DEBUG)
    yield
    assert not [text for text in caplog.messages if any(secret in text for secret in SECRETS)]


def denied(call: Callable[[], object], kind: type[AccessDeniedError] = AccessDeniedError) -> AccessDeniedError:
    """The refusal that a call raises; one sentence without a secret in it."""
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert type(error) is kind
    assert "\n" not in str(error)
    assert not any(secret in str(error) or secret in repr(error) for secret in SECRETS)
    return error


# --- who may ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("REM-08", "REM-12")
@pytest.mark.feature("security/acl-produce", "security/acl-consume", "security/client-certificates")
@pytest.mark.slow(20, "waits for a retry of ten seconds")
def test_who_may_produces_consumes_retries_and_gives_up(secured, operator):
    dead = f"%DLQ%{GROUP}"
    tried: list[bytes] = []

    def listen(messages: Any, context: Any) -> ConsumeResult:
        tried.extend(message.body for message in messages)
        if messages[0].body == b"again" and messages[0].reconsume_times == 0:
            context.delay_level_when_next_consume = 1
            return ConsumeResult.RECONSUME_LATER
        if messages[0].body == b"hopeless":
            context.delay_level_when_next_consume = -1
            return ConsumeResult.RECONSUME_LATER
        return ConsumeResult.SUCCESS

    heard = Heard(listen)
    with secured.producer(CLERK.credentials) as producer, secured.consumer(CLERK.credentials, heard):
        producer.send(Message(ORDERS, b"one", keys="größe 中文"))
        producer.send_batch([Message(ORDERS, b"two"), Message(ORDERS, b"three")])
        producer.send_async(Message(ORDERS, b"four")).result(20)
        producer.send_oneway(Message(ORDERS, b"five"))
        producer.send(Message(ORDERS, b"again"))
        producer.send(Message(ORDERS, b"hopeless"))
        heard.until_true(lambda: heard.bodies.count(b"again") == 2)
        heard.until_heard(b"one", b"two", b"three", b"four", b"five", b"hopeless")
        eventually(lambda: _length(operator, dead) == 1)
    with secured.admin(ADMIN.credentials) as admin:
        assert admin.consumer_progress(GROUP).lag == 0, "the offsets arrived, though nobody answers those"
        (found,) = admin.messages_by_key(ORDERS, "größe")
        assert admin.message(found.message_id, ORDERS).body == b"one"


def _length(operator: BareClient, topic: str) -> int:
    try:
        return operator.max_offset(topic)
    except RocketStreamError:
        return 0  # not made yet


@pytest.mark.behaviour("REM-08")
@pytest.mark.feature("security/acl-every-request")
def test_every_kind_of_request_is_signed(secured, caplog):
    """Locks, transactions, traces, request and reply, pops: whatever is not signed rightly is refused."""
    heard = Heard(lambda messages, context: OrderlyResult.SUCCESS)
    with secured.consumer(CLERK.credentials, heard, orderly=True, trace=True) as consumer:
        transactions = TransactionProducer(
            "t",
            secured.address,
            execute=lambda message, arg: TransactionState.COMMIT,
            check=lambda message: TransactionState.COMMIT,
            trace=True,
            **secured.settings(CLERK.credentials),
        )
        with transactions as producer:
            producer.send(Message(ORDERS, b"committed"), None)
        heard.until_heard(b"committed")
        assert all(queue.locked for queue in consumer.status().queues)
    if secured.target != "4.9.7":
        popped = Heard()
        with (
            secured.consumer(CLERK.credentials, popped, client_rebalance=False),
            secured.producer(CLERK.credentials) as producer,
        ):
            producer.send(Message(ORDERS, b"popped"))
            popped.until_heard(b"popped")
    with LitePullConsumer(GROUP, secured.address, **secured.settings(CLERK.credentials)) as puller:
        puller.subscribe(ORDERS)
        with secured.producer(CLERK.credentials) as producer:
            producer.send(Message(ORDERS, b"polled"))
        got: list[bytes] = []

        def polled() -> bool:
            got.extend(message.body for message in puller.poll(1.0))
            return b"polled" in got

        eventually(polled)
        puller.commit()
    # All but one that needs more than it has: comparing subscriptions is for who has GET on the group.
    refusals = [text for text in caplog.messages if "refused" in text and "GET_CONSUMER_CONNECTION_LIST" not in text]
    assert refusals == []


@pytest.mark.feature("security/rotation")
def test_a_key_that_is_replaced_is_used_by_clients_that_run(secured):
    rotating = RotatingCredentials(WRONG)
    with secured.producer(rotating) as producer:
        denied(lambda: producer.send(Message(ORDERS, b"x")), AuthenticationFailedError)
        rotating.replace(CLERK.credentials)
        producer.send(Message(ORDERS, b"x"))
        rotating.replace(Credentials(UNKNOWN.access_key, UNKNOWN.secret_key, token="a-token"))
        error = denied(lambda: producer.send(Message(ORDERS, b"x")), AuthenticationFailedError)
        assert error.access_key == UNKNOWN.access_key
        rotating.replace(Credentials(CLERK.access_key, CLERK.secret_key, token="a-token"))
        producer.send(Message(ORDERS, b"x"))  # the token is signed too, whatever the broker makes of it


# --- who may not --------------------------------------------------------------------------------------------------


@pytest.mark.feature("security/acl-denied-producer", "security/secrets")
@pytest.mark.parametrize(
    ("credentials", "topic", "kind", "words"),
    [
        (None, ORDERS, AuthenticationFailedError, "to a client without credentials: .*pass credentials="),
        (UNKNOWN, ORDERS, AuthenticationFailedError, "to access key 'the-unknown': .*no such account"),
        (WRONG, ORDERS, AuthenticationFailedError, "to access key 'the-clerk': .*secret key is not the one"),
        (CLERK.credentials, CLOSED, AccessDeniedError, "to access key 'the-clerk': .*grant it PUB on [Tt]opic:closed-"),
        (
            SUB_ONLY.credentials,
            ORDERS,
            AccessDeniedError,
            "to access key 'sub-only': .*grant it PUB on [Tt]opic:orders",
        ),
    ],
)
def test_a_send_that_is_refused_is_not_tried_again(secured, credentials, topic, kind, words):
    with secured.producer(credentials, retries=5) as producer:
        for send in (producer.send, lambda message: producer.send_async(message).result(20)):
            error = denied(lambda send=send: send(Message(topic, b"x")), kind)
            assert error.address == secured.broker
            assert str(error).startswith(f"{secured.broker} refused SEND_MESSAGE")
            assert re.search(words, str(error)), str(error)


@pytest.mark.feature("security/acl-denied-consumer")
@pytest.mark.parametrize(
    ("credentials", "topic", "group", "kind", "words"),
    [
        (None, ORDERS, GROUP, AuthenticationFailedError, "without credentials"),
        (UNKNOWN, ORDERS, GROUP, AuthenticationFailedError, "access key 'the-unknown'"),
        (WRONG, ORDERS, GROUP, AuthenticationFailedError, "secret key is not the one"),
        (CLERK.credentials, CLOSED, GROUP, AccessDeniedError, "grant it SUB on topic:closed-topic"),
        (CLERK.credentials, ORDERS, CLOSED_GROUP, AccessDeniedError, "grant it SUB on group:closed-group"),
        (WRITER.credentials, ORDERS, GROUP, AccessDeniedError, "grant it SUB on topic:orders"),
    ],
)
def test_a_consumer_that_may_not_consume_does_not_start(secured, credentials, topic, group, kind, words):
    consumer = secured.consumer(credentials, Heard(), topic, group)
    error = denied(consumer.start, kind)
    assert words.lower() in str(error).lower()
    assert consumer.state.value == "CREATE_JUST"
    puller = LitePullConsumer(group, secured.address, **secured.settings(credentials))
    puller.subscribe(topic)
    assert words.lower() in str(denied(puller.start, kind)).lower()


@pytest.mark.feature("security/acl-denied-consumer")
@pytest.mark.parametrize("start_from", [StartFrom.FIRST, StartFrom.LAST, StartFrom.at(0)])
def test_rocketmq_5_wants_get_beside_sub_and_a_consumer_says_so(secured, start_from, tmp_path):
    """A Java consumer would start and never receive. In broadcasting, for there it is asked for a queue's ends."""
    consumer = secured.consumer(
        SUB_ONLY.credentials,
        Heard(),
        start_from=start_from,
        model=MessageModel.BROADCASTING,
        local_offset_dir=tmp_path,
    )
    if secured.target == "4.9.7":
        with consumer:
            assert consumer.assignment
        return
    error = denied(consumer.start)
    assert "grant it GET on Topic:orders there, or use another account; RocketMQ 5 asks for GET beside SUB" in str(
        error
    )


@pytest.mark.feature("security/acl-taken-away", "security/secrets")
def test_what_is_taken_away_shows_in_the_status_and_the_log_and_comes_back(secured, operator, caplog):
    heard = Heard()
    with (
        secured.producer(ADMIN.credentials) as producer,
        secured.consumer(TEMP.credentials, heard, group=TEMP_GROUP) as consumer,
    ):
        producer.send(Message(ORDERS, b"allowed"))
        heard.until_heard(b"allowed")
        with without_permissions(secured.cluster, operator, TEMP):
            for number in range(4):  # ends the pulls that wait at the broker; the next ones are refused
                producer.send(Message(ORDERS, b"%d" % number))

            def is_told() -> bool:
                waits = [queue.waits_for or "" for queue in consumer.status().queues]
                return any("refused PULL_MESSAGE to access key 'temporary'" in why for why in waits)

            eventually(is_told)
            producer.send(Message(ORDERS, b"while away"))
        heard.until_heard(b"while away")
        eventually(lambda: all("refused" not in (queue.waits_for or "") for queue in consumer.status().queues))
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert any("refused PULL_MESSAGE to access key 'temporary'" in text for text in warnings)


@pytest.mark.feature("security/acl-admin")
def test_an_operator_without_permission(secured):
    with secured.admin(CLERK.credentials) as admin:
        error = denied(lambda: admin.create_topic("mine"))
        assert error.access_key == CLERK.access_key
        assert "admin: true" in str(error) or "grant it CREATE on Topic:mine" in str(error)
        denied(lambda: admin.peek(ORDERS))
    for credentials in (None, UNKNOWN, WRONG):
        with secured.admin(credentials) as admin:
            for ask in (
                admin.topics,
                lambda: admin.create_topic("mine"),
                lambda: admin.messages_by_key(ORDERS, "größe"),
                lambda: admin.consumer_progress(GROUP),
                lambda: admin.broker_config(secured.broker),
            ):
                denied(ask, AuthenticationFailedError)
    with secured.admin(ADMIN.credentials) as admin:
        assert admin.create_topic("made", queues=1).topic == "made"


# --- TLS ----------------------------------------------------------------------------------------------------------


def refused(call: Callable[[], object]) -> str:
    """What is said to a client that cannot reach the cluster."""
    with pytest.raises((NameServerError, SendFailedError)) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.behaviour("REM-12")
@pytest.mark.feature("security/tls-refusals")
def test_who_does_not_trust_the_server_or_is_not_trusted_by_it(secured):
    pki = secured.pki

    def sending(tls: Any, **settings: Any) -> Callable[[], object]:
        def send() -> None:
            with secured.producer(CLERK.credentials, tls=tls, **settings) as producer:
                producer.send(Message(ORDERS, b"x"))

        return send

    sending(pki.context(pki.client))()
    assert "does it expect TLS (tls=True)?" in refused(sending(False))
    assert "give the authority that has signed it: tls=TlsFiles(ca_file)" in refused(sending(True))
    other = TlsFiles(pki.other_ca_file, *pki.client)
    assert "the server's certificate is not trusted" in refused(sending(other))
    for who in (None, pki.stranger):
        said = refused(sending(pki.files(who), retries=0))
        assert "client certificate" in said, said


@pytest.mark.feature("security/tls")
def test_tls_without_client_certificates(secured):
    """The name servers of real clusters here want none; the embedded one is asked for one of its own."""
    if secured.target != EMBEDDED:
        with AdminClient(secured.address, tls=secured.pki.context()) as admin:
            assert [broker.broker_name for broker in admin.cluster().brokers] == ["broker-a"]
        return
    with (
        EmbeddedCluster(tls=secured.pki.server_context()) as cluster,
        Producer("p", cluster.name_server_address, tls=secured.pki.context()) as producer,
    ):
        producer.send(Message("anything", b"x" * 300_000))


@pytest.mark.feature("security/tls-refusals")
def test_a_server_that_is_not_who_it_is_taken_for(pki):
    with EmbeddedCluster(tls=pki.server_context(of=pki.elsewhere)) as cluster:
        address = cluster.name_server_address
        said = refused(Producer("p", address, tls=pki.context()).start)
        assert "it is not for '127.0.0.1'" in said
        assert "check_host_name=False" in said
        with Producer("p", address, tls=TlsFiles(pki.ca_file, check_host_name=False)) as producer:
            producer.send(Message("anything", b"x"))


@pytest.mark.feature("security/tls-refusals")
def test_tls_where_nobody_speaks_it(pki):
    with EmbeddedCluster() as cluster:
        said = refused(Producer("p", cluster.name_server_address, tls=pki.context()).start)
    assert "it seems not to speak TLS at this port (then tls=False)" in said


# --- other faces --------------------------------------------------------------------------------------------------


@pytest.mark.feature("security/spark")
def test_sparks_source_and_sink(secured):
    """Without a Spark, which tests/spark/test_security.py has: what its tasks do, in this process."""
    pyarrow = pytest.importorskip("pyarrow")
    from rocketstream.spark.row_ids import batch_task
    from rocketstream.spark.sink import send_rows
    from rocketstream.spark.source import RocketMQDataSource
    from rocketstream.spark.write_options import WriteOptions
    from rocketstream.spark.write_producers import close_producers

    rows = pyarrow.RecordBatch.from_pydict({"body": [b"by Spark %d" % number for number in range(3)]})
    sink = WriteOptions.parse(secured.spark_options(CLERK, topic=ORDERS))
    try:
        assert send_rows(sink, batch_task("test", 0), [rows]).rows == 3
        # Large enough to be sent by itself: 4.9 asks for no permission of who sends a batch.
        rows = pyarrow.RecordBatch.from_pydict({"body": [b"x" * 5000]})
        closed = WriteOptions.parse(secured.spark_options(CLERK, topic=CLOSED, sendTimeout="600"))
        with pytest.raises(RocketStreamError, match=r"refused SEND_\w+ to access key 'the-clerk'"):
            send_rows(closed, batch_task("test", 0), [rows])
    finally:
        close_producers()

    def read(account: Account, topic: str) -> list[bytes]:
        source = RocketMQDataSource(secured.spark_options(account, topic=topic, group=GROUP, commitOffsets="false"))
        reader = source.reader(source.schema())
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [body for batch in batches for body in batch.column("body").to_pylist()]

    assert {b"by Spark 0", b"by Spark 1", b"by Spark 2"} <= set(read(CLERK, ORDERS))
    with secured.producer(ADMIN.credentials) as producer:
        producer.send(Message(CLOSED, b"not for the clerk"))
    for account, topic in ((CLERK, CLOSED), (replace(CLERK, secret_key="wrong-secret-8888"), ORDERS)):
        with pytest.raises(Exception, match="to access key 'the-clerk'") as caught:  # Spark's, with our sentence
            read(account, topic)
        assert not any(secret in str(caught.value) for secret in SECRETS)


@pytest.mark.feature("security/command-line")
def test_the_command_line(secured, monkeypatch, tmp_path):
    monkeypatch.setenv("NAMESRV_ADDR", secured.address)
    monkeypatch.setenv("ROCKETMQ_TLS_CA_FILE", secured.pki.ca_file)
    monkeypatch.setenv("ROCKETMQ_TLS_CERT_FILE", secured.pki.client[0])
    monkeypatch.setenv("ROCKETMQ_TLS_KEY_FILE", secured.pki.client[1])
    key_file = tmp_path / "secret"

    def run(account: Account, *arguments: str) -> Any:
        monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", account.access_key)
        key_file.write_text(f"{account.secret_key}\n")
        monkeypatch.setenv("ROCKETMQ_SECRET_KEY_FILE", str(key_file))
        ended = CliRunner().invoke(make_app(), arguments)
        assert not any(secret in ended.output for secret in SECRETS)
        return ended

    assert run(ADMIN, "topic", "route", ORDERS).exit_code == 0
    assert run(CLERK, "produce", ORDERS, "--body", "by hand").exit_code == 0
    refusal = run(CLERK, "produce", CLOSED, "--body", "by hand")
    assert (refusal.exit_code, refusal.stdout) == (1, "")
    assert refusal.stderr.startswith(f"rocketstream: {secured.broker} refused SEND_MESSAGE")
    monkeypatch.delenv("ROCKETMQ_TLS_CERT_FILE")
    monkeypatch.delenv("ROCKETMQ_TLS_KEY_FILE")
    assert "client certificate" in run(CLERK, "produce", ORDERS, "--body", "x").stderr
