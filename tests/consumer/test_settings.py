"""Settings of a consumer: Java's defaults, every range at both of its ends, and texts that say what is wrong."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest

from rocketstream.consumer.allocation import AllocateAveragely, AllocateByConsistentHash
from rocketstream.consumer.hooks import ConsumeHook, FilterHook, QueueListener
from rocketstream.consumer.offset_store import OffsetStore
from rocketstream.consumer.settings import ConsumerSettings, check_ready
from rocketstream.consumer.start_from import StartFrom
from rocketstream.errors import ConfigurationError
from rocketstream.wire.codes import MessageModel

LONG = "x" * 256
LEGAL = "has illegal characters: only letters, digits and % | _ - are allowed"


def settings(**changed: Any) -> ConsumerSettings:
    return ConsumerSettings(**{"group": "orders-group", **changed})


def refused(text: str, **changed: Any) -> None:
    """These settings are refused with exactly this text."""
    with pytest.raises(ConfigurationError, match=f"^{re.escape(text)}$"):
        settings(**changed)


class SomeStore(OffsetStore):
    """A store that a user wrote."""


def some_store() -> OffsetStore:
    SomeStore.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    return SomeStore()  # type: ignore[abstract]


# --- defaults -------------------------------------------------------------------------------------------------------


def test_defaults_are_javas():
    assert {field.name: getattr(settings(), field.name) for field in dataclasses.fields(ConsumerSettings)} == {
        "group": "orders-group",
        "model": MessageModel.CLUSTERING,
        "orderly": False,
        "start_from": StartFrom.LAST,
        "consume_thread_min": 20,
        "consume_thread_max": 20,
        "adjust_thread_pool_threshold": 100_000,
        "pull_batch_size": 32,
        "pull_batch_size_in_bytes": 256 * 1024,
        "consume_message_batch_max_size": 1,
        "pull_threshold_for_queue": 1000,
        "pull_threshold_size_for_queue": 100,
        "pull_threshold_for_topic": None,
        "pull_threshold_size_for_topic": None,
        "consume_concurrently_max_span": 2000,
        "pull_interval": 0.0,
        "max_reconsume_times": -1,
        "suspend_current_queue_time": 1.0,
        "consume_timeout": 900.0,
        "post_subscription_when_pull": False,
        "allocate_strategy": AllocateAveragely(),
        "offset_store": None,
        "namespace": None,
        "unit_mode": False,
        "trace": False,
        "otel": False,
        "consume_hooks": (),
        "filter_hooks": (),
        "queue_listener": None,
        "client_rebalance": True,
        "pop_invisible_time": 60.0,
        "pop_batch_nums": 32,
        "pop_threshold_for_queue": 96,
        "rebalance_interval": 20.0,
        "broker_suspend_max_time": 15.0,
        "pull_timeout": 30.0,
        "await_termination_when_shutdown": 0.0,
        "connect_broker_by_user": None,
        "local_offset_dir": None,
    }


# --- numbers --------------------------------------------------------------------------------------------------------

# The setting, the lowest and the highest value; those of START-02 first.
WHOLE = [
    ("consume_thread_min", 1, 1_000),
    ("consume_thread_max", 1, 1_000),
    ("consume_concurrently_max_span", 1, 65_535),
    ("pull_threshold_for_queue", 1, 65_535),
    ("pull_threshold_size_for_queue", 1, 1_024),
    ("consume_message_batch_max_size", 1, 1_024),
    ("pull_batch_size", 1, 1_024),
    ("pull_batch_size_in_bytes", 1, 2**30),
    ("adjust_thread_pool_threshold", 1, 2**31 - 1),
    ("max_reconsume_times", -1, 2**31 - 1),
    ("pop_batch_nums", 1, 32),
    ("pop_threshold_for_queue", 1, 65_535),
]
WHOLE_OR_NONE = [
    ("pull_threshold_for_topic", 1, 6_553_500),
    ("pull_threshold_size_for_topic", 1, 102_400),
    ("connect_broker_by_user", 0, 2**31 - 1),
]
SECONDS = [
    ("pull_interval", 0, 65.535),
    ("suspend_current_queue_time", 0.01, 30),
    ("consume_timeout", 0.001, 604_800),
    ("pop_invisible_time", 5, 300),
    ("rebalance_interval", 0.001, 86_400),
    ("broker_suspend_max_time", 0, 90),
    ("pull_timeout", 0.001, 110),
    ("await_termination_when_shutdown", 0, 86_400),
]
# What has to go along so that the setting at its end is not at odds with another.
ALONG: dict[tuple[str, float], dict[str, Any]] = {
    ("consume_thread_min", 1_000): {"consume_thread_max": 1_000},
    ("consume_thread_max", 1): {"consume_thread_min": 1},
    ("pull_timeout", 0.001): {"broker_suspend_max_time": 0},
    ("broker_suspend_max_time", 90): {"pull_timeout": 110},
}


@pytest.mark.behaviour("START-02")
@pytest.mark.parametrize(("name", "low", "high"), WHOLE + WHOLE_OR_NONE + SECONDS)
def test_both_ends_of_a_range_are_allowed(name: str, low: float, high: float):
    for value in (low, high):
        assert getattr(settings(**{name: value}, **ALONG.get((name, value), {})), name) == value


@pytest.mark.behaviour("START-02")
@pytest.mark.parametrize(("name", "low", "high"), WHOLE)
def test_a_whole_number_outside_of_its_range_is_refused(name: str, low: int, high: int):
    for value in (low - 1, high + 1, -(10**30), 10**30, float(low), 1.5, math.nan, "5", b"5", None, True, False, [5]):
        refused(f"{name}={value!r} must be a whole number from {low} to {high}", **{name: value})


@pytest.mark.behaviour("START-02")
@pytest.mark.parametrize(("name", "low", "high"), WHOLE_OR_NONE)
def test_a_number_that_need_not_be_is_refused_outside_of_its_range(name: str, low: int, high: int):
    assert getattr(settings(**{name: None}), name) is None
    below = -2 if low == 1 else low - 1  # Java's -1 is none for a threshold
    for value in (below, high + 1, float(high), math.inf, "5", True, False, ()):
        refused(f"{name}={value!r} must be a whole number from {low} to {high}, or None", **{name: value})


@pytest.mark.behaviour("START-02")
@pytest.mark.parametrize("name", ["pull_threshold_for_topic", "pull_threshold_size_for_topic"])
def test_a_topic_may_have_no_threshold(name: str):
    assert getattr(settings(**{name: -1}), name) is None
    refused(f"{name}=0 must be a whole number from 1 to {dict(for_topic())[name]}, or None", **{name: 0})
    refused(f"{name}=-1.0 must be a whole number from 1 to {dict(for_topic())[name]}, or None", **{name: -1.0})


def for_topic() -> list[tuple[str, int]]:
    return [(name, high) for name, _, high in WHOLE_OR_NONE]


@pytest.mark.behaviour("START-02")
@pytest.mark.parametrize(("name", "low", "high"), SECONDS)
def test_seconds_outside_of_their_range_are_refused(name: str, low: float, high: float):
    below, above = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
    for value in (below, above, low - 1, high + 1, math.nan, math.inf, -math.inf, "5", None, True, False, 1j):
        refused(f"{name}={value!r} must be a number of seconds from {low} to {high}", **{name: value})


@pytest.mark.behaviour("START-02")
def test_a_pool_does_not_begin_with_more_threads_than_it_may_have():
    assert settings(consume_thread_min=7, consume_thread_max=7).consume_thread_min == 7
    refused("consume_thread_min=8 must not be above consume_thread_max=7", consume_thread_min=8, consume_thread_max=7)
    refused("consume_thread_min=21 must not be above consume_thread_max=20", consume_thread_min=21)


def test_a_pull_waits_longer_than_the_broker_holds_it_back():
    refused(
        "pull_timeout=15 must be above broker_suspend_max_time=15.0: so long a broker holds a pull back",
        pull_timeout=15,
    )
    assert settings(pull_timeout=15.001).pull_timeout == 15.001


def test_every_number_is_checked():
    checked = {name for name, *_ in WHOLE + WHOLE_OR_NONE + SECONDS}
    numbers = {
        field.name
        for field in dataclasses.fields(ConsumerSettings)
        if field.type in ("int", "float", "int | None", "float | None")
    }
    assert numbers == checked


# --- names, model, start --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("START-02")
@pytest.mark.parametrize(
    ("group", "text"),
    [
        (None, "group=None: a group needs a name"),
        ("", "group='': a group needs a name"),
        (" \t", r"group=' \t': a group needs a name"),
        (5, "group=5: a group needs a name"),
        (b"g", "group=b'g': a group needs a name"),
        ("a b", f"group='a b' {LEGAL}"),
        ("a.b", f"group='a.b' {LEGAL}"),
        ("größe", f"group='größe' {LEGAL}"),
        ("g\n", rf"group='g\n' {LEGAL}"),
        (LONG, f"group={LONG!r} has 256 characters: at most 255 are allowed"),
        ("DEFAULT_CONSUMER", "group='DEFAULT_CONSUMER' is reserved: choose a name of your own"),
    ],
)
def test_a_group_that_no_broker_takes_is_refused(group: Any, text: str):
    refused(text, group=group)


@pytest.mark.behaviour("START-02")
@pytest.mark.parametrize("group", ["g", "x" * 255, "%|aZ09_-", "DEFAULT_CONSUMER_2"])
def test_a_legal_group_is_taken(group: str):
    assert settings(group=group).group == group


def test_a_group_is_needed():
    with pytest.raises(TypeError, match="group"):
        ConsumerSettings()  # type: ignore[call-arg]


@pytest.mark.parametrize("namespace", [5, "", "a b", "a%b", b"n"])
def test_a_namespace_that_is_none_is_refused(namespace: Any):
    refused(f"namespace={namespace!r} must be a text of letters, digits and | _ -, or None", namespace=namespace)


def test_a_group_must_not_be_too_long_with_its_namespace():
    assert settings(namespace="n" * 249, group="group").namespace == "n" * 249
    text = "group='group' has 256 characters with its namespace: at most 255 are allowed"
    refused(text, namespace="n" * 250, group="group")


@pytest.mark.behaviour("START-02")
@pytest.mark.parametrize(
    "model", [None, "CLUSTERING", "clustering", 1, True, MessageModel, MessageModel.LITE_SELECTIVE]
)
def test_what_is_no_model_of_a_push_consumer_is_refused(model: Any):
    refused(f"model={model!r} must be MessageModel.CLUSTERING or MessageModel.BROADCASTING", model=model)


@pytest.mark.parametrize("model", [MessageModel.CLUSTERING, MessageModel.BROADCASTING])
def test_both_models_are_taken(model: MessageModel):
    assert settings(model=model).model is model


@pytest.mark.behaviour("START-02")
@pytest.mark.parametrize("start", [None, "LAST", 0, 1_700_000_000_000, StartFrom, StartFrom.at])
def test_what_is_no_start_position_is_refused(start: Any):
    text = f"start_from={start!r} must be StartFrom.LAST, StartFrom.FIRST or StartFrom.at(moment)"
    refused(text, start_from=start)


@pytest.mark.parametrize("start", [StartFrom.LAST, StartFrom.FIRST, StartFrom.at(0)])
def test_every_start_position_is_taken(start: StartFrom):
    assert settings(start_from=start).start_from == start


# --- switches, objects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["orderly", "post_subscription_when_pull", "unit_mode", "client_rebalance"])
def test_switches_are_true_or_false(name: str):
    for value in (True, False):
        assert getattr(settings(**{name: value}), name) is value
    for wrong in (None, 0, 1, "yes", "True"):
        refused(f"{name}={wrong!r} must be True or False", **{name: wrong})


class Nameless:
    def allocate(self, group: str, me: str, queues: Any, members: Any) -> list[Any]:
        return []


class Mine(Nameless):
    name = "MINE"


class Lazy:
    name = "LAZY"
    allocate = None


@pytest.mark.behaviour("START-02")
@pytest.mark.parametrize("strategy", [None, "AVG", AllocateAveragely, Mine, Nameless(), Lazy(), print])
def test_what_cannot_allocate_is_no_strategy(strategy: Any):
    text = (
        f"allocate_strategy={strategy!r} must be an allocation strategy like AllocateAveragely(): with a name, and with"
        " allocate(group, me, queues, members)"
    )
    refused(text, allocate_strategy=strategy)


@pytest.mark.parametrize("strategy", [AllocateByConsistentHash(5), Mine()])
def test_a_strategy_of_ours_or_of_a_user_is_taken(strategy: Any):
    assert settings(allocate_strategy=strategy).allocate_strategy is strategy


def test_an_offset_store_is_one_or_none():
    store = some_store()
    assert settings(offset_store=store).offset_store is store
    for wrong in ("file", {}, SomeStore):
        refused(f"offset_store={wrong!r} must be an OffsetStore, or None", offset_store=wrong)


@pytest.mark.parametrize("trace", [True, False, "my-traces"])
def test_traces_go_to_a_topic(trace: bool | str):
    assert settings(trace=trace).trace == trace


@pytest.mark.parametrize("trace", [None, 1, "", "a b", "x" * 128, b"t"])
def test_traces_do_not_go_where_no_topic_can_be(trace: Any):
    refused(f"trace={trace!r} must be True, False or the name of a topic", trace=trace)


@pytest.mark.parametrize(("name", "kind"), [("consume_hooks", ConsumeHook), ("filter_hooks", FilterHook)])
def test_hooks_are_a_list_of_them(name: str, kind: type):
    hooks = [kind(), kind()]
    taken = settings(**{name: hooks})
    assert getattr(taken, name) == tuple(hooks)
    hooks.clear()
    assert len(getattr(taken, name)) == 2
    for wrong in (None, 5, "hook", kind(), {kind()}):
        refused(f"{name}={wrong!r} must be a list of {kind.__name__}", **{name: wrong})
    for wrong in (print, kind, None):
        refused(f"{name}: {wrong!r} is not a {kind.__name__}", **{name: [kind(), wrong]})


def test_a_queue_listener_is_one_or_a_function():
    for listener in (QueueListener(), print, None, lambda topic, all_queues, mine: None):
        assert settings(queue_listener=listener).queue_listener is listener
    for wrong in (5, "listener", QueueListener, [print]):
        refused(f"queue_listener={wrong!r} must be a QueueListener, a function or None", queue_listener=wrong)


def test_local_offsets_have_a_directory(tmp_path: Path):
    for directory in (tmp_path, str(tmp_path), None):
        assert settings(local_offset_dir=directory).local_offset_dir == directory
    for wrong in (5, "", b"/tmp", True):
        refused(f"local_offset_dir={wrong!r} must be the path of a directory, or None", local_offset_dir=wrong)


# --- what follows from them -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "concurrent", "orderly"), [(-1, 16, 2**31 - 1), (0, 0, 0), (1, 1, 1), (16, 16, 16), (100, 100, 100)]
)
def test_how_often_a_message_comes_again(times: int, concurrent: int, orderly: int):
    these = settings(max_reconsume_times=times)
    assert these.max_reconsume_times_concurrent == concurrent
    assert these.max_reconsume_times_orderly == orderly


@pytest.mark.parametrize(("await_termination", "waits"), [(0, 30.0), (0.0, 30.0), (0.5, 0.5), (60, 60)])
def test_how_long_a_shutdown_waits(await_termination: float, waits: float):
    assert settings(await_termination_when_shutdown=await_termination).shutdown_timeout == waits


def test_settings_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings().group = "other"  # type: ignore[misc]


# --- ready to start -------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("START-02")
def test_a_consumer_needs_subscriptions_and_a_listener():
    class Listener:
        def __call__(self, messages: Any, context: Any) -> None: ...

    for listener in (print, Listener(), Listener().__call__):
        check_ready({"orders": object()}, listener)
    for subscriptions, wrong, text in [
        ({}, print, "subscriptions={}: call subscribe(topic) before the start"),
        ({}, None, "subscriptions={}: call subscribe(topic) before the start"),
        ({"t": 1}, None, "listener=None: give one to the consumer, or call set_listener before the start"),
        ({"t": 1}, "print", "listener='print' must be a function of (messages, context)"),
        ({"t": 1}, Listener, f"listener={Listener!r} must be a function of (messages, context)"),
    ]:
        with pytest.raises(ConfigurationError, match=f"^{re.escape(text)}$"):
            check_ready(subscriptions, wrong)
