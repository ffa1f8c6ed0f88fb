"""Where the demo writes: the report, and beside it a directory of its own for everything else.

The rule of this file: what is removed is what an earlier demo made, and nothing else.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rocketstream.errors import ConfigurationError

_MARK = ".rocketstream-demo"


@dataclass(frozen=True, slots=True)
class DemoFiles:
    """The paths of one run."""

    report: Path
    directory: Path
    """Tables, lookups, the pipeline's file, checkpoints and the log of Spark."""

    @classmethod
    def prepared(cls, report: Path) -> Self:
        """Make room: the directory of an earlier demo is emptied, another's is refused."""
        directory = report.with_name(f"{report.stem}-files")
        try:
            if directory.exists():
                if not (directory / _MARK).exists() and any(directory.iterdir()):
                    raise ConfigurationError(
                        f"{directory} is not of an earlier demo, and would be overwritten: give another --report"
                    )
                shutil.rmtree(directory)
            directory.mkdir(parents=True)
            (directory / _MARK).touch()
            # So that a run that ends at once leaves no report of an earlier one, which would look like its own.
            report.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigurationError(f"--report {report}: can't write there: {error.strerror or error}") from None
        return cls(report, directory)

    @property
    def pipeline(self) -> Path:
        """The pipeline's file."""
        return self.directory / "pipeline.toml"

    @property
    def orders(self) -> Path:
        """The table of orders."""
        return self.directory / "orders"

    @property
    def minutes(self) -> Path:
        """The table of counts per minute."""
        return self.directory / "per-minute"

    @property
    def log(self) -> Path:
        """What Spark and its JVM say."""
        return self.directory / "spark.log"
