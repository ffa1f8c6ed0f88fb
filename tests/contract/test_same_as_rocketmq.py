"""The same sequences of operations, put to RocketMQ 5.5.0, to the embedded broker and to the model: the same answers.

RocketMQ is right: where an answer differs, the embedded broker (or the model) has to change.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketstream.broker import EmbeddedBroker
from rocketstream.clock import ManualClock
from rocketstream.testing import RocketMQCluster
from tests.broker.group_operations import Leave
from tests.broker.model import STEP, Model
from tests.broker.sequences import beginnings, operations
from tests.broker.target import Operation, Target, bare_clients

SEQUENCES = 60
STEPS = 40

#: Two brokers under the same names for a new sequence: the real one, then the embedded one.
Pairs = Callable[[], tuple[Target, Target]]


@pytest.fixture
def pairs(rocketmq_cluster: RocketMQCluster) -> Iterator[Pairs]:
    address = rocketmq_cluster.brokers[0].address
    run, count = uuid.uuid4().hex[:6], itertools.count()
    with (
        EmbeddedBroker(clock=ManualClock()) as embedded,
        bare_clients(rocketmq_cluster.name_server_address) as of_real,
        bare_clients(embedded.address) as of_embedded,
    ):

        def pair() -> tuple[Target, Target]:
            sequence = f"{run}{next(count)}"
            return (
                Target(address, of_real, sequence, lags=True),
                Target(
                    embedded.broker_address,
                    of_embedded,
                    sequence,
                    pass_time=lambda: embedded.advance(STEP / 1000),
                ),
            )

        yield pair


@pytest.mark.rocketmq_real
@pytest.mark.rocketmq_versions("5.5.0")
@pytest.mark.slow(15, "asks a thousand questions of two brokers")
def test_the_embedded_broker_answers_as_rocketmq_does(pairs: Pairs) -> None:
    # Always the same sequences: on a real broker a failure has to be one that can be seen again.
    @settings(
        max_examples=SEQUENCES,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(beginnings, st.lists(operations, min_size=STEPS, max_size=STEPS))
    def compare(beginning: list[Operation], sequence: list[Operation]) -> None:
        real, embedded = pairs()
        model = Model()
        try:
            for operation in beginning + sequence:
                expected = operation.ask(real)
                assert (operation, operation.ask(embedded)) == (operation, expected)
                assert (operation, model.answer(operation)) == (operation, expected)
        finally:
            # A broker cuts the connection of a client of which any group has heard nothing for two minutes.
            for client, group in itertools.product((0, 1), ("g0", "g1")):
                Leave(client, group).ask(real)

    compare()
