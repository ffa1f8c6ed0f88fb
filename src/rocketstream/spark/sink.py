"""RocketMQ as a sink of Spark: what a write does on the driver, and what each of its tasks does.

The rule of this file: what can be refused is refused on the driver, before the first task; a task ends only when a
broker has acknowledged each of its rows, or with an error that says which it has not. At least once: whatever is sent
again has the row ids that it had (`row_ids`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rocketstream.clock import SystemClock
from rocketstream.cluster.names import with_namespace
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.spark.row_ids import TaskId, batch_task, stream_task
from rocketstream.spark.write_columns import BadRowError, check_columns
from rocketstream.spark.write_options import WriteOptions
from rocketstream.spark.write_producers import running_producer
from rocketstream.spark.write_requests import Request, RequestMaker
from rocketstream.spark.write_sending import Sender

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("rocketstream.spark")

_STREAM_PATIENCE: Final = 15.0
"""For how many seconds a stream waits for its name servers before it gives up a batch on the driver."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has written."""

    task: str
    rows: int
    requests: int
    sent_again: int


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> RocketMQWriter:
    """The writer of `df.write`, or an error of one sentence."""
    if overwrite:
        raise ConfigurationError('mode("overwrite") cannot be had: messages of a topic stay; use mode("append")')
    parsed = _checked(options, schema)
    _check_target(parsed, 0.0)
    return RocketMQWriter(parsed, parsed.write_id or str(uuid.uuid4()))


def make_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> RocketMQStreamWriter:
    """The sink of `df.writeStream`, or an error of one sentence.

    `overwrite` (output mode complete) sends the whole result with every batch, as Spark's Kafka sink does.
    """
    parsed = _checked(options, schema)
    if parsed.write_id is not None:
        raise ConfigurationError("option writeId is for batch writes: a stream's rows are known by its query's id")
    _check_target(parsed, min(_STREAM_PATIENCE, parsed.send_timeout))
    return RocketMQStreamWriter(parsed)


def _checked(options: Mapping[str, str], schema: StructType) -> WriteOptions:
    parsed = WriteOptions.parse(options)
    check_columns(schema, parsed.topic)
    return parsed


def _check_target(options: WriteOptions, patience: float) -> None:
    """Make sure that a name server answers and that the topic is there, or will be created."""
    core = running_producer(options, patience)
    if options.topic is not None:
        core.io.run(core.queues(with_namespace(options.link.namespace, options.topic)), core.what)


class RocketMQWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, options: WriteOptions, write_id: str) -> None:
        self._options = options
        self._write_id = write_id

    def __repr__(self) -> str:
        return f"<RocketMQWriter {self._write_id} to {self._options.topic or 'the topics of its rows'}>"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one partition."""
        context = _context()
        return send_rows(self._options, batch_task(self._write_id, context.partitionId()), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing to do: every row is acknowledged."""
        _report(f"write {self._write_id}", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back: what was sent stays."""
        _report_abort(f"write {self._write_id}", messages)


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream. Spark makes a new one for each, and another one to commit it."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def __repr__(self) -> str:
        return f"<RocketMQStreamWriter to {self._options.topic or 'the topics of its rows'}>"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one partition of a micro-batch."""
        context = _context()
        task = stream_task(context.getLocalProperty, context.partitionId())
        return send_rows(self._options, task, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: every row is acknowledged."""
        _report(f"batch {batchId}", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be taken back: the rows come again with the same ids when the batch is tried again."""
        _report_abort(f"batch {batchId}", messages)


def send_rows(options: WriteOptions, task: TaskId, batches: Iterable[pa.RecordBatch]) -> Written:
    """Send the rows of one task and wait until all of them are acknowledged."""
    writing: TaskWrite | None = None
    try:
        for batch in batches:
            if batch.num_rows:
                writing = writing or TaskWrite(options, task)
                writing.take(batch)
        return Written(str(task), 0, 0, 0) if writing is None else writing.finish()
    except BaseException:
        # Also when Spark fails to give the next rows: nothing of this task is under way once it has ended.
        if writing is not None:
            writing.give_up()
        raise


class TaskWrite:
    """One task's write, from its first row on; an error ends it."""

    def __init__(self, options: WriteOptions, task: TaskId) -> None:
        core = running_producer(options, options.send_timeout)
        self._task = task
        self._requests = 0
        self._sender = Sender(
            core,
            task,
            max_requests=options.max_in_flight,
            max_bytes=options.max_in_flight_bytes,
            patience=options.send_timeout,
            known_topics=() if options.topic is None else (options.topic,),
        )
        self._queues: dict[str, Sequence[MessageQueue]] = {}
        self._maker = RequestMaker(options, task, core.preparation, self._queues_of, SystemClock().wall_ms)

    def __repr__(self) -> str:
        return f"<TaskWrite {self._task}, {self._maker.taken} rows taken, {self._sender!r}>"

    def take(self, batch: pa.RecordBatch) -> None:
        """Send some rows, or keep them for company."""
        self._submit(self._maker.take(batch))

    def finish(self) -> Written:
        """Send what is left and wait for all of it."""
        self._submit(self._maker.rest())
        self._sender.finish()
        return Written(str(self._task), self._maker.taken, self._requests, self._sender.sent_again)

    def give_up(self) -> None:
        """Let what is under way come to its end: the task has failed."""
        self._sender.give_up()

    def _submit(self, requests: Iterable[Request]) -> None:
        try:
            for request in requests:
                self._requests += 1
                self._sender.submit(request)
        except BadRowError as error:
            self._sender.give_up()
            sent = self._sender.acknowledged
            raise BadRowError(f"{error} (task {self._task}, of which {sent} rows are sent)") from None

    def _queues_of(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic, asked for once: a key has to mean the same queue for the whole task."""
        found = self._queues.get(topic)
        if found is None:
            found = self._queues[topic] = self._sender.queues(topic)
        return found


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written in tasks"
    return context


def _report(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    written = [message for message in messages if isinstance(message, Written)]
    log.info(
        "%s: %d rows sent in %d requests by %d tasks, %d sends repeated",
        what,
        sum(one.rows for one in written),
        sum(one.requests for one in written),
        len(written),
        sum(one.sent_again for one in written),
    )


def _report_abort(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    written = [message for message in messages if isinstance(message, Written)]
    log.warning(
        "%s has failed; %d rows of %d tasks that ended well are sent and stay in their topics",
        what,
        sum(one.rows for one in written),
        len(written),
    )
