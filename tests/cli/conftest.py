"""Commands on a cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from rocketstream.cli.app import make_app


@pytest.fixture
def run(rocketmq_cluster, monkeypatch) -> Callable[..., Result]:
    """Run a command on the cluster and return what it printed; it must succeed unless a code is given."""
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq_cluster.name_server_address)

    def run(*arguments: str, code: int = 0, stdin: str | bytes | None = None) -> Result:
        done = CliRunner().invoke(make_app(), list(arguments), input=stdin)
        assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
        assert "\x1b" not in done.stdout, "colours are for terminals"
        return done

    return run
