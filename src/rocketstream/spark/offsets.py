"""Offsets of queues, and how they are written for people: in options, checkpoints and progress reports.

The rule of this file: values in, values out. Spark compares offsets as JSON text, so the same offsets are always the
same text: keys sorted, all of them texts, every offset an int.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from rocketstream.cluster.names import check_topic, with_namespace, without_namespace
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue

Offsets: TypeAlias = dict[MessageQueue, int]
"""For each queue, named as brokers know it, the offset of a message or of the next one to come."""

_EXAMPLE = '{"orders": {"broker-a": {"0": 5, "1": 7}}}'
_MAX_OFFSET = 2**63 - 1
_MAX_QUEUE_ID = 2**31 - 1


def offsets_json(offsets: Mapping[MessageQueue, int], namespace: str | None = None) -> dict[str, Any]:
    """Offsets as topic → broker → queue → offset, sorted, with topics as their users know them."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = tree.setdefault(without_namespace(namespace, queue.topic), {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = int(offsets[queue])
    return {
        topic: {broker: dict(sorted(tree[topic][broker].items())) for broker in sorted(tree[topic])}
        for topic in sorted(tree)
    }


def parse_offsets(value: str | Mapping[str, Any], namespace: str | None = None, what: str = "offsets") -> Offsets:
    """The offsets that `offsets_json` wrote, or that a user did; `what` names the option, for the error."""
    if isinstance(value, str):
        try:
            value = json.loads(value, object_pairs_hook=_no_key_twice)
        except RecursionError:
            raise _wrong(what, value, "it is nested too deep") from None
        except ValueError as error:
            raise _wrong(what, value, f"it is no JSON ({error})") from None
    if not isinstance(value, Mapping):
        raise _wrong(what, value, "it is no object of topics")
    offsets: Offsets = {}
    for topic, brokers in value.items():
        try:
            check_topic(topic)
        except ConfigurationError as error:
            raise _wrong(what, value, str(error)) from None
        if not isinstance(brokers, Mapping):
            raise _wrong(what, value, f"topic {topic!r} has {brokers!r} where its brokers should be")
        for broker, queues in brokers.items():
            if not broker.strip():
                raise _wrong(what, value, f"topic {topic!r} has a broker without a name")
            if not isinstance(queues, Mapping):
                raise _wrong(what, value, f"broker {broker!r} has {queues!r} where its queues should be")
            for queue_id, offset in queues.items():
                queue = MessageQueue(with_namespace(namespace, topic), broker, _queue_id(what, value, queue_id))
                offsets[queue] = _offset(what, value, queue, offset)
    return offsets


def _queue_id(what: str, value: object, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > _MAX_QUEUE_ID or str(int(text)) != text:
        raise _wrong(what, value, f"{text!r} is no queue id")
    return int(text)


def _offset(what: str, value: object, queue: MessageQueue, offset: object) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= _MAX_OFFSET:
        raise _wrong(what, value, f"{offset!r} is no offset of queue {queue.queue_id}")
    return offset


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _wrong(what: str, value: object, why: str) -> ConfigurationError:
    text = str(value)
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    return ConfigurationError(f"{what}={shown!r}: {why}; expected for example {_EXAMPLE}")
