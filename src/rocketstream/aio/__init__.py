"""The same clients for programs with an event loop of their own.

No logic lives here: each method awaits what the plain client waits for. The work is done on the I/O thread, so a busy
event loop delays only its own results, never heartbeats or time-outs. Cancelling a call gives its place back; whether
the broker had carried it out by then is not known.
"""

from rocketstream.aio.admin import AdminClient
from rocketstream.aio.consumer import PushConsumer
from rocketstream.aio.lite_pull import LitePullConsumer
from rocketstream.aio.producer import Producer, TransactionProducer

__all__ = ["AdminClient", "LitePullConsumer", "Producer", "PushConsumer", "TransactionProducer"]
