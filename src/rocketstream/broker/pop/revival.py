"""Giving back what was not acknowledged in time: into the retry topic, with one more attempt counted."""

from __future__ import annotations

import logging
from typing import Final

from rocketstream.broker.groups import Groups
from rocketstream.broker.intake import Intake
from rocketstream.broker.names import RETRY_PREFIX
from rocketstream.broker.offsets import Offsets
from rocketstream.broker.pop.lease import Lease
from rocketstream.broker.pop.leases import Leases
from rocketstream.broker.pop.retry_topics import normal_topic, retry_topics
from rocketstream.broker.records import encoded, read_record
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import MessageStore
from rocketstream.broker.topics import READ_WRITE, Topics
from rocketstream.property_names import PropertyName
from rocketstream.wire.properties import decode_properties

log = logging.getLogger("rocketstream.broker")

#: How many seconds later each further attempt is made to give back what could not be stored.
_RENEW_AFTER: Final = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


class Revival:
    """Ends leases whose time is over."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        intake: Intake,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        leases: Leases,
    ) -> None:
        self._settings = settings
        self._store = store
        self._intake = intake
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._leases = leases

    def end(self, lease: Lease) -> None:
        """Give back the open messages of a lease; what its topic or group has lost is given to nobody."""
        topic = normal_topic(lease.topic, lease.group)
        if self._topics.get(topic) is None or self._groups.get(lease.group) is None:
            log.warning("topic %s or group %s is gone: what it popped is not given back", topic, lease.group)
            self._leases.drop(lease)
            return
        for offset in sorted(lease.open):
            try:
                self._give_back(lease, offset)
            except Refusal as refusal:
                log.warning("%s of %s could not be given back: %s", offset, lease.topic, refusal)
                self._renew(lease, offset)
            self._leases.close(lease, (offset,))

    def _give_back(self, lease: Lease, offset: int) -> None:
        record = self._store.record_at(lease.topic, lease.queue_id, offset)
        if record is None:
            return
        stored = read_record(record)
        is_retry = lease.topic.startswith(RETRY_PREFIX)
        name = retry_topics(lease.topic, lease.group, self._settings)[0]
        topic = lease.topic if is_retry else name
        properties = decode_properties(stored.properties)
        if stored.reconsume_times == 0 or PropertyName.FIRST_POP_TIME not in properties:
            properties[PropertyName.FIRST_POP_TIME] = str(lease.pop_time)
        message = stored.renewed(topic, 0, encoded(properties))
        message.reconsume_times += 1
        message.born_host = stored.store_host
        if self._topics.get(topic) is None:
            self._topics.for_send_back(topic, 1, READ_WRITE)
            if self._offsets.get(lease.group, topic, 0) < 0:
                self._offsets.commit(lease.group, topic, 0, 0)
        self._intake.put(message)

    def _renew(self, lease: Lease, offset: int) -> None:
        later = _RENEW_AFTER[min(lease.renewals, len(_RENEW_AFTER) - 1)]
        self._leases.add(
            Lease(
                topic=lease.topic,
                group=lease.group,
                queue_id=lease.queue_id,
                start_offset=offset,
                # Not the same pop: a lease of one message would have the key of the one that it replaces.
                pop_time=lease.pop_time + 1,
                invisible_time=lease.invisible_time + later * 1000,
                revive_queue_id=lease.revive_queue_id,
                offsets=(offset,),
                open={offset},
                renewals=lease.renewals + 1,
            )
        )
