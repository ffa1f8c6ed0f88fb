"""Pull responses as Arrow columns: ours against the record decoder, alternating, in one run.

    python benchmarks/columns.py [--rows 8192] [--per-response 1024] [--body 200] [--seconds 1.0] [--rounds 5]

What is compared: messages per second on one core, from the bytes of some responses to all columns of Spark's source.
The record decoder's way is the plain one: decode the responses, ask every message for every column, and give Arrow the
lists. "Decoder alone" asks for the same and makes no Arrow of it; the target (4 times) is against that one. Both ways
are run with all columns, and without those that come from properties (message id, tags, keys, properties).
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.rounds import Round, cpu_seconds
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.columns import COLUMNS, Pulled, arrow_schema, read_columns
from rocketstream.wire.record import encode_record
from rocketstream.wire.record_decoder import decode_records

QUEUE = MessageQueue("orders", "broker-a", 0)
WITHOUT = tuple(name for name in COLUMNS if name not in ("message_id", "tags", "keys", "properties"))
TARGET = 4.0


def make_responses(rows: int, per_response: int, body_size: int) -> list[Pulled]:
    """Messages like those of a Java producer: six properties, bodies of about the size."""
    chance = random.Random(7)
    records = [
        encode_record(
            topic=QUEUE.topic,
            body=chance.randbytes(chance.randint(body_size * 9 // 10, body_size * 11 // 10)),
            properties=f"KEYS\x01order-{number}\x02UNIQ_KEY\x017F00000100002A139A5506A1{number:08X}\x02CLUSTER\x01Default"
            f"Cluster\x02WAIT\x01true\x02TAGS\x01{chance.choice(('paid', 'shipped'))}\x02region\x01eu-{number % 9}\x02",
            queue_offset=number,
            commit_log_offset=number * 400,
            born_timestamp=1_700_000_000_000 + number,
            store_timestamp=1_700_000_000_001 + number,
        )
        for number in range(rows)
    ]
    starts = range(0, rows, per_response)
    return [Pulled(QUEUE, b"".join(records[start : start + per_response])) for start in starts]


def ask(message: ReceivedMessage, names: Sequence[str]) -> list[object]:
    return [getattr(message, name) for name in names]


def decoder_alone(pulled: Sequence[Pulled], names: Sequence[str]) -> None:
    for queue, body, _, _ in pulled:
        for message in decode_records(body, queue=queue).messages:
            ask(message, names)


def decoder_to_arrow(pulled: Sequence[Pulled], names: Sequence[str]) -> None:
    rows = []
    for queue, body, _, _ in pulled:
        rows += [ask(message, names) for message in decode_records(body, queue=queue).messages]
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    if "properties" in columns:
        columns["properties"] = tuple([list(each.items()) for each in columns["properties"]])
    for name in ("born_timestamp", "store_timestamp"):
        columns[name] = tuple([millis * 1000 for millis in columns[name]])
    arrays = [pa.array(columns[field.name], field.type) for field in arrow_schema(names)]
    pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(names))


def columns(pulled: Sequence[Pulled], names: Sequence[str]) -> None:
    read_columns(pulled, names)


def measure(who: str, work: Callable[[], None], rows: int, seconds: float) -> Round:
    """Do it again and again for about that long."""
    messages, start, cpu = 0, time.perf_counter(), cpu_seconds()
    while (elapsed := time.perf_counter() - start) < seconds:
        work()
        messages += rows
    return Round(who, messages, elapsed, cpu_seconds() - cpu)


WAYS = {"columns": columns, "decoder alone": decoder_alone, "decoder to Arrow": decoder_to_arrow}


def compare(pulled: Sequence[Pulled], names: Sequence[str], arguments: argparse.Namespace) -> float:
    """Print the middle of some rounds of each way; how many times the decoder's rate ours is, by CPU time."""
    # Other processes share the machine: the CPU time of a message says more than the clock.
    rounds: dict[str, list[Round]] = {who: [] for who in WAYS}
    for _ in range(arguments.rounds):
        for who, work in WAYS.items():
            rounds[who].append(
                measure(who, lambda work=work: work(pulled, names), arguments.rows, arguments.seconds)  # type: ignore[misc]
            )
    middle = {who: statistics.median(each.cpu_micros for each in some) for who, some in rounds.items()}
    for who, micros in middle.items():
        rate = statistics.median(each.rate for each in rounds[who])
        print(
            f"  {who:>16}: {rate:>11,.0f} messages/s by the clock {1e6 / micros:>11,.0f} by CPU time"
            f"  ours is {micros / middle['columns']:5.2f} ×"
        )
    return middle["decoder alone"] / middle["columns"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--per-response", type=int, default=1024)
    parser.add_argument("--body", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    pulled = make_responses(arguments.rows, arguments.per_response, arguments.body)
    print(f"{arguments.rows} messages of {arguments.body} B, {arguments.per_response} a response")
    print("all columns:")
    ratio = compare(pulled, COLUMNS, arguments)
    print("without what comes from properties:")
    compare(pulled, WITHOUT, arguments)
    print(f"all columns: {ratio:.2f} × the record decoder, target {TARGET:g}: {'met' if ratio >= TARGET else 'MISSED'}")
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
