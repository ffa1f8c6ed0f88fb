"""Topics under two names: brokers know them with namespace and project, users without (START-13, RES-05).

The rule of this file: inside the client a topic has the name that brokers know; what a user is shown, or gives, passes
through here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from rocketstream.cluster.names import retry_topic, with_namespace, without_namespace
from rocketstream.cluster.projects import with_project, without_project
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.property_names import PropertyName


class TopicNames:
    """The names of one consumer's topics; `group` and `subscriptions` are as brokers know them."""

    __slots__ = ("_namespace", "_project", "_retry_topic", "_subscriptions", "renames")

    def __init__(self, group: str, namespace: str | None, subscriptions: Container[str]) -> None:
        self._namespace = namespace
        self._project: str | None = None
        self._retry_topic = retry_topic(group)
        self._subscriptions = subscriptions
        self.renames = bool(namespace)
        """Whether there are topics that users know under another name."""

    def __repr__(self) -> str:
        return f"TopicNames(namespace={self._namespace!r}, project={self._project!r})"

    @property
    def project(self) -> str | None:
        """The project that this machine belongs to, if any."""
        return self._project

    def set_project(self, project: str | None) -> None:
        """Note the project that this machine belongs to, if the name servers know one (RES-05)."""
        self._project = project
        self.renames = bool(self._namespace or project)

    def shown_topic(self, topic: str) -> str:
        """A topic as its user knows it."""
        return without_project(self._project, without_namespace(self._namespace, topic))

    def shown_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as its user knows it."""
        return queue._replace(topic=self.shown_topic(queue.topic)) if self.renames else queue

    def real_topic(self, shown: str) -> str:
        """The topic, as brokers know it, that a message was received from."""
        topic = with_namespace(self._namespace, shown)
        projected = with_project(self._project, topic)
        return projected if projected in self._subscriptions else topic

    def restore(self, messages: Iterable[ReceivedMessage]) -> None:
        """Show retried messages under the topic they were sent to (CON-04), and every topic as its user knows it."""
        retry = self._retry_topic
        popped = (f"{retry}_", f"{retry}+")  # the old and the newer name of a topic's retries
        for message in messages:
            topic = message.topic
            if topic == retry:
                topic = message.properties.get(PropertyName.RETRY_TOPIC) or topic
            elif topic.startswith(popped):
                topic = topic[len(retry) + 1 :]
            message.topic = self.shown_topic(topic)
