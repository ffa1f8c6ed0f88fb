"""A member of a group in a process of its own, so that it can be killed: `python -m tests.faults.member '{...}'`.

It writes down what its listener gets, with plain writes that outlive a SIGKILL: a line "number" for each message, or,
in order, "B time queue key number" when a message's listener begins and "E time queue key number" when it ends. It says
"up" on standard output once it is started, and leaves in order on SIGTERM. The ids of the queues that it has now are in
a file beside.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from rocketstream import ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult, PushConsumer, StartFrom
from rocketstream.message import MessageQueue, ReceivedMessage


class Notebook:
    """The file that a member writes to; a write of a few lines is one system call, so a line is whole or not there."""

    def __init__(self, path: str, topic: str) -> None:
        self._path = Path(path)
        self._topic = topic
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def queues(self, topic: str, all_queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> None:
        if topic == self._topic:
            new = self._path.with_suffix(".new")
            new.write_text(" ".join(str(queue.queue_id) for queue in sorted(mine)))
            new.replace(self._path.with_suffix(".queues"))

    def concurrently(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        os.write(self._file, b"".join(message.body.split(b" ", 1)[0] + b"\n" for message in messages))
        return ConsumeResult.SUCCESS

    def in_order(self, messages: Sequence[ReceivedMessage], context: OrderlyContext) -> OrderlyResult:
        for message in messages:
            line = b"%d %d %s\n" % (time.time_ns(), message.queue_id, message.body)
            os.write(self._file, b"B " + line)
            line = b"%d %d %s\n" % (time.time_ns(), message.queue_id, message.body)
            os.write(self._file, b"E " + line)
        return OrderlyResult.SUCCESS


def main() -> None:
    told = json.loads(sys.argv[1])
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    notebook = Notebook(told["notebook"], told["topic"])
    consumer = PushConsumer(
        told["group"],
        told["name_servers"],
        listener=notebook.in_order if told["orderly"] else notebook.concurrently,
        orderly=told["orderly"],
        start_from=StartFrom.FIRST,
        consume_thread_min=4,
        consume_thread_max=4,
        consume_message_batch_max_size=told["batch"],
        queue_listener=notebook.queues,
    )
    consumer.subscribe(told["topic"])
    with consumer:
        print("up", flush=True)
        while not stop.wait(3600.0):
            pass


if __name__ == "__main__":
    main()
