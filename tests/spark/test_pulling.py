from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstream.consumer.expressions import Sql, Tag
from rocketstream.errors import CorruptMessageError
from rocketstream.spark.errors import DataLossError, UnreadableRangeError
from rocketstream.spark.link import Link, LinkSettings
from rocketstream.spark.pulling import PullSettings, pull_ranges, read_ranges
from rocketstream.spark.pulls import Pulls
from rocketstream.spark.ranges import QueueRange
from rocketstream.testing import EmbeddedCluster
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.columns import COLUMNS, Pulled, read_columns
from rocketstream.wire.record_decoder import decode_records
from tests.bare_client import BareClient, eventually
from tests.contract.clusters import new_cluster, require_target
from tests.spark.filled import FilledTopic, Row, in_order, rows_of

Filled = Callable[..., FilledTopic]
Linked = Callable[..., Link]


def all_of(client: Link, topic: FilledTopic) -> list[QueueRange]:
    ends = client.max_offsets(client.queues([topic.topic]))
    return [QueueRange(queue, 0, end) for queue, end in ends.items()]


def read(client: Link, ranges: list[QueueRange], **others: Any) -> list[Row]:
    rows = rows_of(read_ranges(client, ranges, PullSettings(**others)))
    assert in_order(rows)
    return rows


# --- what is read -----------------------------------------------------------------------------------------------------


def test_everything_is_read_once_and_in_order(filled: Filled, linked: Linked, client: BareClient) -> None:
    topic = filled(queues=5)
    for queue_id, count in ((0, 3000), (1, 1), (2, 777), (3, 0), (4, 9000)):
        topic.put(queue_id, count, tags=("a", None, "b"), properties={"amount": "7"})
    one = linked()
    batches = list(read_ranges(one, all_of(one, topic), PullSettings()))
    rows = rows_of(batches)
    assert sorted(rows) == sorted(topic.rows)
    assert in_order(rows)
    # Every value is the record decoder's.
    table = pa.Table.from_batches(batches).sort_by([("queue_id", "ascending"), ("queue_offset", "ascending")])
    (whole,) = table.filter(pa.compute.field("queue_id") == 2).combine_chunks().to_batches()
    expected = client.pull_all("peek", topic.topic, queues=3)[3001:]
    got = whole.to_pylist()
    assert [row["message_id"] for row in got] == [message.message_id for message in expected]
    of_queue = {"MIN_OFFSET", "MAX_OFFSET"}  # RES-05: not stored with the message
    kept = [{name: m.properties[name] for name in m.properties if name not in of_queue} for m in expected]
    assert [dict(row["properties"]) for row in got] == kept
    assert [row["store_timestamp"].timestamp() * 1000 for row in got] == [m.store_timestamp for m in expected]
    # Arrow batches are of the size that Spark likes.
    assert all(4_000 <= batch.num_rows <= 10_000 for batch in batches[:-1])


def test_only_the_offsets_and_columns_that_are_asked_for(filled: Filled, linked: Linked) -> None:
    topic, one = filled(queues=2), linked()
    topic.put(0, 500)
    topic.put(1, 500)
    queues = one.queues([topic.topic])
    ranges = [QueueRange(queues[0], 17, 403), QueueRange(queues[1], 100, 101), QueueRange(queues[1], 101, 101)]
    wanted = [row for row in topic.rows if (row.queue_id, row.queue_offset) == (1, 100)]
    wanted += [row for row in topic.rows if row.queue_id == 0 and 17 <= row.queue_offset < 403]
    assert sorted(read(one, ranges)) == sorted(wanted)
    (batch,) = read_ranges(one, ranges, PullSettings(), ["queue_offset", "body"])
    assert batch.schema.names == ["queue_offset", "body"]
    assert batch.num_rows == 387
    assert list(read_ranges(one, [], PullSettings())) == []


def test_one_long_queue_is_pulled_by_several_requests_at_a_time(filled: Filled, linked: Linked) -> None:
    topic, one = filled(queues=1), linked()
    topic.put(0, 5_000)
    ranges = all_of(one, topic)
    assert read(one, ranges, stretch=100, pull_batch_size=7) == topic.rows
    assert read(one, ranges, stretch=1000, pulls_at_once=1) == topic.rows


def test_messages_by_tag_with_gaps_and_tags_that_brokers_cannot_tell_apart(filled: Filled, linked: Linked) -> None:
    topic, one = filled(queues=2), linked()
    topic.put(0, 2_000, tags=("Aa", *["other"] * 30, "BB", None))
    topic.put(1, 300, tags=("other",))
    ranges = all_of(one, topic)
    for expression in ("Aa", "Aa || rare"):
        assert read(one, ranges, expression=Tag(expression)) == [row for row in topic.rows if row.tags == "Aa"]
    both = read(one, ranges, expression=Tag("Aa||BB"))
    assert both == [row for row in topic.rows if row.tags in ("Aa", "BB")]
    assert read(one, ranges, expression=Tag("nobody")) == []
    # The tags are compared even where nobody asked for them.
    (batch,) = read_ranges(one, ranges, PullSettings(expression=Tag("BB")), ["body"])
    assert batch.to_pydict() == {"body": [row.body for row in topic.rows if row.tags == "BB"]}


def test_messages_by_a_condition(filled: Filled, linked: Linked) -> None:
    topic, one = filled(queues=1), linked()
    for amount in (5, 50, 500, 5):
        topic.put(0, 100, properties={"amount": str(amount)})
    assert read(one, all_of(one, topic), expression=Sql("amount > 10")) == topic.rows[100:300]


def test_each_topic_may_have_a_filter_of_its_own(filled: Filled, linked: Linked, unique_topic: str) -> None:
    left, right = filled(queues=1), filled(queues=1, topic=f"{unique_topic}-2")
    left.put(0, 100, tags=("a", "b"))
    right.put(0, 100, tags=("a", "b"))
    one = linked()
    settings = PullSettings(expressions={left.topic: Tag("a"), right.topic: Tag("b")})
    ranges = all_of(one, left) + all_of(one, right)
    (batch,) = read_ranges(one, ranges, settings, ["topic", "tags"])
    assert set(map(tuple, zip(*batch.to_pydict().values(), strict=True))) == {(left.topic, "a"), (right.topic, "b")}
    assert batch.num_rows == 100


def test_topics_are_shown_without_their_namespace(filled: Filled, linked: Linked) -> None:
    topic, one = filled(queues=1, namespace="dev"), linked(namespace="dev")
    topic.put(0, 10)
    (batch,) = read_ranges(one, all_of(one, topic), PullSettings(), ["queue_offset", "topic"])
    assert set(batch.column("topic").to_pylist()) == {topic.topic}


def test_raw_answers_are_in_order_and_say_what_is_wanted_of_them(filled: Filled, linked: Linked) -> None:
    topic, one = filled(queues=1), linked()
    topic.put(0, 1_000)
    (everything,) = all_of(one, topic)
    offsets = []
    for pulled in pull_ranges(one, [everything._replace(start=5, end=900)], PullSettings(stretch=64)):
        assert pulled.start_offset is not None
        assert pulled.end_offset is not None
        messages = decode_records(pulled.body, queue=pulled.queue).messages
        offsets += [m.queue_offset for m in messages if pulled.start_offset <= m.queue_offset < pulled.end_offset]
    assert offsets == list(range(5, 900))


# --- on an embedded broker, however it is pulled ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def stock() -> Iterator[tuple[EmbeddedCluster, FilledTopic, Link]]:
    """Four queues of an embedded broker, one of them empty, with messages of all sizes."""
    with EmbeddedCluster() as cluster:
        topic = FilledTopic(cluster.name_server_address, "stock", 4)
        for queue_id, count in ((0, 700), (1, 1500), (3, 40)):
            topic.put(queue_id, count, tags=("a", "b", "c"), size=50 * (queue_id + 1))
        one = Link(LinkSettings((cluster.name_server_address,)))
        yield cluster, topic, one
        one.close()
        topic.close()


@settings(max_examples=60)
@given(data=st.data())
@pytest.mark.slow(20, "compares many generated ranges")
def test_however_ranges_are_pulled_the_rows_are_the_same(
    stock: tuple[EmbeddedCluster, FilledTopic, Link], data: st.DataObject
) -> None:
    _, topic, one = stock
    ranges: list[QueueRange] = []
    for whole in all_of(one, topic):
        cuts = sorted(data.draw(st.lists(st.integers(whole.start, whole.end), max_size=5)))
        ranges += [QueueRange(whole.queue, start, end) for start, end in pairwise(cuts)]
    random.Random(data.draw(st.integers(0, 9))).shuffle(ranges)
    tags = data.draw(st.sampled_from([None, "a", "b || c"]))
    found = rows_of(
        read_ranges(
            one,
            ranges,
            PullSettings(
                expression=Tag(tags or "*"),
                stretch=data.draw(st.integers(1, 400)),
                pull_batch_size=data.draw(st.integers(1, 100)),
                pulls_at_once=data.draw(st.integers(1, 20)),
                prefetch_bytes=data.draw(st.integers(1, 100_000)),
                rows_per_group=data.draw(st.integers(1, 1000)),
            ),
        )
    )
    covered = {(one.queue.queue_id, offset) for one in ranges for offset in range(one.start, one.end)}
    expected = [row for row in topic.rows if (row.queue_id, row.queue_offset) in covered]
    assert sorted(found) == sorted(row for row in expected if tags is None or row.tags in tags.split(" || "))


def test_pulls_run_ahead_only_as_far_as_they_may(stock: tuple[EmbeddedCluster, FilledTopic, Link]) -> None:
    _, topic, one = stock
    chosen = PullSettings(prefetch_bytes=60_000, rows_per_group=50, stretch=50)
    pulls = Pulls(one, all_of(one, topic), chosen)
    one.io.call_soon(pulls.start)
    eventually(lambda: not one.io.run(busy(pulls)))
    largest, given = 50 * 400, pulls._given
    assert 0 < given <= 60_000 + largest
    assert given + pulls._held <= 2 * 60_000 + largest
    while pulls.groups.qsize():
        group = pulls.groups.get()
        assert isinstance(group, list)
        pulls.took(sum(len(pulled.body) for pulled in group))
    eventually(lambda: pulls._given > given)
    one.io.call_soon(pulls.stop)


async def busy(pulls: Pulls) -> bool:
    return pulls._in_flight > 0


def test_who_reads_only_a_part_leaves_nothing_running(
    stock: tuple[EmbeddedCluster, FilledTopic, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, topic, one = stock
    made: list[Pulls] = []
    monkeypatch.setattr("rocketstream.spark.pulling.Pulls", lambda *given: made.append(Pulls(*given)) or made[-1])
    reading = read_ranges(one, all_of(one, topic), PullSettings(rows_per_group=10, prefetch_bytes=1))
    next(reading)
    assert not made[0]._ended
    reading.close()
    eventually(lambda: made[0]._ended)
    eventually(lambda: one.instance.remoting.pending == 0)
    assert sorted(read(one, all_of(one, topic))) == sorted(topic.rows)


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "orders"),
    [
        ("cut", {"times": 5}),
        ("cut", {"times": 5, "carried_out": True}),
        ("answer", {"code": ResponseCode.SYSTEM_BUSY, "times": 5}),
        ("answer", {"code": ResponseCode.FLOW_CONTROL, "times": 5}),
        ("answer", {"code": ResponseCode.GO_AWAY, "times": 2}),
        ("answer", {"code": ResponseCode.SYSTEM_ERROR, "times": 3}),
    ],
)
def test_trouble_in_the_middle_is_ridden_out(
    stock: tuple[EmbeddedCluster, FilledTopic, Link], what: str, orders: dict[str, Any]
) -> None:
    cluster, topic, one = stock
    faults = cluster.brokers[0].broker.faults
    with getattr(faults, what)(RequestCode.PULL_MESSAGE, after=3, **orders):
        found = read(one, all_of(one, topic), pull_batch_size=32, stretch=200)
    assert sorted(found) == sorted(topic.rows)


def test_a_broker_that_refuses_ends_the_read_at_once(stock: tuple[EmbeddedCluster, FilledTopic, Link]) -> None:
    cluster, topic, one = stock
    faults = cluster.brokers[0].broker.faults
    with (
        faults.answer(RequestCode.PULL_MESSAGE, ResponseCode.NO_PERMISSION, "not yours", times=None),
        pytest.raises(UnreadableRangeError, match=r"topic 'stock' on broker 'broker-a' could not be read: .*not yours"),
    ):
        read(one, all_of(one, topic))


def test_a_broker_that_stays_away_is_an_error_after_the_bound(
    stock: tuple[EmbeddedCluster, FilledTopic, Link],
) -> None:
    cluster, topic, one = stock
    faults = cluster.brokers[0].broker.faults
    with (
        faults.answer(RequestCode.PULL_MESSAGE, ResponseCode.SYSTEM_BUSY, "too much to do", times=None),
        pytest.raises(UnreadableRangeError, match=r"could not be read for \d s: .*too much to do"),
    ):
        read(one, all_of(one, topic), outage=0.5)


@pytest.mark.parametrize("target", ["embedded", "5.5.0"])
@pytest.mark.long(50, "stops a broker in order and starts it again", real=True)
def test_a_broker_that_restarts_in_the_middle_is_waited_for(request: pytest.FixtureRequest, target: str) -> None:
    require_target(request, target)
    with new_cluster(target) as cluster:
        topic = FilledTopic(cluster.name_server_address, "orders", 2)
        topic.put(0, 4_000, size=100)
        topic.put(1, 4_000, size=100)
        one = Link(LinkSettings((cluster.name_server_address,)))
        few = PullSettings(prefetch_bytes=50_000, rows_per_group=100, pull_batch_size=32, stretch=320)
        reading = read_ranges(one, all_of(one, topic), few)
        found = rows_of([next(reading), next(reading)])
        cluster.brokers[0].kill()
        back = threading.Thread(target=cluster.brokers[0].start)
        back.start()
        found += rows_of(reading)
        back.join()
        assert sorted(found) == sorted(topic.rows)
        assert in_order(found)
        one.close()
        topic.close()


# --- messages that are gone -------------------------------------------------------------------------------------------


@pytest.fixture
def shortened() -> Iterator[tuple[FilledTopic, Link, int]]:
    """A queue of 3,000 messages whose first ones retention has taken."""
    with EmbeddedCluster(segment_size=100_000, retention_bytes=300_000) as cluster:
        topic = FilledTopic(cluster.name_server_address, "orders", 1)
        topic.put(0, 3_000, size=200)
        one = Link(LinkSettings((cluster.name_server_address,)))
        queue = topic.queue(0)
        eventually(lambda: one.min_offsets([queue])[queue] > 1_000)
        yield topic, one, one.min_offsets([queue])[queue]
        one.close()
        topic.close()


def test_messages_that_are_gone_are_an_error_with_their_range(shortened: tuple[FilledTopic, Link, int]) -> None:
    topic, one, first = shortened
    whole = QueueRange(topic.queue(0), 10, 3_000)
    with pytest.raises(DataLossError, match=rf"offsets 10 to {first - 1} of queue 0 of topic 'orders'") as caught:
        read(one, [whole], pulls_at_once=1, stretch=10_000)
    assert caught.value.gone == whole._replace(end=first)
    assert "failOnDataLoss=false" in str(caught.value)


def test_or_are_passed_over_and_said(
    shortened: tuple[FilledTopic, Link, int], caplog: pytest.LogCaptureFixture
) -> None:
    topic, one, first = shortened
    whole = QueueRange(topic.queue(0), 10, 3_000)
    with caplog.at_level(logging.WARNING, "rocketstream.spark"):
        found = read(one, [whole], fail_on_data_loss=False)
    assert found == topic.rows[first:]
    assert f"[10, {min(first, 10 + 4096)}) is gone" in caplog.text
    everything_gone = QueueRange(topic.queue(0), 10, 20)
    assert read(one, [everything_gone], fail_on_data_loss=False) == []


@pytest.mark.rocketmq_real
def test_on_a_real_broker_a_range_beyond_the_end_is_an_error_after_the_bound(filled: Filled, linked: Linked) -> None:
    topic, one = filled(queues=1), linked()
    topic.put(0, 50)
    whole = QueueRange(topic.queue(0), 0, 60)
    with pytest.raises(UnreadableRangeError, match=r"offset 50 and on .* its messages end at 50"):
        read(one, [whole], outage=0.3)
    with pytest.raises(UnreadableRangeError, match=r"offset 55 and on .* its messages end at 50"):
        read(one, [whole._replace(start=55)], outage=0.3)


def test_a_body_that_cannot_be_read_is_an_error_or_null(
    stock: tuple[EmbeddedCluster, FilledTopic, Link], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, topic, one = stock

    def garbled(parts: list[Pulled], columns: Any = COLUMNS) -> Any:
        first, *others = parts
        flipped = first.body.replace(b"0-5 ", b"0-? ", 1)
        return read_columns([first._replace(body=flipped), *others], columns)

    monkeypatch.setattr("rocketstream.spark.pulling.read_columns", garbled)
    ranges = [QueueRange(topic.queue(0), 0, 20)]
    with pytest.raises(CorruptMessageError, match="message 5 cannot be read"):
        read(one, ranges)
    with caplog.at_level(logging.WARNING, "rocketstream.spark"):
        found = read(one, ranges, fail_on_data_loss=False)
    assert [row.queue_offset for row in found if row.body is None] == [5]
    assert "message 5 cannot be read" in caplog.text


def test_a_mistake_of_ours_ends_the_task_instead_of_hanging_it(
    stock: tuple[EmbeddedCluster, FilledTopic, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, topic, one = stock
    monkeypatch.setattr(Pulls, "_give", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        read(one, all_of(one, topic))
