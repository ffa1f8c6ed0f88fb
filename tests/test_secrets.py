"""Secrets stay secret: whatever clients log, raise, show or send to others, at DEBUG and with everything going wrong.

The rule of this file: everything that is emitted is gathered and searched for the secret key and the token, as they are
and as `repr` would write them.
"""

from __future__ import annotations

import contextlib
import io
import logging
import pickle
import socketserver
import string
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketstream import AdminClient, ConsumeResult, Credentials, Message, Producer, PushConsumer, RotatingCredentials
from rocketstream.broker import EmbeddedBroker, User
from rocketstream.errors import RocketStreamError
from rocketstream.remoting.acl import AclSigner
from rocketstream.wire.codes import ResponseCode
from tests.bare_client import eventually

ADMIN = User("the-admin", "the-admins-own-secret", admin=True)
TOPIC, GROUP = "orders", "orders-group"

# What a log's format, a shell, JSON or `repr` would treat in a way of its own is among it.
secrets = st.text(string.ascii_letters + string.digits + "%{}'\"\\$ =:;äß中", min_size=12, max_size=24).filter(
    lambda text: text.strip() == text and len(set(text)) > 5
)


class Emitted(logging.Handler):
    """Everything that was let out: logs at DEBUG, and what a test adds."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))
        self.texts.append(repr(record.__dict__))  # `extra` too

    def add(self, *shown: object) -> None:
        """Something that a person may see."""
        for one in shown:
            self.texts += [str(one), repr(one)]

    def raised_by(self, call: Callable[[], object]) -> None:
        """What a call raises, if it does, with its causes."""
        try:
            self.add(call())
        except Exception as error:
            self.add(error)
            self.texts += traceback.format_exception(error)

    def holds(self, secret: str) -> list[str]:
        """The texts that tell a secret."""
        forms = {secret, repr(secret)[1:-1], repr(repr(secret))[2:-2]}
        return [text for text in self.texts if any(form in text for form in forms)]


@contextlib.contextmanager
def emitting() -> Iterator[Emitted]:
    root, handler = logging.getLogger(), Emitted()
    ours = logging.getLogger("rocketstream")
    levels = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    ours.setLevel(logging.DEBUG)
    output, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            yield handler
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        ours.setLevel(levels[1])
        handler.texts += [output.getvalue(), errors.getvalue()]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(users=[ADMIN]) as broker:
        yield broker


def use_everything(emitted: Emitted, address: str, credentials: Credentials | RotatingCredentials) -> None:
    """Produce, consume and operate, whatever comes of it; and look at all that can be looked at."""
    heard: list[bytes] = []

    def listen(messages: Any, context: Any) -> ConsumeResult:
        heard.extend(message.body for message in messages)
        emitted.add(context, *messages)
        return ConsumeResult.SUCCESS

    producer = Producer("p", address, credentials=credentials, send_timeout=0.5, api_timeout=0.5, trace=True)
    consumer = PushConsumer(GROUP, address, credentials=credentials, listener=listen, api_timeout=0.5, trace=True)
    consumer.subscribe(TOPIC)
    admin = AdminClient(address, credentials=credentials, timeout=0.5)
    emitted.add(credentials, producer, consumer, admin, AclSigner(credentials))
    for call in (
        producer.start,
        lambda: producer.send(Message(TOPIC, b"x")),
        lambda: producer.send_async(Message(TOPIC, b"x")).result(5),
        consumer.start,
        admin.start,
        lambda: admin.create_topic(TOPIC, queues=1),
        admin.topics,
        admin.cluster,
        lambda: admin.consumer_progress(GROUP),
        lambda: admin.running_info(GROUP, consumer.client_id, stack=True),
        lambda: admin.broker_config(address),
        consumer.status,
        lambda: dict(consumer.metrics),
        lambda: (consumer.core, consumer.core.instance, consumer.core.instance.remoting, consumer.core.settings),
        lambda: list(consumer.core.instance.remoting.connections.values()),
    ):
        emitted.raised_by(call)
    for end in (producer.shutdown, lambda: consumer.shutdown(timeout=1.0), admin.shutdown):
        emitted.raised_by(end)


def check(emitted: Emitted, *kept: str) -> None:
    assert emitted.texts
    for secret in kept:
        assert emitted.holds(secret) == []


@pytest.mark.feature("security/secrets")
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secret=secrets, token=secrets)
def test_with_a_broker_that_does_what_it_should(broker, secret, token):
    broker.set_users(ADMIN, User("anna", secret, topics={"*": "ALL"}, groups={"*": "ALL"}, cluster="ALL"))
    with emitting() as emitted:
        use_everything(emitted, broker.address, Credentials("anna", secret, token=token))
    assert any("has started with client id" in text for text in emitted.texts)
    check(emitted, secret, token)


@pytest.mark.feature("security/secrets")
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secret=secrets, token=secrets)
def test_with_a_broker_that_denies(broker, secret, token):
    broker.set_users(ADMIN, User("anna", "another secret of hers"))
    with emitting() as emitted:
        use_everything(emitted, broker.address, RotatingCredentials(Credentials("anna", secret, token=token)))
    assert any("check signature failed" in text for text in emitted.texts)
    check(emitted, secret, token, "another secret of hers")


@pytest.mark.feature("security/secrets")
@pytest.mark.parametrize("fault", ["cut", "drop", "answer"])
def test_with_a_broker_that_fails(broker, fault):
    secret, token = "a secret that % {is} 'kept'", "a token\\that is kept"
    broker.set_users(ADMIN, User("anna", secret, topics={"*": "ALL"}, groups={"*": "ALL"}))
    with emitting() as emitted:
        if fault == "answer":
            order = broker.faults.answer("*", ResponseCode.SYSTEM_ERROR, "it is broken")
        else:
            order = getattr(broker.faults, fault)("*")
        with order:
            use_everything(emitted, broker.address, Credentials("anna", secret, token=token))
    check(emitted, secret, token)


@contextlib.contextmanager
def echo() -> Iterator[str]:
    class Echo(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                while data := self.request.recv(4096):
                    self.request.sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.02,))
        serving.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


@pytest.mark.feature("security/secrets")
def test_with_a_server_that_speaks_something_else():
    """It sends back what it was sent: whatever is made of that must not be shown."""
    secret, token = "a secret that is kept", "a token that is kept"
    with echo() as address, emitting() as emitted:
        use_everything(emitted, address, Credentials("anna", secret, token=token))
    check(emitted, secret, token)


@pytest.mark.feature("security/secrets")
@pytest.mark.parametrize(
    "make",
    [
        lambda secret: Credentials("", secret),
        lambda secret: Credentials(("anna", secret), secret),
        lambda secret: Credentials("anna", secret.encode()),
        lambda secret: Credentials("anna", "x", token=[secret]),
        lambda secret: Producer("p", "127.0.0.1:9876", credentials=("anna", secret)),
        lambda secret: PushConsumer("g", "127.0.0.1:9876", credentials={"secret_key": secret}),
        lambda secret: AdminClient("127.0.0.1:9876", credentials=secret),
        lambda secret: RotatingCredentials(secret),
        lambda secret: RotatingCredentials(Credentials("a", "b")).replace(("anna", secret)),
        lambda secret: User("anna", secret, topics={"t": "WRITE"}),
        lambda secret: EmbeddedBroker(users=[User("anna", secret)]),
    ],
)
def test_what_is_refused_before_anything_is_opened(make):
    secret = "a secret that is kept"
    emitted = Emitted()
    with pytest.raises(RocketStreamError) as caught:
        make(secret)
    emitted.add(caught.value)
    emitted.texts += traceback.format_exception_only(caught.value)
    check(emitted, secret)


@pytest.mark.feature("security/secrets")
def test_reprs_of_what_holds_a_secret():
    secret, token = "a secret that is kept", "a token that is kept"
    credentials = Credentials("anna", secret, token=token)
    emitted = Emitted()
    emitted.add(
        credentials, RotatingCredentials(credentials), AclSigner(credentials), [credentials], {"a": credentials}
    )
    emitted.add(User("anna", secret), Producer("p", "127.0.0.1:9876", credentials=credentials)._core.settings)
    emitted.add(pickle.loads(pickle.dumps(credentials)))
    check(emitted, secret, token)
    assert any("anna" in text for text in emitted.texts)


def test_the_search_finds_what_is_there():
    """Else everything above would pass, whatever is shown."""
    secret = 'it\'s a "secret" \\ of mine'
    for shown in (secret, repr(secret), repr({"key": secret}), f"before {secret} after", str(ValueError(secret))):
        emitted = Emitted()
        emitted.add(shown)
        assert emitted.holds(secret)
    with emitting() as emitted:
        logging.getLogger("rocketstream.anything").debug("with %s", secret)
        print(secret)
    eventually(lambda: len(emitted.holds(secret)) >= 2)
