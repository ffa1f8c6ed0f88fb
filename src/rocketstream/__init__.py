"""rocketstream: the RocketMQ client for Python and Spark."""

from __future__ import annotations

from rocketstream.errors import RocketStreamError
from rocketstream.message import Message, MessageQueue, ReceivedMessage
from rocketstream.remoting.acl import Credentials

__all__ = ["Credentials", "Message", "MessageQueue", "ReceivedMessage", "RocketStreamError", "__version__"]

__version__ = "0.1.0"
