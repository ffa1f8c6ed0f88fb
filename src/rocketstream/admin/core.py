"""The operator's client on the I/O thread: all concerns together. The plain and the `aio` face are thin over it."""

from __future__ import annotations

from rocketstream.admin.connections import ConnectionOperations
from rocketstream.admin.directly import DirectOperations, DirectResult
from rocketstream.admin.errors import NotFoundError
from rocketstream.admin.group_settings import GroupSettingOperations
from rocketstream.admin.moments import EARLIEST, Moment
from rocketstream.admin.reading import TopicReader
from rocketstream.admin.replaying import ReplayOperations
from rocketstream.admin.request_modes import RequestModeOperations
from rocketstream.admin.tracing import TraceOperations
from rocketstream.wire.bodies.subscription import SUBSCRIBE_ALL


class AdminCore(
    ReplayOperations,
    DirectOperations,
    TraceOperations,
    ConnectionOperations,
    GroupSettingOperations,
    RequestModeOperations,
):
    """Topics, groups, offsets, messages, dead letters, clients and brokers, as coroutines."""

    async def open_reader(
        self, topic: str, start: Moment, *, after_group: str | None, tags: str = SUBSCRIBE_ALL
    ) -> TopicReader:
        """A place in every queue of a topic: at a time, or where a group is."""
        if after_group is None:
            return await self.reader(topic, start, tags=tags)
        return await self.reader_after(after_group, topic, tags=tags)

    async def reader_after(self, group: str, topic: str, *, tags: str = SUBSCRIBE_ALL) -> TopicReader:
        """A place in every queue of a topic where a group is now; the group does not notice."""
        progress = await self.consumer_progress(group, topic=topic, owners=False)
        committed = {(queue.broker_name, queue.queue_id): queue.consumer_offset for queue in progress.queues}
        reader = await self.reader(topic, EARLIEST, tags=tags)
        for one in reader.queues:
            one.offset = max(one.offset, committed.get((one.queue.broker_name, one.queue.queue_id), 0))
        return reader

    async def try_dead_letter(self, group: str, message_id: str, *, client_id: str | None = None) -> DirectResult:
        """Give a dead letter to a member's listener, and tell what it says; it stays where it is."""
        found = await self.dead_letters(group, 1, ids=[message_id])
        if not found.letters:
            raise NotFoundError(f"no dead letter of group {group!r} has the id {message_id!r}")
        return await self.give_to_listener(self.full_group(group), found.letters[-1].message, client_id)
