"""The fields of one message, as Java shows them and as we do."""

from __future__ import annotations

from rocketstream.message import ReceivedMessage
from rocketstream.wire.sysflag import COMPRESSED
from tests.interop.java_peer import JavaMessage

# Java's consumer adds these while it consumes; and each pull sees its own limits.
OWN = {"CONSUME_START_TIME", "MIN_OFFSET", "MAX_OFFSET", "CLUSTER"}


def same(ours: ReceivedMessage, javas: JavaMessage) -> None:
    """Every field that both sides show is the same."""
    assert ours.topic == javas.topic
    assert ours.body == javas.body
    assert ours.queue_id == javas.queue_id
    assert ours.queue_offset == javas.queue_offset
    assert ours.message_id == javas.message_id
    assert ours.offset_message_id == javas.offset_message_id
    assert ours.tags == javas.tags
    assert ours.keys == javas.keys
    assert ours.flag == javas.flag
    # Java of 5.x says that the body it hands over is not compressed any more, as we do; Java of 4.9 forgets to.
    assert ours.sys_flag == javas.sys_flag & ~COMPRESSED
    assert ours.body_crc == javas.body_crc
    assert ours.commit_log_offset == javas.commit_log_offset
    assert ours.born_timestamp == javas.born_timestamp
    assert ours.store_timestamp == javas.store_timestamp
    assert ours.born_host == javas.born_host
    assert ours.store_host == javas.store_host
    assert ours.reconsume_times == javas.reconsume_times
    assert ours.broker_name == javas.broker_name
    assert ours.prepared_transaction_offset == javas.prepared_transaction_offset
    assert {k: v for k, v in ours.properties.items() if k not in OWN} == {
        k: v for k, v in javas.properties.items() if k not in OWN
    }
    assert int(ours.properties["MIN_OFFSET"]) == 0
    assert int(ours.properties["MAX_OFFSET"]) > ours.queue_offset
