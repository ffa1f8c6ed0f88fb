"""Wrong arguments: each is refused with a text that names it, before anything is sent."""

from __future__ import annotations

import dataclasses
import itertools
import re
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstream.cluster.settings import CLIENT_SETTINGS
from rocketstream.errors import ClientStateError, ConfigurationError, MissingCodecError, RocketStreamError
from rocketstream.message import Message, MessageQueue
from rocketstream.producer import Producer, SendHook
from rocketstream.producer.settings import ProducerSettings
from rocketstream.remoting.acl import Credentials
from tests.producer.peers import Running, running_producers

NOBODY = "127.0.0.1:1"
QUEUE = MessageQueue("t", "a", 0)
LONG = "x" * 256


def case_id(value: object) -> str | None:
    return None if isinstance(value, str) else repr(value)[:60]


# --- settings -------------------------------------------------------------------------------------------------------

NO_ADDRESS = "is not an address: expected host:port, for example 127.0.0.1:9876"
LEGAL = "has illegal characters: only letters, digits and % | _ - are allowed"

SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"group": None}, "group=None: a group needs a name"),
    ({"group": ""}, "group='': a group needs a name"),
    ({"group": "  "}, "group='  ': a group needs a name"),
    ({"group": b"g"}, "group=b'g': a group needs a name"),
    ({"group": "a b"}, f"group='a b' {LEGAL}"),
    ({"group": "größe"}, f"group='größe' {LEGAL}"),
    ({"group": "g\n"}, rf"group='g\n' {LEGAL}"),
    ({"group": LONG}, f"group={LONG!r} has 256 characters: at most 255 are allowed"),
    ({"group": "DEFAULT_PRODUCER"}, "group='DEFAULT_PRODUCER' is reserved: choose a name of your own"),
    ({"name_servers": ""}, "name_servers='' names no address; expected for example 127.0.0.1:9876"),
    ({"name_servers": " ; "}, "name_servers=' ; ' names no address; expected for example 127.0.0.1:9876"),
    ({"name_servers": []}, "name_servers=[] names no address; expected for example 127.0.0.1:9876"),
    ({"name_servers": "host"}, f"name_servers='host': 'host' {NO_ADDRESS}"),
    ({"name_servers": "a:1;b:x"}, f"name_servers='a:1;b:x': 'b:x' {NO_ADDRESS}"),
    ({"name_servers": "a:65536"}, f"name_servers='a:65536': 'a:65536' {NO_ADDRESS}"),
    ({"name_servers": ["a:1", 5]}, "name_servers=['a:1', 5]: 5 is not an address like 127.0.0.1:9876"),
    ({"name_servers": 5}, "name_servers=5 must be a text like 127.0.0.1:9876 or a list of such"),
    ({"name_servers": b"a:1"}, "name_servers=b'a:1' must be a text like 127.0.0.1:9876 or a list of such"),
    ({"tls": "yes"}, "tls='yes' must be True, False, TlsFiles(ca_file, ...) or an ssl.SSLContext"),
    (
        {"tls": ssl.SSLContext},
        "tls=<class 'ssl.SSLContext'> must be True, False, TlsFiles(ca_file, ...) or an ssl.SSLContext",
    ),
    ({"credentials": ("a", "b")}, "credentials must be Credentials(access_key, secret_key), not tuple"),
    ({"rpc_hooks": 5}, "rpc_hooks=5 must be a list of RpcHook"),
    ({"rpc_hooks": ["hook"]}, "rpc_hooks: 'hook' is not an RpcHook"),
    ({"send_hooks": 5}, "send_hooks=5 must be a list of SendHook"),
    ({"send_hooks": "hook"}, "send_hooks='hook' must be a list of SendHook"),
    ({"send_hooks": [print]}, "send_hooks: <built-in function print> is not a SendHook"),
    ({"send_hooks": [SendHook]}, f"send_hooks: {SendHook!r} is not a SendHook"),
    ({"instance_name": ""}, "instance_name='' must be a text that is not empty, or None"),
    ({"instance_name": 5}, "instance_name=5 must be a text that is not empty, or None"),
    ({"unit_name": 5}, "unit_name=5 must be a text that is not empty, or None"),
    ({"address_server": b"x"}, "address_server=b'x' must be a text that is not empty, or None"),
    ({"namespace": 5}, "namespace=5 must be a text of letters, digits and | _ -, or None"),
    ({"namespace": "a b"}, "namespace='a b' must be a text of letters, digits and | _ -, or None"),
    ({"namespace": "a%b"}, "namespace='a%b' must be a text of letters, digits and | _ -, or None"),
    ({"namespace": ""}, "namespace='' must be a text of letters, digits and | _ -, or None"),
    (
        {"namespace": "n" * 250, "group": "group"},
        "group='group' has 256 characters with its namespace: at most 255 are allowed",
    ),
    ({"send_timeout": 0}, "send_timeout=0 must be a number from 0.001 to 86400"),
    ({"send_timeout": -1.5}, "send_timeout=-1.5 must be a number from 0.001 to 86400"),
    ({"send_timeout": "3"}, "send_timeout='3' must be a number from 0.001 to 86400"),
    ({"send_timeout": None}, "send_timeout=None must be a number from 0.001 to 86400"),
    ({"send_timeout": float("nan")}, "send_timeout=nan must be a number from 0.001 to 86400"),
    ({"retries": -1}, "retries=-1 must be a whole number from 0 to 100"),
    ({"retries": 1.5}, "retries=1.5 must be a whole number from 0 to 100"),
    ({"retries": True}, "retries=True must be a whole number from 0 to 100"),
    ({"retries_async": 101}, "retries_async=101 must be a whole number from 0 to 100"),
    ({"max_message_size": 0}, "max_message_size=0 must be a whole number from 1 to 1073741824"),
    ({"compress_over": -1}, "compress_over=-1 must be a whole number from 0 to 1073741824"),
    ({"compress_over": None}, "compress_over=None must be a whole number from 0 to 1073741824"),
    ({"compression": "gzip"}, "compression='gzip' must be one of zlib, lz4, zstd"),
    ({"compression": None}, "compression=None must be one of zlib, lz4, zstd"),
    ({"compression": ["zlib"]}, "compression=['zlib'] must be one of zlib, lz4, zstd"),
    ({"compression_level": 10}, "compression_level=10 must be a whole number from 0 to 9"),
    ({"default_topic_queue_nums": 4.0}, "default_topic_queue_nums=4.0 must be a whole number from 1 to 65535"),
    ({"default_topic_queue_nums": 0}, "default_topic_queue_nums=0 must be a whole number from 1 to 65535"),
    ({"max_async_messages": 0}, "max_async_messages=0 must be a whole number from 1 to 10000000"),
    ({"max_async_bytes": 0}, "max_async_bytes=0 must be a whole number from 1 to 1099511627776"),
    ({"max_delay_level": -1}, "max_delay_level=-1 must be a whole number from 0 to 1000"),
    ({"batch_max_bytes": 0}, "batch_max_bytes=0 must be a whole number from 1 to 1073741824"),
    ({"batch_max_delay": 61}, "batch_max_delay=61 must be a number from 0 to 60"),
    ({"retry_another_broker": "no"}, "retry_another_broker='no' must be True or False"),
    ({"latency_fault_tolerance": 1}, "latency_fault_tolerance=1 must be True or False"),
    ({"auto_batch": None}, "auto_batch=None must be True or False"),
    ({"unit_mode": "x"}, "unit_mode='x' must be True or False"),
    ({"trace": 5}, "trace=5 must be True, False or the name of a topic"),
    ({"trace": "a b"}, "trace='a b' must be True, False or the name of a topic"),
    ({"heartbeat_interval": "5"}, "heartbeat_interval='5' must be a number of seconds"),
    ({"heartbeat_interval": float("inf")}, "heartbeat_interval=inf must be a number of seconds"),
    ({"poll_name_server_interval": 0}, "poll_name_server_interval=0 must be greater than 0 seconds"),
    ({"api_timeout": -1}, "api_timeout=-1 must be greater than 0 seconds"),
]


@pytest.mark.parametrize(("settings", "text"), SETTINGS, ids=case_id)
def test_settings_are_checked_before_anything_is_opened(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Producer(**{"group": "g", "name_servers": NOBODY, **settings})
    assert str(caught.value) == text


def test_a_setting_that_does_not_exist_is_told_with_those_that_do() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Producer("g", NOBODY, timeout=3, sendTimeout=3)
    text = str(caught.value)
    assert text.startswith("unknown settings sendTimeout, timeout; a producer knows address_server, api_timeout, ")
    assert ", retries, retries_async, " in text
    assert "send_timeout" in text
    assert " group," not in text


def test_credentials_need_both_keys_and_never_show_the_secret() -> None:
    with pytest.raises(ConfigurationError, match=r"^credentials need both an access key and a secret key$"):
        Credentials("key", "")
    with pytest.raises(ConfigurationError) as caught:
        Producer("g", NOBODY, credentials={"access_key": "k", "secret_key": "TOP-SECRET"})
    assert "TOP-SECRET" not in str(caught.value)


@pytest.mark.parametrize(("codec", "module"), [("lz4", "lz4.frame"), ("zstd", "zstandard")])
def test_a_codec_that_is_not_installed_is_missed_at_once(
    monkeypatch: pytest.MonkeyPatch, codec: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingCodecError, match=codec):
        Producer("g", NOBODY, compression=codec)


# --- messages -------------------------------------------------------------------------------------------------------

MESSAGES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"topic": None}, TypeError, "topic must be str, got NoneType: None"),
    ({"topic": b"t"}, TypeError, "topic must be str, got bytes: b't'"),
    (
        {"body": "x"},
        TypeError,
        "body must be bytes, bytearray or memoryview, got str: encode it first, e.g. body.encode()",
    ),
    ({"body": None}, TypeError, "body must be bytes, bytearray or memoryview, got NoneType"),
    ({"body": {"a": 1}}, TypeError, "body must be bytes, bytearray or memoryview, got dict"),
    ({"tags": ["a"]}, TypeError, "tags must be str | None, got list: ['a']"),
    ({"keys": 42}, TypeError, "keys must be a str or an iterable of str, got int: 42"),
    ({"keys": b"42"}, TypeError, "keys must be a str or an iterable of str, got bytes: b'42'"),
    ({"keys": ["a", 42]}, TypeError, "each of keys must be str, got int: 42"),
    ({"properties": "a=b"}, TypeError, "properties must be Mapping, got str: 'a=b'"),
    ({"properties": {"a": 1}}, TypeError, "property 'a' must be str, got int: 1"),
    ({"properties": {"a": None}}, TypeError, "property 'a' must be str, got NoneType: None"),
    ({"properties": {1: "a"}}, TypeError, "a property's name must be str, got int: 1"),
    ({"delay_level": "3"}, TypeError, "delay_level must be int, got str: '3'"),
    ({"delay_level": None}, TypeError, "delay_level must be int, got NoneType: None"),
    ({"delay_level": True}, TypeError, "delay_level must be int, got bool: True"),
    ({"delay": "1"}, TypeError, "delay must be int | float | None, got str: '1'"),
    ({"deliver_at": 1.5}, TypeError, "deliver_at must be int | datetime.datetime | None, got float: 1.5"),
    ({"flag": "1"}, TypeError, "flag must be int, got str: '1'"),
    ({"sharding_key": 42}, TypeError, "sharding_key must be str | None, got int: 42"),
    (
        {"delay_level": 3, "delay": 5},
        ConfigurationError,
        "delay_level, delay and deliver_at are three ways to say when a message is delivered: give one, got"
        " delay_level=3, delay=5, deliver_at=None",
    ),
    (
        {"delay": 5, "deliver_at": 1_700_000_000_000},
        ConfigurationError,
        "delay_level, delay and deliver_at are three ways to say when a message is delivered: give one, got"
        " delay_level=0, delay=5, deliver_at=1700000000000",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), MESSAGES, ids=case_id)
def test_messages_say_what_is_wrong_when_they_are_made(wrong: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        Message(**{"topic": "t", "body": b"x", **wrong})
    assert str(caught.value) == text


# --- sending --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with running_producers(max_message_size=100) as running:
        yield running


def message(**others: Any) -> Message:
    return Message(**{"topic": "t", "body": b"x", **others})


def spoilt(**attributes: Any) -> Message:
    """A message whose attributes were set after it was made."""
    result = message()
    for name, value in attributes.items():
        setattr(result, name, value)
    return result


def send(what: Any = None, **how: Any) -> Callable[[Running], object]:
    return lambda running: running.producer.send(message() if what is None else what, **how)


def batch(what: Any, **how: Any) -> Callable[[Running], object]:
    return lambda running: running.producer.send_batch(what, **how)


ONE_QUEUE = "were given: only one of them can choose the queue"
LEVELS = "must be a whole number from 0 (none) to 18 (max_delay_level)"
DELAY = "must be a number of seconds, greater than 0 and at most 1000000000"
TIMEOUT = "must be a number of seconds greater than 0"
SEPARATORS = r"contains \x01 or \x02, which separate properties on the wire"
SURROGATE = "contains half of a surrogate pair, which UTF-8 cannot carry"
EMPTY_PROPERTY = "neither name nor value of a property may be empty"
FLAG = "must be a whole number of 32 bits (-2147483648 to 2147483647)"
NOT_MESSAGE = "expected a Message to send, got"
T127 = "t" * 128

SENDS: list[tuple[Callable[[Running], object], str]] = [
    # what is sent
    (lambda r: r.producer.send(None), f"{NOT_MESSAGE} NoneType"),
    (send(b"x"), f"{NOT_MESSAGE} bytes"),
    (send([message()]), f"{NOT_MESSAGE} list"),
    (send({"topic": "t"}), f"{NOT_MESSAGE} dict"),
    (send(Message), f"{NOT_MESSAGE} type"),
    # topic
    (send(message(topic="")), "topic='': a topic needs a name"),
    (send(message(topic=" \t")), r"topic=' \t': a topic needs a name"),
    (send(message(topic="a.b")), f"topic='a.b' {LEGAL}"),
    (send(message(topic="主题")), f"topic='主题' {LEGAL}"),
    (send(message(topic=T127)), f"topic={T127!r} has 128 characters: at most 127 are allowed"),
    (
        send(message(topic="%RETRY%" + "g" * 249)),
        f"topic={'%RETRY%' + 'g' * 249!r} has 256 characters: at most 255 are allowed",
    ),
    *(
        (send(message(topic=topic)), f"topic={topic!r} is reserved for brokers: nothing can be sent to it")
        for topic in (
            "SCHEDULE_TOPIC_XXXX",
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "TRANS_CHECK_MAX_TIME_TOPIC",
            "SELF_TEST_TOPIC",
            "OFFSET_MOVED_EVENT",
        )
    ),
    (
        lambda r: r.namespaced.send(message(topic="t" * 125)),
        f"topic={'t' * 125!r} has 128 characters with its namespace ({'ns%' + 't' * 125!r}): at most 127 are allowed",
    ),
    (send(spoilt(topic=None)), "topic=None: a topic needs a name"),
    # body
    (send(message(body=b"")), "the message for topic 't' has an empty body: brokers refuse those"),
    (
        send(message(body=b"x" * 101)),
        "the message for topic 't' has 101 bytes, more than max_message_size (100); brokers refuse more than their own"
        " maxMessageSize too (4 MiB by default)",
    ),
    (send(spoilt(body="text")), "the body of the message for topic 't' is str: it must be bytes"),
    (send(spoilt(body=None)), "the body of the message for topic 't' is NoneType: it must be bytes"),
    (send(spoilt(body=bytearray(b"x"))), "the body of the message for topic 't' is bytearray: it must be bytes"),
    # flag
    (send(message(flag=1 << 31)), f"flag=2147483648 {FLAG}"),
    (send(message(flag=-(1 << 31) - 1)), f"flag=-2147483649 {FLAG}"),
    (send(spoilt(flag=None)), f"flag=None {FLAG}"),
    # tags, keys, properties
    (send(message(tags="a || b")), "tags='a || b': a message has one tag; '||' joins them in subscriptions only"),
    (send(message(tags="a\x01")), rf"tags='a\x01' {SEPARATORS}"),
    (send(message(keys=["a", "\x02"])), rf"keys='a \x02' {SEPARATORS}"),
    (send(message(sharding_key="\x01")), rf"sharding_key='\x01' {SEPARATORS}"),
    (send(message(sharding_key="")), "sharding_key='' must be a text that is not empty, or None"),
    (send(message(tags="\ud800")), rf"tags='\ud800' {SURROGATE}"),
    (send(message(properties={"a\x01b": "c"})), rf"property 'a\x01b' {SEPARATORS}"),
    (send(message(properties={"a": "b\x02"})), f"property 'a' {SEPARATORS}"),
    (send(message(properties={"a": "\udfff"})), f"property 'a' {SURROGATE}"),
    (send(message(properties={"": "a"})), f"property ''='a': {EMPTY_PROPERTY}"),
    (send(message(properties={"a": ""})), f"property 'a'='': {EMPTY_PROPERTY}"),
    (send(message(properties={"TAGS": "a"})), "property 'TAGS' is RocketMQ's own: use tags="),
    (send(message(properties={"KEYS": "a"})), "property 'KEYS' is RocketMQ's own: use keys="),
    (send(message(properties={"DELAY": "3"})), "property 'DELAY' is RocketMQ's own: use delay_level="),
    (
        send(message(properties={"TIMER_DELAY_MS": "3"})),
        "property 'TIMER_DELAY_MS' is RocketMQ's own: use delay= or deliver_at=",
    ),
    (send(message(properties={"UNIQ_KEY": "x"})), "property 'UNIQ_KEY' is RocketMQ's own: it cannot be set"),
    (send(message(properties={"WAIT": "x"})), "property 'WAIT' is RocketMQ's own: it cannot be set"),
    (
        send(message(properties={"a": "x" * 32_653})),
        "the properties take 32769 bytes, the client's own included: at most 32767 are allowed",
    ),
    (
        send(message(keys="中" * 10_900)),
        "the properties take 32819 bytes, the client's own included: at most 32767 are allowed",
    ),
    (send(spoilt(tags=5)), "tags=5 must be a text or None"),
    (send(spoilt(keys=["a"])), "keys=['a'] must be a text or None"),
    (send(spoilt(properties=None)), "properties=None must be a dict of texts"),
    (send(spoilt(properties={"a": 1})), "property 'a'=1: names and values of properties are texts"),
    # delay
    (send(message(delay_level=19)), f"delay_level=19 {LEVELS}"),
    (send(message(delay_level=-1)), f"delay_level=-1 {LEVELS}"),
    (send(spoilt(delay_level="3")), f"delay_level='3' {LEVELS}"),
    (send(spoilt(delay_level=True)), f"delay_level=True {LEVELS}"),
    (send(message(delay=0)), f"delay=0 {DELAY}"),
    (send(message(delay=-0.5)), f"delay=-0.5 {DELAY}"),
    (send(message(delay=float("nan"))), f"delay=nan {DELAY}"),
    (send(message(delay=float("inf"))), f"delay=inf {DELAY}"),
    (send(message(deliver_at=0)), "deliver_at=0 must be milliseconds since the epoch"),
    (send(message(deliver_at=1 << 63)), "deliver_at=9223372036854775808 must be milliseconds since the epoch"),
    # which queue
    (send(queue=0), "queue=0 is not a MessageQueue"),
    (send(queue=("t", "a", 0)), "queue=('t', 'a', 0) is not a MessageQueue"),
    (send(queue=MessageQueue("other", "a", 0)), "queue other@a:0 is not one of topic 't'"),
    (send(queue=QUEUE, sharding_key="k"), f"queue and sharding_key {ONE_QUEUE}"),
    (send(queue=QUEUE, selector=min), f"queue and selector {ONE_QUEUE}"),
    (send(sharding_key="k", selector=min), f"sharding_key and selector {ONE_QUEUE}"),
    (send(sharding_key=""), "sharding_key='' must be a text that is not empty"),
    (send(sharding_key=42), "sharding_key=42 must be a text that is not empty"),
    (send(selector="random"), "selector='random' cannot be called"),
    (
        send(selector=lambda queues, message, arg: None),
        "the selector chose None, which is not one of the 2 it was given",
    ),
    (send(selector=lambda queues, message, arg: 1), "the selector chose 1, which is not one of the 2 it was given"),
    (
        send(selector=lambda queues, message, arg: MessageQueue("t", "a", 2)),
        "the selector chose MessageQueue(topic='t', broker_name='a', queue_id=2), which is not one of the 2 it was"
        " given",
    ),
    # time-out
    *(
        (send(timeout=timeout), f"timeout={timeout!r} {TIMEOUT}")
        for timeout in (0, -1, float("nan"), float("inf"), "3", True)
    ),
    (batch([message()], timeout=0), f"timeout=0 {TIMEOUT}"),
    (lambda r: r.producer.send_async(message(), timeout="3"), f"timeout='3' {TIMEOUT}"),
    (lambda r: r.producer.shutdown(timeout=-1), f"timeout=-1 {TIMEOUT}"),
    # batches
    (batch([]), "send_batch was given no message"),
    (batch(message()), "send_batch takes a list of messages, not Message"),
    (batch(None), "send_batch takes a list of messages, not NoneType"),
    (batch("text"), "send_batch takes a list of messages, not str"),
    (lambda r: r.producer.send_batch(m for m in [message()]), "send_batch takes a list of messages, not generator"),
    (batch({message().topic: 1}), "send_batch takes a list of messages, not dict"),
    (batch([message(), None]), f"{NOT_MESSAGE} NoneType at index 1"),
    (
        batch([message(), message(topic="other")]),
        "a batch has one topic, but this one has 't' and 'other'",
    ),
    (batch([message(), message(body=b"")]), "the message for topic 't' has an empty body: brokers refuse those"),
    *(
        (batch([message(), late]), "a delayed message cannot be part of a batch: send it by itself")
        for late in (message(delay_level=1), message(delay=5), message(deliver_at=1_700_000_000_000))
    ),
    (batch([message(topic="%RETRY%g")]), "messages of a retry topic cannot be sent as a batch"),
    (
        batch([message(sharding_key="a"), message(sharding_key="b")]),
        "a batch goes to one queue, but the messages of this one have the sharding keys 'a' and 'b': send a"
        " batch per key",
    ),
    (
        batch([message(), message(sharding_key="b")]),
        "a batch goes to one queue, but the messages of this one have the sharding keys None and 'b': send a"
        " batch per key",
    ),
    (batch([message()], queue=0), "queue=0 is not a MessageQueue"),
    (batch([message()], queue=MessageQueue("other", "a", 0)), re.compile(r"queue .* is not one of topic 't'")),
    # questions
    (lambda r: r.producer.queues("a b"), f"topic='a b' {LEGAL}"),
    (lambda r: r.producer.queues(None), "topic=None: a topic needs a name"),
]


@pytest.mark.parametrize(("call", "text"), SENDS, ids=itertools.count())
def test_a_send_is_checked_before_anything_leaves(
    running: Running, call: Callable[[Running], object], text: str | re.Pattern[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        call(running)
    if isinstance(text, str):
        assert str(caught.value) == text
    else:
        assert text.fullmatch(str(caught.value))
    assert running.broker.sends == []


@pytest.mark.parametrize("name", ["send_oneway", "send_async"])
@pytest.mark.parametrize(
    ("what", "how", "text"),
    [
        (None, {}, f"{NOT_MESSAGE} NoneType"),
        (message(body=b""), {}, "the message for topic 't' has an empty body: brokers refuse those"),
        (message(topic="a b"), {}, f"topic='a b' {LEGAL}"),
        (spoilt(body=None), {}, "the body of the message for topic 't' is NoneType: it must be bytes"),
        (message(), {"queue": 5}, "queue=5 is not a MessageQueue"),
        (message(), {"queue": QUEUE, "selector": min}, f"queue and selector {ONE_QUEUE}"),
    ],
    ids=itertools.count(),
)
def test_every_way_to_send_checks_the_same(
    running: Running, name: str, what: Any, how: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        getattr(running.producer, name)(what, **how)
    assert str(caught.value) == text
    assert running.broker.sends == []
    assert "<AsyncGate 0 of 1000 messages, 0 of" in repr(running.producer)


def test_what_a_future_is_told_late_is_told_as_clearly(running: Running) -> None:
    nonsense = running.producer.send_async(message(), selector=lambda queues, message, arg: None)
    with pytest.raises(ConfigurationError, match=r"^the selector chose None, which is not one of the 2 it was given$"):
        nonsense.result()


def test_limits_themselves_are_allowed(running: Running) -> None:
    """So that the table above is about the limits and not about something else."""
    producer = running.producer
    accepted = [
        message(body=b"x" * 100),
        message(flag=(1 << 31) - 1),
        message(flag=-(1 << 31)),
        message(delay_level=18),
        message(properties={"a": "x" * 32_651}),
        message(tags="a|b", keys="k", sharding_key="k"),
        message(tags="", keys=""),
    ]
    for each in accepted:
        producer.send(each)
    producer.send(message(), timeout=3)
    producer.send_batch((message(sharding_key="a"), message(sharding_key="a")))  # two requests: 100 bytes are few
    assert len(running.broker.sends) == len(accepted) + 3
    running.broker.sends.clear()


USES: list[Callable[[Producer], object]] = [
    lambda p: p.send(message()),
    lambda p: p.send_oneway(message()),
    lambda p: p.send_async(message()),
    lambda p: p.send_batch([message()]),
    lambda p: p.queues("t"),
]


@pytest.mark.parametrize("use", USES, ids=itertools.count())
def test_a_producer_that_does_not_run_says_so(use: Callable[[Producer], object], running: Running) -> None:
    (name_server,) = running.producer._core.settings.name_servers or ()
    producer = Producer("another", name_server)
    with pytest.raises(ClientStateError) as caught:
        use(producer)
    assert str(caught.value) == "producer of group 'another' is CREATE_JUST: call start() first"
    with producer:
        pass
    with pytest.raises(ClientStateError) as caught:
        use(producer)
    assert str(caught.value) == "producer of group 'another' is SHUTDOWN_ALREADY: it has been shut down"
    assert issubclass(ClientStateError, RocketStreamError)


def test_the_settings_in_the_docs_are_those_that_exist() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto-produce.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S.*?) \|", text, re.MULTILINE))
    fields = {field.name: field for field in dataclasses.fields(ProducerSettings) if field.name != "group"}
    of_clients = {"name_servers", "instance_name", "credentials", "tls", "rpc_hooks", *CLIENT_SETTINGS}
    assert set(rows) == set(fields) | of_clients
    for name, field in fields.items():
        assert rows[name] == f"`{field.default!r}`", name
