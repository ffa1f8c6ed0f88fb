"""Metrics of clients at work on real brokers, as Prometheus gets them."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocketstream import ConsumeResult, Message
from rocketstream.metrics import start_http_server
from rocketstream.metrics.catalogue import METRICS
from tests.bare_client import eventually
from tests.contract.consuming import Heard

Scrape = Callable[[], dict[tuple[str, frozenset[tuple[str, str]]], float]]


@pytest.fixture(scope="module")
def scrape() -> Iterator[Scrape]:
    """What an endpoint of this process says of our metrics, by name and labels."""

    def read() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        with urllib.request.urlopen(server.url, timeout=30) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        ours = [family for family in families if family.name.startswith("rocketstream_")]
        assert {f.name + "_total" if f.type == "counter" else f.name for f in ours} <= set(METRICS)
        return {(s.name, frozenset(s.labels.items())): s.value for family in ours for s in family.samples}

    with start_http_server(0, "127.0.0.1") as server:
        yield read


@pytest.mark.feature("metrics/prometheus", "metrics/mapping")
@pytest.mark.slow(12, "waits for the retry topic, which a broker makes in its own time")
def test_what_clients_do_is_measured(topic, unique_group, consume, sender, scrape):
    def answer(messages, context):
        context.delay_level_when_next_consume = -1 if messages[0].body == b"dead" else 1
        if messages[0].body in (b"dead", b"later") and not messages[0].reconsume_times:
            return ConsumeResult.RECONSUME_LATER
        return ConsumeResult.SUCCESS

    heard = Heard(answer)
    # The retry topic is to be seen soon.
    consumer = consume(heard, topic, poll_name_server_interval=1.0, rebalance_interval=1.0)
    for body in (b"dead", b"later", b"good"):
        sender.send(Message(topic, body))
    sender.send_batch([Message(topic, b"good")] * 5)
    heard.until(9)  # "later" comes twice

    def value(name: str, group: str = unique_group, in_topic: str = topic, **labels: str) -> float | None:
        found = scrape()
        return found.get((f"rocketstream_{name}", frozenset({"group": group, "topic": in_topic, **labels}.items())))

    eventually(lambda: value("consumer_messages_total", result="ok", in_topic=f"%RETRY%{unique_group}") == 1)
    assert value("consumer_messages_total", result="ok") == 6
    assert value("consumer_messages_total", result="failed") == 2
    assert value("consumer_pulled_messages_total") == 8
    assert value("consumer_sent_back_total", result="ok") == 2
    assert value("consumer_dead_letters_total") == 1
    assert value("consumer_listener_seconds_count") == 8
    assert value("consumer_pull_seconds_count") >= 1
    assert value("consumer_assigned_queues") == 1
    eventually(lambda: value("consumer_lag_messages") == 0)
    producing = f"{unique_group}-p"
    assert value("producer_messages_total", producing, result="ok") == 8
    assert value("producer_send_seconds_count", producing) == 4
    assert value("producer_batch_messages_sum", producing) == 8
    assert consumer.metrics[topic]["dead_letters"] == 1
    assert sender.metrics[topic]["ok_messages"] == 8
    everything = scrape()
    asked = {dict(labels)["code"] for name, labels in everything if name == "rocketstream_remoting_requests_total"}
    assert {"PULL_MESSAGE", "SEND_MESSAGE_V2", "HEART_BEAT", "CONSUMER_SEND_MSG_BACK"} <= asked
    assert everything["rocketstream_remoting_connections", frozenset()] >= 2
    assert everything["rocketstream_remoting_bytes_total", frozenset({("direction", "in")})] > 1000
