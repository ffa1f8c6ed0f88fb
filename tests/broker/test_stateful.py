"""Whatever is asked in whatever order: the embedded broker answers what a simple model of it answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from rocketstream.broker import EmbeddedBroker
from rocketstream.clock import ManualClock
from tests.bare_client import BareClient
from tests.broker.model import STEP, Model
from tests.broker.sequences import NAMES, OPERATIONS, beginnings
from tests.broker.target import Operation, Target, bare_clients


class Brokers(RuleBasedStateMachine):
    """One sequence of operations, put to both."""

    embedded: EmbeddedBroker
    clients: list[BareClient]
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

    @initialize(beginning=beginnings)
    def begin(self, beginning: list[Operation]) -> None:
        for operation in beginning:
            self.put(operation)

    def put(self, operation: Operation) -> None:
        assert operation.ask(self.target) == self.model.answer(operation)


# What is to come more often has several rules.
for _number, _name in enumerate(NAMES):
    setattr(
        Brokers, f"{_name}_{_number}", rule(operation=OPERATIONS[_name])(lambda self, operation: self.put(operation))
    )


@pytest.fixture
def brokers() -> Iterator[type[Brokers]]:
    with EmbeddedBroker(clock=ManualClock()) as embedded, bare_clients(embedded.address) as clients:
        yield type("BrokersOfThisTest", (Brokers,), {"embedded": embedded, "clients": clients})


@pytest.mark.slow(12, "compares many generated histories")
def test_an_embedded_broker_answers_as_the_model_does(brokers: type[Brokers]) -> None:
    run_state_machine_as_test(brokers, settings=settings(max_examples=100, stateful_step_count=80))
