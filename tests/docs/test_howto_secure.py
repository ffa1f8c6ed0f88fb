"""What howto-secure.md shows works as it is written there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketstream.broker import EmbeddedBroker, User
from tests.contract.secured import Pki
from tests.docs.samples import write_samples

PAGE = "howto-secure.md"
SHOP = User("shop", "shop-secret", topics={"*": "ALL"})


def run(directory: Path, name: str) -> str:
    environment = {"ROCKETMQ_ACCESS_KEY": "shop", "ROCKETMQ_SECRET_KEY": "shop-secret", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-W", "error", name]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_programs_run(tmp_path):
    pki = Pki(tmp_path)  # writes ca.pem, client.pem and client.key there
    users = [User("admin", "admin-secret", admin=True), SHOP]
    with EmbeddedBroker(users=users, tls=pki.server_context(wants_clients=True)) as broker:
        write_samples(PAGE, tmp_path, broker.address)
        assert run(tmp_path, "secured.py") == "SEND_OK\n"
    with EmbeddedBroker(users=users) as broker:
        write_samples(PAGE, tmp_path, broker.address)
        assert run(tmp_path, "rotating.py") == "SEND_OK\n"


def test_the_test_passes(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    write_samples(PAGE, pytester.path, "127.0.0.1:1")
    pytester.runpytest("-p", "no:cacheprovider", "test_denied.py").assert_outcomes(passed=1)
