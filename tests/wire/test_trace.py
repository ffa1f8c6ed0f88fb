"""Trace records: Java's texts to the character, and every text that Java's clients have ever written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.wire.trace import (
    AnyTrace,
    ConsumeBeginTrace,
    ConsumeEndTrace,
    ConsumeReturn,
    EndTransactionTrace,
    PublishTrace,
    RecallTrace,
    TracedMessageType,
    decode_traces,
)

PUB = PublishTrace(
    1700, "Default", "g", "t", "ID", "red", None, "1.2.3.4:10911", 7, 3, TracedMessageType.DELAY, "OFF", True
)
BEGIN = ConsumeBeginTrace(1700, "Default", "g", "REQ", "ID", 2, "k1 k2")
END = ConsumeEndTrace("REQ", "ID", 7, True, None, ConsumeReturn.SUCCESS, 1800, "g")
TRANSACTION = EndTransactionTrace(
    1700, "Default", "g", "t", "ID", None, "k", "1.2.3.4:10911", "TX", "COMMIT_MESSAGE", False
)
RECALL = RecallTrace(1700, "Default", "g", "t", "ID", False)
TEXTS = {
    PUB: "Pub|1700|Default|g|t|ID|red|null|1.2.3.4:10911|7|3|3|OFF|true;",
    BEGIN: "SubBefore|1700|Default|g|REQ|ID|2|k1 k2;",
    END: "SubAfter|REQ|ID|7|true|null|0|1800|g;",
    TRANSACTION: "EndTransaction|1700|Default|g|t|ID|null|k|1.2.3.4:10911|2|TX|COMMIT_MESSAGE|false;",
    RECALL: "Recall|1700|Default|g|t|ID|false;",
}


def raw(text: str) -> str:
    return text.replace("|", "\x01").replace(";", "\x02")


@pytest.mark.parametrize("trace", TEXTS, ids=lambda trace: type(trace).__name__)
def test_texts_as_java_writes_them(trace: AnyTrace) -> None:
    assert trace.encode() == raw(TEXTS[trace])


def test_what_java_does_not_have_is_null() -> None:
    trace = ConsumeBeginTrace(1700, None, "g", "REQ", "ID", 0, None)
    assert trace.encode() == raw("SubBefore|1700|null|g|REQ|ID|0|null;")
    assert decode_traces(trace.encode()) == [trace]


def test_what_is_written_is_read() -> None:
    assert decode_traces("".join(trace.encode() for trace in TEXTS)) == list(TEXTS)


def test_the_numbers_of_javas_kinds() -> None:
    java = ["SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED"]
    assert [one.name for one in sorted(ConsumeReturn)] == java
    kinds = ["NORMAL", "TRANSACTION_HALF", "TRANSACTION_COMMIT", "DELAY", "ORDER"]
    assert [one.name for one in sorted(TracedMessageType)] == kinds


def test_records_of_older_clients() -> None:
    """Without the offset id; with the client's host; an end that tells neither when nor where (as in the cloud)."""
    old, with_host, end, older_end = decode_traces(
        raw(
            "Pub|1700|Default|g|t|ID|red|null|h:1|7|3|0|true;"
            "Pub|1700|Default|g|t|ID|red|null|h:1|7|3|0|OFF|true|10.0.0.1;"
            "SubAfter|REQ|ID|7|false|k|2|;"
            "SubAfter|REQ|ID|7|false|k;"
        )
    )
    assert isinstance(old, PublishTrace)
    assert (old.offset_message_id, old.success) == (None, True)
    assert isinstance(with_host, PublishTrace)
    assert (with_host.offset_message_id, with_host.success) == ("OFF", True)
    assert isinstance(end, ConsumeEndTrace)
    assert (end.returned, end.timestamp, end.group) == (ConsumeReturn.EXCEPTION, None, None)
    assert isinstance(older_end, ConsumeEndTrace)
    assert older_end.returned is ConsumeReturn.FAILED


@pytest.mark.parametrize(
    "text", ["", "Pub", "Pub|x|;", "News|1|2|3;", "SubBefore|1700|Default|g;", "SubAfter|R|I|x|true|k;"]
)
def test_what_is_no_record_is_left_out(text: str) -> None:
    assert decode_traces(BEGIN.encode() + raw(text)) == [BEGIN]
    assert decode_traces(raw(text) + "\x02" + END.encode()) == [END]


@given(st.text(alphabet="PubSAfterBo0123\x01\x02|"))
def test_reading_never_raises(text: str) -> None:
    decode_traces(text)
