"""The client instance's own producer, through which consumers send what no broker took back (CON-10, START-12).

It is a producer like any other, of the group CLIENT_INNER_PRODUCER, but for its life: it lives as long as the instance.
"""

from __future__ import annotations

from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.consumer.send_back import RetryCopy
from rocketstream.message import Message
from rocketstream.producer.core import ProducerCore
from rocketstream.producer.receipt import SendReceipt
from rocketstream.producer.settings import ProducerSettings
from rocketstream.property_names import PropertyName
from rocketstream.wire.properties import encode_properties

INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"


class InnerProducer:
    """A service of the client instance."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self.core = ProducerCore(instance.settings, ProducerSettings(group=INNER_PRODUCER_GROUP))

    async def start(self) -> None:
        """Join the instance."""
        self.core.attach(self._instance)
        self._instance.register_producer(self.core)

    async def stop(self) -> None:
        """Leave it."""
        await self._instance.unregister_producer(self.core.group)

    async def send(self, message: Message, timeout: float | None = None) -> SendReceipt:
        """Send a message of our own making."""
        return await self.core.send(self.core.preparation.single(message), timeout=timeout)

    async def send_retry(self, copy: RetryCopy) -> SendReceipt:
        """Send a message to a group's retry topic; how often it failed goes into the header, as brokers want it."""
        properties = dict(copy.properties)
        times = properties.pop(PropertyName.RECONSUME_TIME)
        maximum = properties.pop(PropertyName.MAX_RECONSUME_TIMES)
        out = self.core.preparation.single(Message(copy.topic, copy.body, flag=copy.flag))
        properties.setdefault(PropertyName.UNIQUE_KEY, out.message_id)
        properties[PropertyName.WAIT_STORE_OK] = "true"
        out.fields["i"] = encode_properties(properties)
        out.fields["j"] = times
        out.fields["l"] = maximum
        return await self.core.send(out)
