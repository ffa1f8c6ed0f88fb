"""What start.md, howto-order.md, howto-retries.md and howto-transactions.md show works as it is written there."""

from __future__ import annotations

import queue
from collections.abc import Callable
from importlib import util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rocketstream import Message, Producer
from rocketstream.broker import EmbeddedBroker
from tests.bare_client import eventually
from tests.docs.samples import run_sample, write_samples


@pytest.fixture
def load(tmp_path: Path, embedded_broker: EmbeddedBroker) -> Callable[[str, str], ModuleType]:
    """Import a file of a page; `$NAMESRV_ADDR` and the page's address are the embedded broker's."""

    def load(page: str, name: str) -> ModuleType:
        write_samples(page, tmp_path, embedded_broker.address)
        spec = util.spec_from_file_location(f"sample_{name}", tmp_path / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def run_page_tests(pytester: pytest.Pytester, page: str, count: int) -> None:
    """Run the tests that a page shows, as its reader would."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    names = write_samples(page, pytester.path, "127.0.0.1:1")
    tests = [name for name in names if name.startswith("test_")]
    pytester.runpytest("-p", "no:cacheprovider", *tests).assert_outcomes(passed=count)


def test_start_here(
    load: Callable[[str, str], ModuleType],
    embedded_broker: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("NAMESRV_ADDR", embedded_broker.address)
    billing = load("start.md", "billing")
    sent = run_sample(tmp_path, "send.py", embedded_broker.address)
    assert len(sent) == 10
    printed: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(billing, "print", printed.put, raising=False)
    with billing.consumer:
        lines = {printed.get(timeout=30) for _ in range(10)}
    assert lines == {f"order-{number}: {number} teapots" for number in range(1, 11)}


def test_steps_are_entered_in_their_order(
    load: Callable[[str, str], ModuleType],
    embedded_broker: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    ledger = load("howto-order.md", "ledger")
    run_sample(tmp_path, "steps.py", embedded_broker.address)
    entered: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(ledger, "print", entered.put, raising=False)
    with ledger.consumer:
        lines = [entered.get(timeout=30).split() for _ in range(12)]
    for order in ("order-1", "order-2", "order-3"):
        steps = [step for key, step in lines if key == order]
        assert steps == ["created", "paid", "packed", "shipped"]


def test_what_fails_holds_up_its_queue(load: Callable[[str, str], ModuleType], embedded_broker: EmbeddedBroker):
    careful = load("howto-order.md", "careful")
    tried: list[bytes] = []

    def enter(message: Any) -> None:
        tried.append(message.body)
        if len(tried) < 3:
            raise ConnectionError

    send(embedded_broker, "steps", [b"created", b"paid"])
    with careful.make_consumer(embedded_broker.address, enter):
        eventually(lambda: len(tried) >= 4)
    assert tried == [b"created"] * 3 + [b"paid"]


def test_lines_are_booked_together_or_again(load: Callable[[str, str], ModuleType], embedded_broker: EmbeddedBroker):
    transfers = load("howto-order.md", "transfers")
    booked: list[list[bytes]] = []

    def book(lines: list[bytes]) -> None:
        booked.append(lines)
        if len(booked) == 1:
            raise ConnectionError

    send(embedded_broker, "lines", [b"-5", b"+5"], last=True)
    with transfers.make_consumer(embedded_broker.address, book):
        eventually(lambda: len(booked) >= 2)
    assert booked == [[b"-5", b"+5"], [b"-5", b"+5"]]


def test_a_consumer_whose_database_is_down_pauses(
    load: Callable[[str, str], ModuleType], embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
):
    breaker = load("howto-retries.md", "breaker")
    ends: list[Callable[[], None]] = []
    timer = SimpleNamespace(Timer=lambda pause, end: SimpleNamespace(start=lambda: ends.append(end)))
    monkeypatch.setattr(breaker, "threading", timer)
    tried: list[bytes] = []

    def store(message: Any) -> None:
        tried.append(message.body)
        if len(tried) == 1:
            raise ConnectionError

    send(embedded_broker, "invoices", [b"first"])
    with breaker.make_consumer(embedded_broker.address, store) as consumer:
        eventually(lambda: ends)
        assert consumer.status().paused
        send(embedded_broker, "invoices", [b"second"])
        ends.pop()()
        eventually(lambda: tried[1:] == [b"second"])
        assert not consumer.status().paused


def test_payments_are_tried_again_or_become_dead_letters(pytester: pytest.Pytester):
    run_page_tests(pytester, "howto-retries.md", 1)


def test_an_order_is_told_if_it_is_stored(pytester: pytest.Pytester):
    run_page_tests(pytester, "howto-transactions.md", 2)


@pytest.mark.parametrize("name", ["main.py", "aio_shop.py"])
def test_the_programs_of_the_page_on_transactions(tmp_path: Path, embedded_broker: EmbeddedBroker, name: str):
    write_samples("howto-transactions.md", tmp_path, embedded_broker.address)
    assert run_sample(tmp_path, name, embedded_broker.address)[-1].endswith("TransactionState.COMMIT")


def test_the_test_of_start_here(pytester: pytest.Pytester):
    run_page_tests(pytester, "start.md", 1)


def send(broker: EmbeddedBroker, topic: str, bodies: list[bytes], *, last: bool = False) -> None:
    """Send messages that belong together, the last of them with a tag that says so."""
    with Producer("sender", broker.address) as producer:
        for number, body in enumerate(bodies, 1):
            tags = "last" if last and number == len(bodies) else None
            producer.send(Message(topic, body, tags=tags, sharding_key="one"))
