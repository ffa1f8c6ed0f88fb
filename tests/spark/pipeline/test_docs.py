"""The complete file of docs/howto-pipelines.md is run as it stands there."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketstream import AdminClient, Message, Producer
from rocketstream.broker import EmbeddedBroker
from rocketstream.spark.pipeline import PipelineRun, load_pipeline
from tests.spark.stock import committed, messages_in

PAGE = (Path(__file__).parents[3] / "docs" / "howto-pipelines.md").read_text("utf-8")
(COMPLETE,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
(IN_YAML,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def order(number: int, minute: int, **others: object) -> bytes:
    told = {"order_id": str(number), "region": "eu" if number % 2 else "us", "amount": "1.50"}
    return json.dumps({**told, "created_at": f"2026-01-01T10:{minute:02}:00Z", **others}).encode()


@pytest.mark.timeout(600)
@pytest.mark.slow(12, "runs a whole pipeline")
def test_the_file_of_the_page(
    spark: SparkSession, embedded_broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = embedded_broker.name_server_address
    monkeypatch.setenv("NAMESRV_ADDR", servers)
    (tmp_path / "regions.csv").write_text("region,title\neu,Europe\nus,America\n", "utf-8")
    (tmp_path / "orders.toml").write_text(COMPLETE.replace('processing_time = "5 seconds"', "once = true"), "utf-8")
    bodies = [order(number, number // 10) for number in range(200)]
    bodies += [order(5, 0), b"poison", order(7, 0, amount="lots"), order(999, 59)]
    with AdminClient(servers) as admin, Producer("docs", name_servers=servers, send_timeout=10.0) as producer:
        for topic in ("orders", "orders-per-minute"):
            admin.create_topic(topic, queues=1)
        for body in bodies:
            producer.send(Message("orders", body))
        with PipelineRun(load_pipeline(tmp_path / "orders.toml"), spark) as run:
            assert run.wait(280.0)
            assert run.progress().dead_letters == 2
        assert list(committed(admin, "orders-pipeline", "orders").values()) == [len(bodies)]
        minutes = [json.loads(message.body) for message in messages_in(admin, "orders-per-minute")]
    rows = spark.read.parquet(str(tmp_path / "orders")).collect()
    assert sorted(int(row.order_id) for row in rows) == [*range(200), 999]
    assert {row.title for row in rows} == {"Europe", "America"}
    assert {row.amount for row in rows} == {Decimal("1.50")}
    # The last order moved the watermark to 10:49; all minutes before it are over, and are told once.
    assert len(minutes) == 40
    assert sum(minute["orders"] for minute in minutes) == 200
    reasons = {row.reason for row in spark.read.parquet(str(tmp_path / "dead-letters")).collect()}
    assert reasons == {"the body is not JSON", "column amount is not DECIMAL(12,2): lots"}


def test_the_page_s_yaml_is_one_too() -> None:
    pipeline = load_pipeline(IN_YAML, syntax="yaml", environ={}, name_servers="127.0.0.1:9876")
    assert [sink.type for sink in pipeline.sinks] == ["console"]
