"""Rows of a table on their way into a sink, and into dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rocketstream.spark.pipeline.ddl import quoted
from rocketstream.spark.pipeline.model import DeadLetter, Options, Sink, Trigger
from rocketstream.spark.pipeline.read_sinks import MESSAGE_PARTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The columns that the rocketmq sink takes.
WRITE_COLUMNS = ("body", "topic", *MESSAGE_PARTS)
_CASTS = {"keys": "STRING", "tags": "STRING", "sharding_key": "STRING", "delay_level": "INT"}


def as_messages(rows: DataFrame, sink: Sink) -> DataFrame:
    """Rows as messages: as they are if they have a body, else each row as JSON; with the parts the sink names."""
    columns = {column.lower(): column for column in rows.columns}
    body = sink.message.get("body")
    if body not in (None, "json"):
        parts = [f"{quoted(str(body))} AS body"]
    elif body is None and "body" in columns:
        parts = ["body", *(part for part in ("topic", *MESSAGE_PARTS) if part in columns and part not in sink.message)]
    else:
        parts = [f"to_json(struct({', '.join(map(quoted, rows.columns))})) AS body"]
    for part in MESSAGE_PARTS:
        if part in sink.message:
            column = quoted(sink.message[part])
            parts.append(f"CAST({column} AS {_CASTS[part]}) AS {part}" if part in _CASTS else f"{column} AS {part}")
    return rows.selectExpr(*parts)


def writer(rows: DataFrame, sink: Sink) -> Any:
    """The writer of a sink's query, but for its name and checkpoint."""
    frame = as_messages(rows, sink) if sink.type == "rocketmq" else rows
    if sink.type == "rocketmq" and sink.output_mode == "update":
        made = frame.writeStream.outputMode("update").foreachBatch(_sender(sink.options))
        return with_trigger(made, sink.trigger)
    made = frame.writeStream.format(sink.type).outputMode(sink.output_mode)
    options = {key: value for key, value in sink.options.items() if key != "table" or sink.path is not None}
    made = made.options(**options)
    if sink.path is not None:
        made = made.option("path", sink.path)
    if sink.partition_by:
        made = made.partitionBy(*sink.partition_by)
    return with_trigger(made, sink.trigger)


def _sender(options: Options) -> Callable[[DataFrame, int], None]:
    """Sends a batch of changed rows: Spark has no update mode for sinks in Python, but for batches of a stream.

    The rows' ids are made of the query and the batch, as those of the sink itself are.
    """

    def send(batch: DataFrame, batch_id: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        write_id = {"writeId": f"{query_id}.{batch_id}"} if query_id else {}
        batch.write.format("rocketmq").options(**options, **write_id).mode("append").save()

    return send


def table_of(sink: Sink) -> str | None:
    """The table of a catalog that a sink writes to, if it is one."""
    return sink.options.get("table") if sink.path is None else None


def letter_writer(letters: DataFrame, letter: DeadLetter, trigger: Trigger) -> Any:
    """The same for the dead letters of a source."""
    if letter.path is not None:
        made = letters.writeStream.format(letter.format).options(**letter.options).option("path", letter.path)
    else:
        made = _letters_as_messages(letters).writeStream.format("rocketmq").options(**letter.options)
    return with_trigger(made.outputMode("append"), trigger)


def _letters_as_messages(letters: DataFrame) -> DataFrame:
    """The body as it was; where it came from, and why it is here, in its properties."""
    said = ("source", "reason", "topic", "broker_name", "queue_id", "queue_offset", "message_id")
    pairs = ", ".join(f"'dead_letter_{name}', CAST({name} AS STRING)" for name in said)
    # A message's properties can't hold the bytes that separate them.
    clean = f"transform_values(map({pairs}), (k, v) -> translate(coalesce(v, ''), '\\u0001\\u0002', '  '))"
    return letters.selectExpr("coalesce(body, CAST('' AS BINARY)) AS body", "tags", "keys", f"{clean} AS properties")


def with_trigger(made: Any, trigger: Trigger) -> Any:
    """A writer with its trigger."""
    if trigger.available_now:
        return made.trigger(availableNow=True)
    return made.trigger(processingTime=trigger.processing_time) if trigger.processing_time else made
