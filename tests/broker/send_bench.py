"""A broker's services without sockets: what sends, pulls, delays and transactions are tested on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocketstream.broker.delays import Delays
from rocketstream.broker.dispatch import Dispatcher
from rocketstream.broker.groups import Groups
from rocketstream.broker.intake import Intake
from rocketstream.broker.locks import Locks
from rocketstream.broker.long_polls import LongPolls
from rocketstream.broker.members import Members
from rocketstream.broker.offsets import Offsets
from rocketstream.broker.pulling import Pulling
from rocketstream.broker.recall import Recall
from rocketstream.broker.records import StoredRecord, read_record
from rocketstream.broker.replies import Replies
from rocketstream.broker.send_back import SendBack
from rocketstream.broker.sending import Sending
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.store import open_store
from rocketstream.broker.timers import Timers
from rocketstream.broker.topics import Topics
from rocketstream.broker.transactions import Transactions
from rocketstream.clock import ManualClock
from rocketstream.wire.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.bodies.topic import TopicConfig
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, request, response
from rocketstream.wire.headers.pull import PullMessageRequestHeader
from rocketstream.wire.headers.send import SendMessageRequestHeaderV2

ADDRESS = "127.0.0.1:10911"
KEY = "7F0000012F83C5E0A89B4D9323F60001"


class FakeConnection:
    """A client's connection: keeps what is sent to it, answers what it is asked."""

    def __init__(
        self, address: str = "127.0.0.1:55555", answer: ResponseCode | Exception = ResponseCode.SUCCESS
    ) -> None:
        self.address = address
        self.closed = False
        self.sent: list[Command] = []
        self.asked: list[Command] = []
        self._answer = answer

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def cut(self) -> None:
        self.closed = True

    async def invoke(self, command: Command, timeout: float) -> Command:
        self.asked.append(command)
        if isinstance(self._answer, Exception):
            raise self._answer
        return response(command, self._answer)


class Bench:
    """The services, started; `restart` is a new life with the same files (`crash`: nothing is saved at the end)."""

    def __init__(self, data: Path | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.settings = BrokerSettings(data=data, **{"client_expiry": 86400.0, **settings})
        if data is not None:
            data.mkdir(exist_ok=True)
        self.state = StateFiles(data)
        self.connection: Any = FakeConnection()
        self._opaque = 0
        self._live()

    def _live(self) -> None:
        settings, clock, state = self.settings, self.clock, self.state
        self.store = store = open_store(settings, clock, ADDRESS)
        self.dispatcher = Dispatcher()
        self.topics = topics = Topics(settings=settings, clock=clock, state=state)
        self.groups = groups = Groups(settings=settings, state=state, clock=clock)
        self.members = members = Members(
            settings=settings, clock=clock, dispatcher=self.dispatcher, topics=topics, groups=groups
        )
        self.offsets = Offsets(
            settings=settings, clock=clock, state=state, store=store, topics=topics, groups=groups, members=members
        )
        self.locks = Locks(settings=settings, clock=clock)
        self.intake = intake = Intake(settings=settings, clock=clock, store=store)
        self.polls = LongPolls(clock=clock, store=store, dispatcher=self.dispatcher)
        self.delays = Delays(settings=settings, clock=clock, state=state, store=store, intake=intake)
        self.timers = Timers(settings=settings, clock=clock, state=state, store=store, intake=intake)
        self.transactions = Transactions(
            settings=settings, clock=clock, state=state, store=store, topics=topics, members=members, intake=intake
        )
        sending = Sending(settings=settings, clock=clock, topics=topics, groups=groups, locks=self.locks, intake=intake)
        pulling = Pulling(
            settings=settings,
            store=store,
            topics=topics,
            groups=groups,
            members=members,
            offsets=self.offsets,
            polls=self.polls,
        )
        replies = Replies(
            settings=settings, clock=clock, topics=topics, members=members, intake=intake, address=ADDRESS
        )
        self.services: list[Any] = [
            groups,
            members,
            self.offsets,
            self.locks,
            self.polls,
            self.delays,
            self.timers,
            self.transactions,
            sending,
            pulling,
            SendBack(settings=settings, store=store, topics=topics, groups=groups, intake=intake),
            Recall(settings=settings, clock=clock, topics=topics, intake=intake),
            replies,
        ]
        for service in self.services:
            self.dispatcher.add(service.handlers())
            service.start()

    def stop(self) -> None:
        for service in reversed(self.services):
            service.stop()
        self.store.close()

    def restart(self, *, saved: dict[str, Any] | None = None) -> None:
        """End this life and begin the next; `saved` are state files that a crash left as they were before."""
        self.stop()
        for name, value in (saved or {}).items():
            self.state.save(name, value)
        self._live()

    # --- asking ---------------------------------------------------------------------------------------------------

    async def ask(self, code: int, header: Any = None, body: bytes = b"", connection: Any = None) -> Command | None:
        """The answer to a request; None if none came (it is held, or there is none)."""
        connection = connection or self.connection
        command = request(code, header, body)
        self._opaque += 1
        command.opaque = self._opaque
        before = len(connection.sent)
        self.dispatcher.handle(connection, command)
        await self.clock.settle()
        answers = [one for one in connection.sent[before:] if one.is_response and one.opaque == command.opaque]
        return answers[0] if answers else None

    async def send(
        self,
        topic: str = "t",
        body: bytes = b"x",
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        queue_id: int = 0,
        properties: dict[str, str] | str | None = None,
        **more: Any,
    ) -> Command:
        if isinstance(properties, str):
            text = properties
        else:
            text = "".join(f"{name}\x01{value}\x02" for name, value in {"UNIQ_KEY": KEY, **(properties or {})}.items())
        header = SendMessageRequestHeaderV2(
            producer_group="producers",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=more.pop("sys_flag", 0),
            born_timestamp=more.pop("born_timestamp", self.clock.wall_ms()),
            flag=more.pop("flag", 0),
            properties=text,
            **more,
        )
        answer = await self.ask(code, header, body)
        assert answer is not None
        return answer

    def pull_header(self, topic: str = "t", offset: int = 0, **more: Any) -> PullMessageRequestHeader:
        values: dict[str, Any] = {
            "consumer_group": "g",
            "topic": topic,
            "queue_id": 0,
            "queue_offset": offset,
            "max_msg_nums": 32,
            "sys_flag": 4,
            "commit_offset": 0,
            "suspend_timeout_millis": 15000,
            "subscription": "*",
            "sub_version": 1,
            "expression_type": "TAG",
        }
        return PullMessageRequestHeader(**(values | more))

    async def pull(self, topic: str = "t", offset: int = 0, *, connection: Any = None, **more: Any) -> Command | None:
        return await self.ask(RequestCode.PULL_MESSAGE, self.pull_header(topic, offset, **more), connection=connection)

    async def heartbeat(
        self,
        *,
        producer: str | None = None,
        subscriptions: tuple[SubscriptionData, ...] = (),
        connection: Any = None,
        **more: Any,
    ) -> None:
        data = HeartbeatData(
            client_id="client-1",
            producer_data_set=(ProducerData(group_name=producer),) if producer else (),
            consumer_data_set=(
                (ConsumerData(group_name="g", subscription_data_set=subscriptions, **more),) if subscriptions else ()
            ),
        )
        answer = await self.ask(RequestCode.HEART_BEAT, None, data.encode(), connection)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS

    # --- looking --------------------------------------------------------------------------------------------------

    def create(self, topic: str = "t", queues: int = 1, **more: Any) -> None:
        self.topics.put(TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, **more))

    def stored(self, topic: str = "t", queue_id: int = 0) -> list[StoredRecord]:
        first, end = self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)
        raws = (self.store.record_at(topic, queue_id, offset) for offset in range(first, end))
        return [read_record(raw) for raw in raws if raw is not None]

    def bodies(self, topic: str = "t", queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.stored(topic, queue_id)]
