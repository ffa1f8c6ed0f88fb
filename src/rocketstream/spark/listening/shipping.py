"""What a user gives that has to get to executors: checked and pickled on the caller's thread, before anything starts.

The rule of this file: what cannot be sent, and what would mean nothing there, is refused with the name of the setting
and what to do instead.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.allocation import AllocateAveragely
from rocketstream.consumer.listener import Listener
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import RotatingCredentials
from rocketstream.spark.listening.core import Rounds
from rocketstream.spark.listening.values import Work
from rocketstream.wire.codes import MessageModel

_MEANINGLESS: Final = {
    "offset_store": "offsets are kept at the brokers; checkpoint=DIR keeps them in a directory of the driver's too",
    "local_offset_dir": "it is broadcasting's, which Spark cannot do",
    "client_rebalance": "a Spark consumer has all queues of its group",
    "pop_invisible_time": "a Spark consumer pulls and does not pop",
    "pop_batch_nums": "a Spark consumer pulls and does not pop",
    "pop_threshold_for_queue": "a Spark consumer pulls and does not pop",
    "otel": "spans are made in the process that listens, and executors have no tracer of yours",
    "adjust_thread_pool_threshold": "a task's threads are consume_thread_min and stay so many",
}


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings of the push consumer that make no sense with Spark."""
    if settings.get("model") is MessageModel.BROADCASTING:
        raise ConfigurationError(
            "model=MessageModel.BROADCASTING is not for a Spark consumer: its executors are no members of the group,"
            " so that no message can go to each of them; use a PushConsumer"
        )
    for name in sorted(_MEANINGLESS.keys() & settings.keys()):
        raise ConfigurationError(f"{name}={settings[name]!r} is not for a Spark consumer: {_MEANINGLESS[name]}")
    if isinstance(settings.get("credentials"), RotatingCredentials):
        raise ConfigurationError(
            "credentials=RotatingCredentials is not for a Spark consumer: what is replaced on the driver does not reach"
            " executors that run; use Credentials, and start it again with new ones"
        )
    if isinstance(settings.get("tls"), ssl.SSLContext):
        raise ConfigurationError(
            "tls=SSLContext is not for a Spark consumer, because it cannot be sent to executors: use tls=True, or"
            " TlsFiles of paths that the executors have"
        )


def check_rounds(rounds: Rounds) -> None:
    """Refuse numbers that mean nothing."""
    seconds: object = rounds.round_time
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.1 <= seconds <= 600:
        raise ConfigurationError(f"round_time={seconds!r} must be a number of seconds from 0.1 to 600")
    tasks: object = rounds.tasks
    if tasks is not None and (isinstance(tasks, bool) or not isinstance(tasks, int) or not 1 <= tasks <= 1_000):
        raise ConfigurationError(f"tasks={tasks!r} must be a whole number from 1 to 1000, or None")
    beside: object = rounds.beside_members
    if not isinstance(beside, bool):
        raise ConfigurationError(f"beside_members={beside!r} must be True or False")


def ship(client: ClientSettings, consumer: ConsumerSettings, listener: Listener) -> bytes:
    """Everything that tasks need, pickled; what cannot be is named."""
    from pyspark import cloudpickle

    pickled: Callable[[object], bytes] = cloudpickle.dumps
    hooks = {
        "listener": listener.call,
        "consume_hooks": consumer.consume_hooks,
        "filter_hooks": consumer.filter_hooks,
        "rpc_hooks": client.rpc_hooks,
    }
    for name, value in hooks.items():
        try:
            pickled(value)
        except Exception as error:  # whatever a user's object raises when it is pickled
            raise ConfigurationError(
                f"{name}={value!r} cannot be sent to executors, {_reason(error)}. Open files, locks, connections and"
                " Spark itself where they are used, not where the function is made"
            ) from error
    # What only the driver uses stays there.
    consumer = replace(consumer, allocate_strategy=AllocateAveragely(), queue_listener=None)
    return pickled(Work(client, consumer, listener))


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"
