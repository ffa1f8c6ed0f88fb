"""A process to be killed: eight tasks append to a store in a directory and print what was acknowledged.

A line is `task number queue offset`, written in one piece after the message is durable. It starts seventy times in the
crash test, so it imports little.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store import open_store
from rocketstream.broker.store.log_store import LogStore
from rocketstream.broker.store.values import NewMessage
from rocketstream.clock import SystemClock

TOPIC = "crash"
QUEUES = 4
#: Small, so that some kills meet the change from one segment to the next.
SEGMENT_SIZE = 16 * 1024


async def send(store: LogStore, round_number: str, task: int) -> None:
    number = 0
    while True:
        name = f"{round_number}-{task}-{number}"
        message = NewMessage(topic=TOPIC, queue_id=task % QUEUES, body=name.encode(), properties=f"KEYS\x01{name}\x02")
        stored = store.append(message)
        durable = store.durable(stored.position)
        if durable is not None:
            await durable
        os.write(1, f"{name} {stored.queue_id} {stored.queue_offset}\n".encode())
        number += 1


async def main(directory: str, round_number: str) -> None:
    settings = BrokerSettings(data=Path(directory), segment_size=SEGMENT_SIZE)
    store = open_store(settings, SystemClock(), "127.0.0.1:10911")
    os.write(1, b"open\n")
    await asyncio.gather(*(send(store, round_number, task) for task in range(8)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
