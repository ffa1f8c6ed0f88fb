"""The table of names and values by which a broker tells how it is (GET_BROKER_RUNTIME_INFO)."""

from __future__ import annotations

import shutil
from collections import deque
from typing import Final, NamedTuple

from rocketstream.broker.counters import SAMPLE_INTERVAL, Counter
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import MessageStore
from rocketstream.clock import Clock

#: The version whose behaviour this broker has.
VERSION_NAME: Final = "V5_5_0"
_SPANS: Final = (10, 60, 600)
_DAY_MS: Final = 86_400_000


class _Totals(NamedTuple):
    at: float
    puts: int
    gets: int


class RuntimeInfo:
    """What tools such as `mqadmin clusterList` and `brokerStatus` read. There are no thread pools here to wait in."""

    def __init__(
        self, settings: BrokerSettings, clock: Clock, store: MessageStore, puts: Counter, gets: Counter
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._puts = puts
        self._gets = gets
        self._started = clock.wall_ms()
        self._totals: deque[_Totals] = deque(maxlen=int(_SPANS[-1] / SAMPLE_INTERVAL) + 1)
        self._today = self._started // _DAY_MS
        self._this_morning = self._yesterday_morning = _Totals(0.0, 0, 0)

    def sample(self, now: float) -> None:
        """Remember the totals of this moment."""
        self._totals.append(_Totals(now, self._puts.total, self._gets.total))
        today = self._clock.wall_ms() // _DAY_MS
        if today != self._today:
            self._today = today
            self._yesterday_morning, self._this_morning = self._this_morning, self._totals[-1]

    def table(self) -> dict[str, str]:
        """Names and values, as RocketMQ has them."""
        puts, gets = self._speeds("puts"), self._speeds("gets")
        pools = ("send", "pull", "litePull", "query", "ack")
        free, total = self._disk()
        return {
            "bootTimestamp": str(self._started),
            "runtime": self._running(),
            "brokerActive": "true",
            "brokerVersion": "513",
            "brokerVersionDesc": VERSION_NAME,
            "putTps": puts,
            "getFoundTps": gets,
            "getMissTps": "0.0 0.0 0.0",
            "getTotalTps": gets,
            "getTransferredTps": gets,
            "getTransferedTps": gets,  # as tools of 4.9 spell it
            "putMessageTimesTotal": str(self._puts.total),
            "putMessageFailedTimes": "0",
            "putMessageSizeTotal": str(self._store.size),
            "msgPutTotalYesterdayMorning": str(self._yesterday_morning.puts),
            "msgPutTotalTodayMorning": str(self._this_morning.puts),
            "msgPutTotalTodayNow": str(self._puts.total),
            "msgGetTotalYesterdayMorning": str(self._yesterday_morning.gets),
            "msgGetTotalTodayMorning": str(self._this_morning.gets),
            "msgGetTotalTodayNow": str(self._gets.total),
            "dispatchBehindBytes": "0",
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self._earliest()),
            "startAcceptSendRequestTimeStamp": "0",
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
            "remainTransientStoreBufferNumbs": "0",
            "remainHowManyDataToFlush": "0 B",
            "commitLogDiskRatio": str(round(1 - free / total, 4) if total else 0.0),
            "consumeQueueDiskRatio": str(round(1 - free / total, 4) if total else 0.0),
            "commitLogDirCapacity": f"Total : {total / 2**30:.1f} GiB, Free : {free / 2**30:.1f} GiB.",
            **{f"{pool}ThreadPoolQueueSize": "0" for pool in pools},
            **{f"{pool}ThreadPoolQueueCapacity": "10000" for pool in pools},
            **{f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0" for pool in pools},
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "10000",
        }

    def _speeds(self, which: str) -> str:
        """How many a second over the last 10 s, minute and 10 minutes."""
        speeds = []
        for span in _SPANS:
            samples = list(self._totals)[-int(span / SAMPLE_INTERVAL) - 1 :]
            seconds = samples[-1].at - samples[0].at if samples else 0.0
            grown = getattr(samples[-1], which) - getattr(samples[0], which) if samples else 0
            speeds.append(grown / seconds if seconds > 0 else 0.0)
        return " ".join(map(str, speeds))

    def _running(self) -> str:
        seconds = (self._clock.wall_ms() - self._started) // 1000
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"

    def _earliest(self) -> int:
        """When the oldest message was stored; -1 when there is none."""
        times = (
            self._store.timestamp_at(topic, queue_id, self._store.min_offset(topic, queue_id))
            for topic in self._store.topics()
            for queue_id in self._store.queues(topic)
        )
        return min((time for time in times if time > 0), default=-1)

    def _disk(self) -> tuple[int, int]:
        """Free and all bytes: of the disk, or of the memory that may be used."""
        if self._settings.data is None:
            return max(0, self._settings.max_memory - self._store.size), self._settings.max_memory
        usage = shutil.disk_usage(self._settings.data)
        return usage.free, usage.total
