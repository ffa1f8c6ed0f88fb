"""What is left of an answer once the client has looked at it: tags, then the user's filter hooks (RES-03, RES-04).

A broker compares hash codes of tags only, so messages of another tag with the same code arrive; the client compares the
tags themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rocketstream.consumer.hooks import FilterContext, FilterHook
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.bodies.subscription import SubscriptionData

log = logging.getLogger("rocketstream.consumer")


def tag_filtered(messages: list[ReceivedMessage], sub: SubscriptionData) -> list[ReceivedMessage]:
    """The messages whose tag was subscribed to; all, for a subscription without tags or by a class (RES-03)."""
    tags = sub.tags_set
    if not tags or sub.class_filter_mode:
        return messages
    return [message for message in messages if message.tags in tags]


def run_filter_hooks(
    hooks: Sequence[FilterHook], group: str, queue: MessageQueue, messages: list[ReceivedMessage], unit_mode: bool
) -> list[ReceivedMessage]:
    """What the user's hooks leave; one that raises is logged and the others run (RES-04). Not on the I/O thread."""
    context = FilterContext(group, queue, list(messages), unit_mode)
    for hook in hooks:
        try:
            hook.filter(context)
        except Exception:
            log.exception("filter hook %r raised; what it removed stays removed, the others run", hook)
    kept = set(map(id, context.messages))
    # In the order of the answer, and nothing that was not in it, whatever a hook did to the list.
    return [message for message in messages if id(message) in kept]
