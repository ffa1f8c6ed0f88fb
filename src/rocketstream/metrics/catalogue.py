"""Everything that is measured, by name: what is not here is not exported, and `docs/howto-metrics.md` has it all.

The rule of this file: names are `rocketstream_<what>_<unit>`, counters end in `_total`, times are seconds, sizes bytes.
Labels have few values: topics, groups, request codes and words of ours; never a message, a client id or an address.
Groups and topics are the names that brokers know, so that they meet those of RocketMQ's own exporters.
"""

from __future__ import annotations

from typing import Final

from rocketstream.metrics.values import BATCHES, SECONDS, Kind, Metric

METRICS: Final[dict[str, Metric]] = {}
"""All of them, by name."""

_GROUP = ("group",)
_TOPIC = ("group", "topic")


def _metric(kind: Kind, name: str, labels: tuple[str, ...], text: str, bounds: tuple[float, ...] = ()) -> Metric:
    metric = METRICS[name] = Metric(name, kind, labels, text, bounds)
    return metric


def _counter(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return _metric(Kind.COUNTER, name, labels, text)


def _gauge(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return _metric(Kind.GAUGE, name, labels, text)


# --- consumers ------------------------------------------------------------------------------------------------------

CONSUMER_PULLED = _counter(
    "rocketstream_consumer_pulled_messages_total",
    _TOPIC,
    "Messages that pulls (or pops) brought and filters let through.",
)
CONSUMER_PULLED_BYTES = _counter(
    "rocketstream_consumer_pulled_bytes_total", _TOPIC, "Bytes of the answers that had messages, as brokers sent them."
)
CONSUMER_MESSAGES = _counter(
    "rocketstream_consumer_messages_total",
    (*_TOPIC, "result"),
    "Messages that the listener has answered for; result: ok or failed.",
)
CONSUMER_LISTENER_SECONDS = _metric(
    Kind.HISTOGRAM, "rocketstream_consumer_listener_seconds", _TOPIC, "How long calls of the listener take.", SECONDS
)
CONSUMER_PULL_SECONDS = _metric(
    Kind.HISTOGRAM,
    "rocketstream_consumer_pull_seconds",
    _TOPIC,
    "How long pulls (or pops) take that bring messages, the wait at the broker included.",
    SECONDS,
)
CONSUMER_SENT_BACK = _counter(
    "rocketstream_consumer_sent_back_total",
    (*_TOPIC, "result"),
    "Failed messages that were given back to brokers, to come again or as dead letters; result: ok or failed.",
)
CONSUMER_DEAD_LETTERS = _counter(
    "rocketstream_consumer_dead_letters_total",
    _TOPIC,
    "Messages that went to the dead-letter queue: they failed too often, or the listener said so.",
)
CONSUMER_WAITS = _counter(
    "rocketstream_consumer_waits_total",
    (*_TOPIC, "reason"),
    "How often a queue was not pulled for a moment; reason: count, size, span, paused, pull_failed, ...",
)
CONSUMER_STALLS = _counter(
    "rocketstream_consumer_stalls_total",
    _TOPIC,
    "How often a queue was found to stand still for 30 s though messages wait in it.",
)
CONSUMER_STALLED = _gauge(
    "rocketstream_consumer_stalled_queues", _TOPIC, "Queues that stand still for 30 s now though messages wait in them."
)
CONSUMER_REBALANCES = _counter(
    "rocketstream_consumer_rebalances_total",
    ("group", "result"),
    "Passes of rebalance; result: balanced, or again where something is to be done again soon.",
)
CONSUMER_QUEUES_WON = _counter("rocketstream_consumer_queues_won_total", _TOPIC, "Queues that were taken.")
CONSUMER_QUEUES_LOST = _counter("rocketstream_consumer_queues_lost_total", _TOPIC, "Queues that were given away.")
CONSUMER_QUEUES = _gauge("rocketstream_consumer_assigned_queues", _TOPIC, "Queues that this consumer has now.")
CONSUMER_CACHED = _gauge(
    "rocketstream_consumer_cached_messages", _TOPIC, "Messages that were pulled and are not finished."
)
CONSUMER_CACHED_BYTES = _gauge("rocketstream_consumer_cached_bytes", _TOPIC, "The size of their bodies.")
CONSUMER_LAG = _gauge(
    "rocketstream_consumer_lag_messages",
    _TOPIC,
    "Messages of this consumer's queues that are not finished, as far as the brokers' last answers know.",
)
CONSUMER_OLDEST = _gauge(
    "rocketstream_consumer_oldest_message_age_seconds",
    _TOPIC,
    "How long ago the oldest message was stored that was pulled and is not finished; 0 if there is none.",
)
CONSUMER_THREADS = _gauge("rocketstream_consumer_threads", _GROUP, "How many calls of the listener may run at a time.")
CONSUMER_BACKLOG = _gauge(
    "rocketstream_consumer_waiting_calls", _GROUP, "Calls of the listener that wait for a thread."
)
CONSUMER_PAUSED = _gauge("rocketstream_consumer_paused", _GROUP, "1 while the consumer is suspended, else 0.")

POP_ACKS = _counter(
    "rocketstream_pop_acks_total", ("group", "result"), "Popped messages that were acknowledged; result: ok or failed."
)
POP_NACKS = _counter(
    "rocketstream_pop_nacks_total",
    ("group", "result"),
    "Popped messages whose invisible time was changed, so that they come again; result: ok or failed.",
)
POP_EXPIRED = _counter(
    "rocketstream_pop_expired_total", _TOPIC, "Popped messages whose lease was over before they were done."
)

# --- producers ------------------------------------------------------------------------------------------------------

PRODUCER_MESSAGES = _counter(
    "rocketstream_producer_messages_total",
    (*_TOPIC, "result"),
    "Messages that were sent; result: ok, failed, or one_way where nobody knows.",
)
PRODUCER_BYTES = _counter(
    "rocketstream_producer_bytes_total", _TOPIC, "Bytes of the bodies of requests that were stored, compressed ones so."
)
PRODUCER_SEND_SECONDS = _metric(
    Kind.HISTOGRAM,
    "rocketstream_producer_send_seconds",
    _TOPIC,
    "From the call to the broker's receipt, all attempts included, of sends that went well.",
    SECONDS,
)
PRODUCER_BATCH = _metric(
    Kind.HISTOGRAM,
    "rocketstream_producer_batch_messages",
    _TOPIC,
    "How many messages the requests had that were stored.",
    BATCHES,
)
PRODUCER_RETRIES = _counter(
    "rocketstream_producer_retries_total", _TOPIC, "Attempts to send after the first one of a request."
)
PRODUCER_TRANSACTIONS = _counter(
    "rocketstream_producer_transactions_total",
    ("group", "state", "by"),
    "Verdicts on transactions; state: COMMIT, ROLLBACK or UNKNOWN; by: execute or check.",
)

# --- `rocketstream run --processes` ---------------------------------------------------------------------------------

RUN_PROCESSES = _gauge("rocketstream_run_processes", (), "Processes whose consumer is up.")
RUN_RESTARTS = _counter("rocketstream_run_restarts_total", (), "How often a process that had ended was started again.")

# --- what all clients share -----------------------------------------------------------------------------------------

TRACE_DROPPED = _counter(
    "rocketstream_trace_dropped_total",
    ("kind", *_GROUP),
    "Records of the trace that were dropped; kind: producer or consumer.",
)
ROUTE_FETCHES = _counter(
    "rocketstream_client_route_fetches_total",
    ("result",),
    "Routes that were asked for at name servers; result: ok, unknown (no such topic) or failed.",
)
HEARTBEATS = _counter(
    "rocketstream_client_heartbeats_total", ("result",), "Heartbeats to single brokers; result: ok or failed."
)
REQUESTS = _counter(
    "rocketstream_remoting_requests_total",
    ("code", "result"),
    "Requests that have ended; result: answered (whatever the answer), timeout, lost (the connection ended),"
    " abandoned (nobody waited any more) or one_way.",
)
PENDING = _gauge("rocketstream_remoting_pending_requests", (), "Requests that wait for an answer.")
CONNECTIONS = _gauge("rocketstream_remoting_connections", (), "Connections that are open.")
CONNECTS = _counter("rocketstream_remoting_connects_total", ("result",), "Attempts to connect; result: ok or failed.")
BYTES = _counter("rocketstream_remoting_bytes_total", ("direction",), "Bytes of all connections; direction: in or out.")
