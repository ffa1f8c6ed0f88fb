"""`rocketstream run module:consumer`: a consumer as a program, in one process or in many."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from rocketstream.cli._console import clear_failures, tell
from rocketstream.errors import ConfigurationError


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def run(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:CONSUMER", help="Where the consumer is, or a function that makes it.")
    ],
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, max=256, help="How many processes.")] = 1,
    shutdown_timeout: Annotated[
        float, typer.Option(min=0.0, max=86_400.0, help="Seconds that running listeners get to end.")
    ] = 30.0,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(case_sensitive=False, help="Without it: info, unless the program sets up logging itself."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Serve Prometheus metrics of all processes there; 0: any free port."),
    ] = None,
    metrics_address: Annotated[
        str, typer.Option(help="The network interface of --metrics-port; 127.0.0.1: this machine alone.")
    ] = "0.0.0.0",
) -> None:
    """Run a PushConsumer until SIGINT or SIGTERM, as one member of its group per process.

    MODULE is imported with the current directory on its path. A process that dies is started again. The first Ctrl-C
    lets running listeners end, the second does not.
    """
    # Here, because the other commands have no use for a consumer and need not wait until it is loaded.
    from rocketstream.cli import _supervisor, _worker
    from rocketstream.cli._run_metrics import Endpoint

    endpoint = None if metrics_port is None else Endpoint(metrics_port, metrics_address)
    level = None if log_level is None else log_level.value
    with clear_failures():
        if processes > 1:
            if os.name != "posix":
                raise ConfigurationError("--processes needs signals and is not for Windows: start the command N times")
            code = _supervisor.supervise(target, processes, shutdown_timeout, level, tell, endpoint)
        else:
            code = _worker.run_here(target, shutdown_timeout, level, endpoint, tell)
    sys.stdout.flush()
    if code:
        raise typer.Exit(code)
