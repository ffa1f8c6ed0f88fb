"""Whatever is asked in whatever order: the embedded broker answers what a simple model of it answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from rocketstream.broker import EmbeddedBroker
from rocketstream.clock import ManualClock
from rocketstream.remoting.io_thread import IoThread
from tests.bare_client import BareClient
from tests.broker.model import STEP, Model
from tests.broker.sequences import OPERATIONS
from tests.broker.target import Operation, Target


class Brokers(RuleBasedStateMachine):
    """One sequence of operations, put to both."""

    embedded: EmbeddedBroker
    clients: tuple[BareClient, BareClient]
    sequences = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.target = Target(
            self.embedded.broker_address,
            self.clients,
            f"s{next(self.sequences)}",
            pass_time=lambda: self.embedded.advance(STEP / 1000),
        )

    def put(self, operation: Operation) -> None:
        assert operation.ask(self.target) == self.model.answer(operation)


for _name, _strategy in OPERATIONS.items():
    setattr(Brokers, _name, rule(operation=_strategy)(lambda self, operation: self.put(operation)))


@pytest.fixture
def brokers() -> Iterator[type[Brokers]]:
    with EmbeddedBroker(clock=ManualClock()) as embedded:
        io = IoThread.shared()
        clients = BareClient(embedded.address, io), BareClient(embedded.address, io)
        try:
            yield type("BrokersOfThisTest", (Brokers,), {"embedded": embedded, "clients": clients})
        finally:
            for client in clients:
                client.close()


def test_an_embedded_broker_answers_as_the_model_does(brokers: type[Brokers]) -> None:
    run_state_machine_as_test(brokers, settings=settings(max_examples=60, stateful_step_count=60))
