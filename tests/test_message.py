from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from rocketstream.errors import ConfigurationError
from rocketstream.message import Message, MessageHeader, MessageQueue, ReceivedMessage
from rocketstream.property_names import RESERVED_PROPERTIES, PropertyName
from rocketstream.wire.compression import compress
from rocketstream.wire.record import RecordSource, encode_record
from rocketstream.wire.record_decoder import decode_records
from rocketstream.wire.sysflag import Codec, with_codec


class TestMessageQueue:
    def test_order_is_javas(self) -> None:
        queues = [
            MessageQueue("b", "a", 0),
            MessageQueue("a", "b", 0),
            MessageQueue("a", "a", 10),
            MessageQueue("a", "a", 9),
        ]
        assert sorted(queues) == queues[::-1]

    def test_hash_equality_pickle_repr(self) -> None:
        queue = MessageQueue("orders", "broker-a", 3)
        assert {queue: 1}[MessageQueue("orders", "broker-a", 3)] == 1
        assert queue != MessageQueue("orders", "broker-b", 3)
        assert pickle.loads(pickle.dumps(queue)) == queue
        assert repr(queue) == "MessageQueue(topic='orders', broker_name='broker-a', queue_id=3)"

    def test_frozen(self) -> None:
        with pytest.raises(AttributeError):
            MessageQueue("a", "b", 0).queue_id = 1  # type: ignore[misc]


class TestMessage:
    def test_defaults(self) -> None:
        message = Message("orders", b"x")
        assert (message.topic, message.body, message.properties) == ("orders", b"x", {})
        assert (message.tags, message.keys, message.sharding_key) == (None, None, None)
        assert (message.delay_level, message.delay, message.deliver_at, message.flag) == (0, None, None, 0)

    @pytest.mark.parametrize("body", [b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"xabcx")[1:4]])
    def test_body_becomes_bytes(self, body: bytes | bytearray | memoryview) -> None:
        assert type(Message("t", body).body) is bytes
        assert Message("t", body).body == b"abc"

    @pytest.mark.parametrize(("keys", "joined"), [("a b", "a b"), (["a", "b"], "a b"), (("a",), "a"), (None, None)])
    def test_keys_are_joined_by_a_space(self, keys: Any, joined: str | None) -> None:
        assert Message("t", b"", keys=keys).keys == joined
        assert Message("t", b"", keys=iter(["x", "y"])).keys == "x y"

    def test_properties_are_a_copy(self) -> None:
        mine = {"a": "b"}
        message = Message("t", b"", properties=mine)
        mine["c"] = "d"
        assert message.properties == {"a": "b"}

    def test_datetime_becomes_milliseconds(self) -> None:
        assert Message("t", b"", deliver_at=datetime(2024, 1, 1, tzinfo=UTC)).deliver_at == 1704067200000

    @pytest.mark.parametrize(
        ("wrong", "text"),
        [
            ({"body": "text"}, "body must be bytes, bytearray or memoryview, got str: encode it first"),
            ({"body": None}, "body must be bytes, bytearray or memoryview, got NoneType"),
            ({"body": 5}, "got int"),
            ({"topic": b"t"}, "topic must be str, got bytes"),
            ({"tags": 5}, "tags must be str | None, got int: 5"),
            ({"keys": 5}, "keys must be a str or an iterable of str"),
            ({"keys": [5]}, "each of keys must be str, got int: 5"),
            ({"properties": [("a", "b")]}, "properties must be Mapping"),
            ({"properties": {"a": 1}}, "property 'a' must be str, got int: 1"),
            ({"properties": {1: "a"}}, "a property's name must be str, got int: 1"),
            ({"delay_level": True}, "delay_level must be int, got bool"),
            ({"delay": "1"}, "delay must be int | float | None, got str"),
            ({"deliver_at": 1.5}, "got float: 1.5"),
            ({"flag": "1"}, "flag must be int"),
            ({"sharding_key": 42}, "sharding_key must be str | None, got int: 42"),
        ],
    )
    def test_wrong_types_are_named(self, wrong: dict[str, Any], text: str) -> None:
        with pytest.raises(TypeError) as error:
            Message(**{"topic": "t", "body": b"", **wrong})
        assert text in str(error.value)

    def test_one_time_of_delivery(self) -> None:
        with pytest.raises(ConfigurationError, match="give one, got delay_level=3, delay=5"):
            Message("t", b"", delay_level=3, delay=5)

    def test_equal_by_value_and_picklable(self) -> None:
        message = Message("t", b"x", tags="a", keys=["b"], properties={"c": "d"}, delay=5)
        assert pickle.loads(pickle.dumps(message)) == message
        assert message != Message("t", b"y", tags="a", keys=["b"], properties={"c": "d"}, delay=5)
        with pytest.raises(TypeError):
            hash(message)

    def test_repr_has_no_body(self) -> None:
        assert repr(Message("t", b"secret", tags="a")) == "Message(topic='t', body_size=6, tags='a')"


def test_property_names_are_constants_of_the_wire() -> None:
    assert PropertyName.UNIQUE_KEY == "UNIQ_KEY"
    assert PropertyName.SHARDING_KEY == "__SHARDINGKEY"
    assert {"TAGS", "KEYS", "UNIQ_KEY", "MIN_OFFSET", "TIMER_DELAY_MS"} <= RESERVED_PROPERTIES
    assert PropertyName.SHARDING_KEY not in RESERVED_PROPERTIES
    assert len(RESERVED_PROPERTIES) == 51


class TestReceivedMessage:
    @pytest.fixture
    def stored(self) -> list[ReceivedMessage]:
        records = [
            encode_record(
                topic="orders",
                body=compress(b"hello" * 100, Codec.ZLIB),
                sys_flag=with_codec(0, Codec.ZLIB),
                queue_id=2,
                queue_offset=17 + n,
                properties="UNIQ_KEY\x01CAFE\x02TAGS\x01paid\x02",
                reconsume_times=4,
            )
            for n in range(32)
        ]
        queue = MessageQueue("orders", "broker-a", 2)
        return decode_records(b"".join(records), queue=queue, min_offset=0, max_offset=50).messages

    def test_from_plain_values(self) -> None:
        message = ReceivedMessage(
            "orders",
            b"hello",
            tags="paid",
            keys=["a", "b"],
            properties={"x": "y"},
            broker_name="broker-a",
            queue_id=2,
            queue_offset=17,
            message_id="CAFE",
            header=MessageHeader(born_timestamp=5, offset_message_id="BEEF"),
        )
        assert (message.topic, message.body, message.body_size) == ("orders", b"hello", 5)
        assert message.properties == {"x": "y", "TAGS": "paid", "KEYS": "a b", "UNIQ_KEY": "CAFE"}
        assert (message.tags, message.keys, message.message_id) == ("paid", "a b", "CAFE")
        assert message.queue == MessageQueue("orders", "broker-a", 2)
        assert (message.queue_id, message.queue_offset, message.born_timestamp) == (2, 17, 5)
        assert message.offset_message_id == "BEEF"
        assert ReceivedMessage("t", header=MessageHeader(offset_message_id="BEEF", queue_id=7)).message_id == "BEEF"

    def test_repr_tells_what_it_is_without_its_body(self, stored: list[ReceivedMessage]) -> None:
        size = stored[0].body_size
        assert repr(stored[0]) == (
            "ReceivedMessage(topic='orders', queue_id=2, queue_offset=17, message_id='CAFE', tags='paid',"
            f" body_size={size})"
        )

    def test_nothing_is_decoded_before_it_is_asked(self, stored: list[ReceivedMessage]) -> None:
        message = stored[0]
        _ = message.tags, message.message_id, message.queue, message.body_size
        assert (message._body, message._properties, message._header) == (None, None, None)
        assert message.body is message.body
        assert message.properties is message.properties

    def test_properties_can_be_changed_and_are_seen_by_the_rest(self, stored: list[ReceivedMessage]) -> None:
        stored[0].properties["TAGS"] = "other"
        assert stored[0].tags == "other"
        assert stored[1].tags == "paid"

    def test_what_the_client_overrides_is_overridden_for_one(self, stored: list[ReceivedMessage]) -> None:
        first, second = stored[:2]
        first.topic = "real"
        first.queue_offset = 99
        first.reconsume_times += 1
        first.broker_name = "broker-b"
        assert (first.topic, first.queue_offset, first.reconsume_times) == ("real", 99, 5)
        assert first.queue == ("orders", "broker-b", 2)
        assert first.body == b"hello" * 100
        assert (second.topic, second.broker_name, second.reconsume_times) == ("orders", "broker-a", 4)

    @pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.copy, copy.deepcopy])
    def test_pickle_carries_one_message_and_all_of_it(self, stored: list[ReceivedMessage], copied: Any) -> None:
        original = stored[5]
        original.topic = "real"
        original.reconsume_times = 9
        original.properties["extra"] = "1"
        again = copied(original)
        names = [name for name in dir(ReceivedMessage) if not name.startswith("_")]
        assert {name: getattr(again, name) for name in names} == {name: getattr(original, name) for name in names}
        assert isinstance(again._source, RecordSource)
        assert len(again._source.buffer) == again.store_size
        again.properties["extra"] = "2"
        assert original.properties["extra"] == "1"

    def test_pickle_is_small_and_as_lazy(self, stored: list[ReceivedMessage]) -> None:
        _ = stored[7].body
        data = pickle.dumps(stored[7])
        assert len(data) < stored[7].store_size + 600
        again = pickle.loads(data)
        assert (again._body, again._properties) == (None, None)
        assert again.properties == stored[7].properties

    def test_pickle_of_plain_values(self) -> None:
        message = ReceivedMessage("t", b"body", tags="a", queue_offset=3, broker_name="b")
        again = pickle.loads(pickle.dumps(message))
        assert (again.body, again.tags, again.queue_offset, again.queue) == (b"body", "a", 3, ("t", "b", 0))

    def test_no_other_attributes(self) -> None:
        with pytest.raises(AttributeError):
            ReceivedMessage("t").unknown = 1  # type: ignore[attr-defined]
