"""What a producer measures of its sends, whichever way they take and however they end."""

from __future__ import annotations

import asyncio

import pytest

from rocketstream.errors import BrokerError, ClientStateError, SendFailedError
from rocketstream.message import Message, MessageQueue
from rocketstream.metrics.registry import registry
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.frame import encode_frame
from tests.bare_client import eventually
from tests.producer.peers import SILENCE, in_flight, ready, running_producers


@pytest.fixture
def one(name_server, a):
    """Topic t on broker a."""
    name_server.set_route("t", {"a": {0: a.address}}, queues=4)


def told(core, name: str, *labels: str):
    values = {(s.metric.name.removeprefix("rocketstream_"), s.labels): s.value for s in core.collect_metrics()}
    return values.get((name, labels))


async def test_a_send_that_went_well(one, started, a, clock):
    core = await started()
    a.script.append(SILENCE)
    out = ready(core, body=b"12345")
    sending = asyncio.ensure_future(core.send(out))
    await in_flight(a, 1)
    await clock.advance(0.2)
    sending.cancel()
    await asyncio.wait([sending])
    assert core.meters.metrics().get("t", {}).get("ok_messages", 0) == 0, "nobody knows what became of it"
    await core.send(out)
    assert told(core, "producer_messages_total", "g", "t", "ok") == 1
    assert told(core, "producer_messages_total", "g", "t", "failed") == 0
    assert told(core, "producer_bytes_total", "g", "t") == 5
    assert told(core, "producer_send_seconds", "g", "t").counts[0] == 1
    assert told(core, "producer_batch_messages", "g", "t").counts[0] == 1


async def test_the_time_of_a_send_is_from_its_call_on(one, started, a, clock):
    core = await started()
    begun = clock.monotonic()
    await clock.advance(0.3)
    await core.send(ready(core), begun=begun)
    assert core.meters.metrics()["t"]["send_ms"] == 300


async def test_retries_and_failures(one, started, a):
    core = await started(retries=2)
    a.script.append(ResponseCode.SYSTEM_ERROR)
    await core.send(ready(core))
    assert core.meters.metrics()["t"]["retries"] == 1
    a.always = ResponseCode.SYSTEM_ERROR
    with pytest.raises(SendFailedError):
        await core.send(ready(core))
    a.always = ResponseCode.MESSAGE_ILLEGAL
    with pytest.raises(BrokerError):
        await core.send(ready(core), queue=MessageQueue("t", "a", 0))
    counts = core.meters.metrics()["t"]
    assert (counts["ok_messages"], counts["failed_messages"], counts["retries"], counts["requests"]) == (1, 2, 3, 1)


async def test_a_send_after_the_end_failed(one, started, a):
    core = await started()
    await core.shutdown()
    with pytest.raises(ClientStateError):
        await core.send(ready(core))
    assert core.meters.metrics()["t"]["failed_messages"] == 1


@pytest.mark.feature("metrics/mapping")
def test_every_way_to_send_is_counted_once():
    with running_producers() as running:
        producer = running.producer
        message = Message("t", b"1234")
        producer.send(message)
        producer.send(message)  # the connection is there now: the quick way
        producer.send_async(message).result()
        producer.send_batch([message] * 3)
        producer.send_oneway(message)
        running.broker.always = ResponseCode.MESSAGE_ILLEGAL
        for send in (producer.send, lambda m: producer.send_async(m).result()):
            with pytest.raises((BrokerError, SendFailedError)):
                send(message)
        counts = producer.metrics["t"]
        assert (counts["ok_messages"], counts["failed_messages"], counts["one_way_messages"]) == (6, 2, 1)
        assert counts["requests"] == 4
        running.broker.always = ResponseCode.SUCCESS
        running.namespaced.send(message)
        assert list(running.namespaced.metrics) == ["ns%t"], "topics are named as brokers know them"


def test_bytes_that_callers_write_themselves_are_counted():
    with running_producers() as running:
        producer, broker = running.producer, running.broker
        producer.send(Message("t", b"x"))
        (connection,) = [
            one for address, one in producer.core.instance.remoting.connections.items() if address == broker.address
        ]
        producer.send(Message("t", b"x"))  # from now on there is a line for callers
        eventually(lambda: connection.line is not None and connection.line.settled)
        before, count = connection.bytes_out, len(broker.sends)
        for _ in range(3):
            producer.send(Message("t", bytes(1000)))
        sent = sum(len(piece) for command in broker.sends[count:] for piece in encode_frame(command))
        assert sent > 3000
        assert connection.bytes_out - before >= sent


def test_messages_that_share_a_request_are_counted_each():
    with running_producers(auto_batch=True, batch_max_delay=0.2) as running:
        for future in [running.producer.send_async(Message("t", b"x")) for _ in range(5)]:
            future.result()
        counts = running.producer.metrics["t"]
        assert (counts["ok_messages"], counts["requests"]) == (5, 1)


async def test_traces_are_not_messages_of_the_users(one, started, a, name_server):
    name_server.set_route("RMQ_SYS_TRACE_TOPIC", {"a": {0: a.address}}, queues=1)
    core = await started(trace=True)
    await core.send(ready(core))
    await core.shutdown()
    assert len(a.sends) == 2
    assert list(core.meters.metrics()) == ["t"]
    assert told(core, "trace_dropped_total", "producer", "g") == 0


async def test_counts_outlive_the_producer(one, started, a):
    core = await started(group="outliving-producer")
    await core.send(ready(core))
    await core.shutdown()
    counted = [s.value for s in registry.collect() if s.labels == ("outliving-producer", "t", "ok")]
    assert counted == [1]


async def test_verdicts_on_transactions(one, started):
    core = await started()
    for state, by in (("COMMIT", "execute"), ("COMMIT", "execute"), ("ROLLBACK", "check")):
        core.meters.judged(state, by)
    assert told(core, "producer_transactions_total", "g", "COMMIT", "execute") == 2
    assert told(core, "producer_transactions_total", "g", "ROLLBACK", "check") == 1
