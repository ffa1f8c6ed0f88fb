"""rocketstream: the RocketMQ client for Python and Spark.

The public names, imported when they are first asked for: every pytest run of every user who has the package installed
passes here (the plugin is an entry point), and should not pay for a client that it does not use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketstream.admin.client import AdminClient as AdminClient
    from rocketstream.consumer.expressions import Sql as Sql
    from rocketstream.consumer.expressions import Tag as Tag
    from rocketstream.consumer.lite.face import LitePullConsumer as LitePullConsumer
    from rocketstream.consumer.push_consumer import PushConsumer as PushConsumer
    from rocketstream.consumer.results import ConsumeContext as ConsumeContext
    from rocketstream.consumer.results import ConsumeResult as ConsumeResult
    from rocketstream.consumer.results import OrderlyContext as OrderlyContext
    from rocketstream.consumer.results import OrderlyResult as OrderlyResult
    from rocketstream.consumer.start_from import StartFrom as StartFrom
    from rocketstream.errors import RocketStreamError as RocketStreamError
    from rocketstream.message import Message as Message
    from rocketstream.message import MessageQueue as MessageQueue
    from rocketstream.message import ReceivedMessage as ReceivedMessage
    from rocketstream.otel import OpenTelemetry as OpenTelemetry
    from rocketstream.producer.producer import Producer as Producer
    from rocketstream.producer.receipt import SendReceipt as SendReceipt
    from rocketstream.producer.receipt import SendStatus as SendStatus
    from rocketstream.producer.receipt import TransactionState as TransactionState
    from rocketstream.producer.transaction import TransactionProducer as TransactionProducer
    from rocketstream.remoting.acl import Credentials as Credentials
    from rocketstream.remoting.acl import RotatingCredentials as RotatingCredentials
    from rocketstream.remoting.tls import TlsFiles as TlsFiles
    from rocketstream.wire.codes import MessageModel as MessageModel

__version__ = "0.1.0"

_HOME = {
    "Sql": "rocketstream.consumer.expressions",
    "Tag": "rocketstream.consumer.expressions",
    "StartFrom": "rocketstream.consumer.start_from",
    "MessageModel": "rocketstream.wire.codes",
    "OrderlyContext": "rocketstream.consumer.results",
    "ConsumeContext": "rocketstream.consumer.results",
    "OrderlyResult": "rocketstream.consumer.results",
    "ConsumeResult": "rocketstream.consumer.results",
    "LitePullConsumer": "rocketstream.consumer.lite.face",
    "PushConsumer": "rocketstream.consumer.push_consumer",
    "AdminClient": "rocketstream.admin.client",
    "Credentials": "rocketstream.remoting.acl",
    "Message": "rocketstream.message",
    "MessageQueue": "rocketstream.message",
    "OpenTelemetry": "rocketstream.otel",
    "Producer": "rocketstream.producer.producer",
    "ReceivedMessage": "rocketstream.message",
    "RocketStreamError": "rocketstream.errors",
    "RotatingCredentials": "rocketstream.remoting.acl",
    "SendReceipt": "rocketstream.producer.receipt",
    "SendStatus": "rocketstream.producer.receipt",
    "TransactionProducer": "rocketstream.producer.transaction",
    "TransactionState": "rocketstream.producer.receipt",
    "TlsFiles": "rocketstream.remoting.tls",
}

__all__ = [
    "AdminClient",
    "ConsumeContext",
    "ConsumeResult",
    "Credentials",
    "LitePullConsumer",
    "Message",
    "MessageModel",
    "MessageQueue",
    "OpenTelemetry",
    "OrderlyContext",
    "OrderlyResult",
    "Producer",
    "PushConsumer",
    "ReceivedMessage",
    "RocketStreamError",
    "RotatingCredentials",
    "SendReceipt",
    "SendStatus",
    "Sql",
    "StartFrom",
    "Tag",
    "TlsFiles",
    "TransactionProducer",
    "TransactionState",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
