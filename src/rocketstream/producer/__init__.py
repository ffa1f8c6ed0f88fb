"""Sending: single, batch, one way, ordered, delayed, in transactions, and requests that are replied to."""

from rocketstream.producer.hooks import SendContext, SendHook
from rocketstream.producer.producer import Producer
from rocketstream.producer.receipt import SendReceipt, SendStatus, TransactionState
from rocketstream.producer.transaction import TransactionProducer

__all__ = [
    "Producer",
    "SendContext",
    "SendHook",
    "SendReceipt",
    "SendStatus",
    "TransactionProducer",
    "TransactionState",
]
