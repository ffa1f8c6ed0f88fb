"""Callers that never stop asking over lines that are cut all the time, and the books of who was told what."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from rocketstream.errors import ConnectError, RemotingError
from rocketstream.remoting.client import RemotingClient
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.testing.fault_proxy import FaultProxy
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, request, response
from tests.scripted import eventually

ASK = RequestCode.GET_MAX_OFFSET
TIMEOUT = 100.0  # far away: in a storm nobody has to wait for a time-out
CUTS = ("reset", "end", "mid-answer", "mid-request", "garbage", "refuse")
OTHER_KINDS = {0: "one-way", 10: "walk away"}  # of 20 requests; the others are awaited or given a callback in turn


@dataclass(frozen=True)
class Talk:
    """A question that carries a number, and how to see that an answer belongs to it."""

    ask: Callable[[int], Command]
    answered: Callable[[int, Command], bool]


def echo(asked: Command) -> Command:
    """The answer of a scripted peer: what it was asked."""
    return response(asked, ResponseCode.SUCCESS, header=asked.fields, body=asked.body)


ECHO = Talk(
    lambda number: request(ASK, {"n": str(number)}, f"body of {number}".encode()),
    lambda number, answer: (
        (answer.code, answer.fields, answer.body)
        == (ResponseCode.SUCCESS, {"n": str(number)}, f"body of {number}".encode())
    ),
)


@dataclass
class Ledger:
    """Who asked, and what each was told; callback threads write to it too."""

    talk: Talk
    begun: list[int] = field(default_factory=list)
    ended: list[tuple[int, str]] = field(default_factory=list)
    wrong: list[tuple[int, object]] = field(default_factory=list)

    def end(self, number: int, outcome: object) -> None:
        """Somebody was told something."""
        if isinstance(outcome, Command):
            if not self.talk.answered(number, outcome):
                self.wrong.append((number, outcome))
            self.ended.append((number, "answered"))
        else:
            self.ended.append((number, type(outcome).__name__ if isinstance(outcome, Exception) else str(outcome)))

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(outcome for _, outcome in self.ended)

    def check(self) -> None:
        """Everybody was told, once, what belongs to them."""
        told = Counter(number for number, _ in self.ended)
        assert sorted(told) == self.begun == list(range(1, len(self.begun) + 1)), "somebody was never told"
        assert set(told.values()) == {1}, "somebody was told twice"
        assert self.wrong == [], "somebody got another's answer"


class Storm:
    """Callers on every line, and one troublemaker per line, until every line has had its cuts."""

    def __init__(
        self, client: RemotingClient, lines: list[FaultProxy], callers_per_line: int, cuts_per_line: int, talk: Talk
    ) -> None:
        self.client = client
        self.lines = lines
        self.ledger = Ledger(talk)
        self.cuts: Counter[str] = Counter()
        self.most_at_once = 0
        self._callers_per_line = callers_per_line
        self._cuts_per_line = cuts_per_line
        self._refused = {line.address: asyncio.Event() for line in lines}
        self._numbers = count(1)
        self._calm: set[FaultProxy] = set()

    async def rage(self) -> None:
        """Run it to its end: every line healed, every caller's last question answered."""
        callers = len(self.lines) * self._callers_per_line
        async with asyncio.TaskGroup() as group:
            for line in self.lines:
                line.hold("down")
                for _ in range(self._callers_per_line):
                    group.create_task(self._call(line))
            await eventually(lambda: self.client.permits_in_use[0] == callers)
            self.most_at_once = self.client.permits_in_use[0]
            for index, line in enumerate(self.lines):
                line.release()
                group.create_task(self._trouble(line, Random(index)))

    # --- the callers ------------------------------------------------------------------------------------------------

    async def _call(self, line: FaultProxy) -> None:
        first = True
        last = False
        while not last:
            last = line in self._calm
            number = next(self._numbers)
            self.ledger.begun.append(number)
            kind = ("await", "callback")[number % 2]
            if not first and not last:
                kind = OTHER_KINDS.get(number % 20, kind)
            outcome = await self._ask(kind, line.address, number)
            first = False
            if isinstance(outcome, ConnectError):
                self._refused[line.address].set()
            assert not last or isinstance(outcome, Command), f"the line is healed, yet {outcome!r}"

    async def _ask(self, kind: str, address: str, number: int) -> object:
        asked = self.ledger.talk.ask(number)
        if kind == "callback":
            return await self._ask_with_callback(address, asked, number)
        outcome: object
        try:
            if kind == "one-way":
                await self.client.invoke_one_way(address, asked, TIMEOUT)
                outcome = "sent"
            elif kind == "walk away":
                outcome = await self._walk_away(address, asked)
            else:
                outcome = await self.client.invoke(address, asked, TIMEOUT)
        except RemotingError as error:
            outcome = error
        self.ledger.end(number, outcome)
        return outcome

    async def _ask_with_callback(self, address: str, asked: Command, number: int) -> object:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[object] = loop.create_future()

        def callback(outcome: object) -> None:
            self.ledger.end(number, outcome)
            loop.call_soon_threadsafe(lambda: told.done() or told.set_result(outcome))

        self.client.invoke_with_callback(address, asked, TIMEOUT, callback)
        return await told

    async def _walk_away(self, address: str, asked: Command) -> object:
        asking = asyncio.ensure_future(self.client.invoke(address, asked, TIMEOUT))
        await asyncio.sleep(0)
        asking.cancel()
        try:
            return await asking
        except asyncio.CancelledError:
            return "walked away"

    # --- the troublemaker -------------------------------------------------------------------------------------------

    async def _trouble(self, line: FaultProxy, random: Random) -> None:
        random.choice([lambda: line.split((20, 400)), lambda: line.delay((0.0, 0.005)), lambda: None])()
        line.duplicate(1, rate=random.choice([0.0, 0.3]))
        for _ in range(self._cuts_per_line):
            least = line.stats.frames_down + random.randint(1, 40)
            await line.until(lambda stats, least=least: stats.frames_down >= least and stats.connections_open == 1)
            kind = random.choice(CUTS)
            self.cuts[kind] += 1
            await self._cut(line, kind, random)
        line.heal()
        self._calm.add(line)

    async def _cut(self, line: FaultProxy, kind: str, random: Random) -> None:
        made = line.stats.connections_made
        if kind in ("reset", "end"):
            assert line.cut(reset=kind == "reset") == 1
        elif kind in ("mid-answer", "mid-request"):
            line.cut("down" if kind == "mid-answer" else "up", after_bytes=random.randint(1, 1000))
        elif kind == "garbage":
            garble_one_answer(line)
        else:
            line.refuse()
            self._refused[line.address].clear()
            assert line.cut() == 1
            await self._refused[line.address].wait()
            line.refuse(False)
        # Some caller makes a new connection as soon as the old one has ended.
        await line.until(lambda stats: stats.connections_made > made)


def garble_one_answer(line: FaultProxy) -> None:
    """Send garbage in the place of the next answer."""

    def garbage(direction: str, command: Command) -> Command | bytes:
        if direction == "up":
            return command
        line.on_frame = None
        return b"\xff" * 40

    line.on_frame = garbage


async def storm_over(
    target: str,
    *,
    lines: int,
    callers_per_line: int,
    cuts_per_line: int,
    talk: Talk = ECHO,
    settings: RemotingSettings | None = None,
) -> Storm:
    """A storm between a client and one peer; at its end everything was given back and nothing is left over."""
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(FaultProxy(target, seed=index)) for index in range(lines)]
        # A machine that is busy with other things is not to break a connection off.
        client = RemotingClient(replace(settings or RemotingSettings(), connect_timeout=60.0))
        stack.push_async_callback(client.close)
        client.start()
        storm = Storm(client, proxies, callers_per_line, cuts_per_line, talk)
        await storm.rage()
        storm.ledger.check()
        assert client.pending == 0
        assert client.permits_in_use == (0, 0)
        assert sorted(client.connections) == sorted(proxy.address for proxy in proxies)
        # One connection each to begin with and one more after each cut: no other was made.
        made = [proxy.stats.connections_made for proxy in proxies]
        assert made == [1 + cuts_per_line] * lines, made
        for proxy in proxies:
            await proxy.until(lambda stats: stats.connections_open == 1)
        await client.close()
        for proxy in proxies:
            await proxy.until(lambda stats: stats.connections_open == 0)
    return storm
