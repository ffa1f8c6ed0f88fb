"""The services of a broker, built in the order in which they need one another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rocketstream.broker.administration import Administration
from rocketstream.broker.assignments import Assignments
from rocketstream.broker.client_requests import ClientRequests
from rocketstream.broker.delays import Delays
from rocketstream.broker.dispatch import Dispatcher, Service
from rocketstream.broker.groups import Groups
from rocketstream.broker.intake import Intake
from rocketstream.broker.locks import Locks
from rocketstream.broker.long_polls import LongPolls
from rocketstream.broker.members import Members
from rocketstream.broker.offsets import Offsets
from rocketstream.broker.pop import Pop
from rocketstream.broker.pulling import Pulling
from rocketstream.broker.queries import Queries
from rocketstream.broker.recall import Recall
from rocketstream.broker.replies import Replies
from rocketstream.broker.send_back import SendBack
from rocketstream.broker.sending import Sending
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.statistics import Statistics
from rocketstream.broker.store.values import MessageStore
from rocketstream.broker.timers import Timers
from rocketstream.broker.topic_requests import TopicRequests
from rocketstream.broker.topics import Topics
from rocketstream.broker.transactions import Transactions
from rocketstream.clock import Clock
from rocketstream.wire.bodies.route import TopicRouteData


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all services stand on."""

    settings: BrokerSettings
    clock: Clock
    state: StateFiles
    store: MessageStore
    dispatcher: Dispatcher
    topics: Topics
    address: str
    """The broker's own host:port, as clients know it."""
    route: Callable[[str], Awaitable[TopicRouteData | None]]
    """A topic's queues on all brokers."""


class _Builder:
    """Builds what others need first, and then those who need it."""

    def __init__(self, ground: Ground) -> None:
        self.settings, self.clock, self.state, self.store = ground.settings, ground.clock, ground.state, ground.store
        self.topics, self.dispatcher, self.address = ground.topics, ground.dispatcher, ground.address
        self.route = ground.route
        settings, clock, state, store, topics = self.settings, self.clock, self.state, self.store, self.topics
        self.groups = groups = Groups(settings=settings, state=state, clock=clock)
        self.members = members = Members(
            settings=settings, clock=clock, dispatcher=self.dispatcher, topics=topics, groups=groups
        )
        self.offsets = Offsets(
            settings=settings, clock=clock, state=state, store=store, topics=topics, groups=groups, members=members
        )
        self.locks = Locks(settings=settings, clock=clock)
        self.intake = Intake(settings=settings, clock=clock, store=store)
        self.polls = LongPolls(clock=clock, store=store, dispatcher=self.dispatcher)

    def for_clients(self) -> list[Service]:
        settings, clock, store, intake = self.settings, self.clock, self.store, self.intake
        topics, groups, members, offsets = self.topics, self.groups, self.members, self.offsets
        return [
            Sending(settings=settings, clock=clock, topics=topics, groups=groups, locks=self.locks, intake=intake),
            SendBack(settings=settings, store=store, topics=topics, groups=groups, intake=intake),
            Replies(
                settings=settings, clock=clock, topics=topics, members=members, intake=intake, address=self.address
            ),
            Recall(settings=settings, clock=clock, topics=topics, intake=intake),
            Pulling(
                settings=settings,
                store=store,
                topics=topics,
                groups=groups,
                members=members,
                offsets=offsets,
                polls=self.polls,
            ),
            Assignments(state=self.state, topics=topics, groups=groups, members=members, route=self.route),
            Pop(
                settings=settings,
                clock=clock,
                state=self.state,
                store=store,
                dispatcher=self.dispatcher,
                topics=topics,
                groups=groups,
                offsets=offsets,
                intake=intake,
            ),
        ]

    def for_later(self) -> list[Service]:
        settings, clock, state, store, intake = self.settings, self.clock, self.state, self.store, self.intake
        return [
            Delays(settings=settings, clock=clock, state=state, store=store, intake=intake),
            Timers(settings=settings, clock=clock, state=state, store=store, intake=intake),
            Transactions(
                settings=settings,
                clock=clock,
                state=state,
                store=store,
                topics=self.topics,
                members=self.members,
                intake=intake,
            ),
        ]

    def for_operators(self) -> list[Service]:
        settings, clock, store = self.settings, self.clock, self.store
        topics, groups, members, offsets = self.topics, self.groups, self.members, self.offsets
        return [
            TopicRequests(topics=topics, store=store, offsets=offsets),
            Queries(store=store, members=members),
            Statistics(
                settings=settings,
                clock=clock,
                store=store,
                topics=topics,
                groups=groups,
                members=members,
                offsets=offsets,
                address=self.address,
            ),
            Administration(settings=settings, clock=clock),
            ClientRequests(settings=settings, store=store, topics=topics, groups=groups, members=members),
        ]


def build(ground: Ground) -> Sequence[Service]:
    """All services, in the order in which they are to be started."""
    built = _Builder(ground)
    shared: list[Service] = [built.groups, built.members, built.offsets, built.locks, built.polls]
    return [*shared, *built.for_operators(), *built.for_clients(), *built.for_later()]
