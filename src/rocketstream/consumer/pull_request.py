"""A pull request: which queue is pulled from where, and the header that says so to a broker.

The rule of this file: values and headers; who sends them, and when, is the puller's. A request lives as long as its
process queue: a queue that is lost and won again gets a new one.
"""

from __future__ import annotations

from typing import Final

from rocketstream.cluster.versions import V5_0_0
from rocketstream.consumer.flow_control import Wait
from rocketstream.consumer.offset_store import UNKNOWN_OFFSET
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.message import MessageQueue
from rocketstream.remoting.replies import PullResult
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import MessageRequestMode, RequestCode
from rocketstream.wire.headers.pull import PullMessageRequestHeader

# PULL-14
COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4
CLASS_FILTER: Final = 8
LITE_PULL: Final = 16


def pull_flags(
    *, commit: bool, suspend: bool = True, subscription: bool, class_filter: bool, lite: bool = False
) -> int:
    """The system flag of a pull (PULL-14); a subscription travels only when it is no class filter."""
    return (
        (COMMIT_OFFSET if commit else 0)
        | (SUSPEND if suspend else 0)
        | (SUBSCRIPTION if subscription and not class_filter else 0)
        | (CLASS_FILTER if class_filter else 0)
        | (LITE_PULL if lite else 0)
    )


def pull_code(flags: int, version: int | None = None) -> RequestCode:
    """PULL_MESSAGE, or LITE_PULL_MESSAGE with its flag (PULL-20), where the broker is of a version that knows it.

    Brokers before 5.0 do not; Java's client of their time sends them PULL_MESSAGE with the flag.
    """
    knows_it = version is None or version >= V5_0_0
    return RequestCode.LITE_PULL_MESSAGE if flags & LITE_PULL and knows_it else RequestCode.PULL_MESSAGE


class PullRequest:
    """What the pull service carries around for one queue."""

    __slots__ = (
        "_fields",
        "_fields_for",
        "broker_max",
        "carries",
        "committed",
        "group",
        "may_carry",
        "mode",
        "next_offset",
        "offset_is_fixed",
        "process_queue",
        "pulling_since",
        "queue",
        "untaken",
        "waiting",
    )

    def __init__(
        self,
        group: str,
        queue: MessageQueue,
        process_queue: ProcessQueue,
        next_offset: int,
        mode: MessageRequestMode = MessageRequestMode.PULL,
    ) -> None:
        self.group = group
        self.queue = queue
        self.process_queue = process_queue
        self.next_offset = next_offset
        self.mode = mode
        self.offset_is_fixed = False
        """Orderly: whether the offset was read again after the queue was locked (PULL-11)."""
        self.broker_max = next_offset
        """One past the newest message of the queue, as the last answer said."""
        self.waiting: Wait | None = None
        """Why it is not being pulled now, for `status()` and the watchdog."""
        self.pulling_since: float | None = None
        """When the pull that is under way was sent."""
        self.committed = UNKNOWN_OFFSET
        """The offset of the group that the broker is known to have: a pull carries only what is news to it."""
        self.carries = 0
        """The offset that a pull carries of which it is not known whether the broker has handled it; 0: there is none.

        Whatever the broker handles last wins, so nothing else may be written over it before it is known (PULL-13).
        """
        self.may_carry = True
        """False while an offset of the queue is written: then it could not be told which of the two comes last."""
        self.untaken: tuple[SubscriptionData, PullResult, int] | None = None
        """The last answer and the offset it was asked for, while its messages are still to be decoded."""
        self._fields: dict[str, str] = {}
        self._fields_for: SubscriptionData | None = None

    def __repr__(self) -> str:
        state = f"waits: {self.waiting.reason.name}" if self.waiting else "pulling" if self.pulling_since else "ready"
        return f"<PullRequest {self.mode.name} {self.queue} next {self.next_offset}, {state}, {self.process_queue!r}>"

    def header(self, settings: ConsumerSettings, group: str, sub: SubscriptionData) -> dict[str, str]:
        """The fields of a pull of this queue that stay the same from pull to pull (PULL-15).

        Made once per subscription: to fill in three fields is cheaper than to make fifteen.
        """
        if self._fields_for is not sub:
            with_expression = settings.post_subscription_when_pull and not sub.class_filter_mode
            self._fields = PullMessageRequestHeader(
                consumer_group=group,
                topic=self.queue.topic,
                queue_id=self.queue.queue_id,
                queue_offset=0,
                max_msg_nums=settings.pull_batch_size,
                max_msg_bytes=settings.pull_batch_size_in_bytes,
                sys_flag=0,
                commit_offset=0,
                suspend_timeout_millis=round(settings.broker_suspend_max_time * 1000),
                subscription=sub.sub_string if with_expression else None,
                sub_version=sub.sub_version,
                expression_type=sub.expression_type,
                bname=self.queue.broker_name,
            ).to_fields()
            self._fields_for = sub
        return self._fields.copy()
