"""What the demo is told, and the names that it uses on the broker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketstream.errors import ConfigurationError

TOPIC: Final = "demo-orders"
RESULT_TOPIC: Final = "demo-orders-per-minute"
DEAD_LETTER_TOPIC: Final = "demo-orders-unreadable"
"""Where the pipeline puts what it can't parse."""
BILLING_GROUP: Final = "demo-billing"
PIPELINE_GROUP: Final = "demo-pipeline"
QUEUES: Final = 4

DEFAULT_REPORT: Final = Path("rocketstream-demo") / "report.html"
MAX_RETRIES: Final = 3
#: The broker's delay level for each failure: it brings the message again after 1 s, 1 s, 5 s.
RETRY_LEVELS: Final = (1, 1, 2)
#: In these simulated minutes the push consumer is suspended, as for a deployment: a backlog to see, and to work off.
PAUSE: Final = (16, 28)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What the demo is told. Times are seconds."""

    messages: int = 20_000
    seed: int = 7
    report: Path = DEFAULT_REPORT
    keep: bool = False
    """Whether the pipeline's tables, checkpoints and logs stay beside the report."""
    version: str | None = None
    """The RocketMQ to run it on, "5.5.0"; None: the embedded broker."""
    spark: bool = True
    patience: float = 240.0
    """Seconds that Spark may take to read its first message, and that everything may take after the last order."""

    def __post_init__(self) -> None:
        if not 100 <= self.messages <= 1_000_000:
            raise ConfigurationError(f"--messages {self.messages} must be from 100 to 1000000")
        if self.report.is_dir():
            raise ConfigurationError(f"--report {self.report} is a directory: give the path of the HTML file to write")

    @property
    def seconds_per_minute(self) -> float:
        """How long a simulated minute takes: less where there is less to see."""
        return min(0.3, max(0.1, self.messages * 0.3 / 20_000))
