"""Traces of what was consumed, on the real brokers."""

from __future__ import annotations

import pytest

from rocketstream.consumer.push_consumer import PushConsumer
from rocketstream.consumer.results import ConsumeResult
from rocketstream.consumer.start_from import StartFrom
from tests.bare_client import eventually


@pytest.mark.behaviour("START-14")
def test_what_is_consumed_is_traced(rocketmq_cluster, client, broker, topic, unique_group):
    traces = f"traces-of-{unique_group}"
    client.create_topic(broker, traces)

    def records() -> list[list[str]]:
        text = "".join(message.body.decode() for message in client.pull_all("reader", traces))
        return [record.split("\x01") for record in text.split("\x02") if record]

    consumer = PushConsumer(
        unique_group,
        rocketmq_cluster.name_server_address,
        listener=lambda messages, context: ConsumeResult.SUCCESS,
        start_from=StartFrom.FIRST,
        trace=traces,
    )
    consumer.subscribe(topic)
    with consumer:
        client.send(topic, b"x", {"UNIQ_KEY": "ID-1", "KEYS": "k1 k2"})
        eventually(lambda: len(records()) >= 2)
    before, after = records()
    request = before[4]
    assert before[3:] == [unique_group, request, "ID-1", "0", "k1 k2"]
    assert before[0] == "SubBefore"
    assert after[:3] + after[4:7] + after[8:] == ["SubAfter", request, "ID-1", "true", "k1 k2", "0", unique_group]
    (stored,) = client.pull_all("reader", traces)
    assert set(stored.keys.split()) == {"ID-1", "k1", "k2"}, "by these a trace is found"
