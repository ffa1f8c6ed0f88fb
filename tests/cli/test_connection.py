"""How a command's options become a connection: keys, files, and what contradicts itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rocketstream import Credentials, TlsFiles
from rocketstream.cli._connection import Connection, connected
from rocketstream.cli.app import make_app
from tests.contract.secured import Pki

pytestmark = pytest.mark.feature("security/command-line")
runner = CliRunner()


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


def connection_of(*arguments: str, **environment: str) -> Connection | str:
    """The connection that a command gets; else what is said on standard error."""
    got: list[Connection] = []
    app = typer.Typer()

    @app.command()
    @connected
    def look(connection: Connection) -> None:
        got.append(connection)

    ended = runner.invoke(app, ["-n", "h:1", *arguments], env=environment)
    return got[0] if got else ended.stderr


def test_nothing_is_encrypted_or_signed_unless_it_is_asked_for():
    assert connection_of() == Connection(("h:1",), None, None, False)


def test_keys_from_options_the_environment_and_a_file(tmp_path):
    file = tmp_path / "key"
    file.write_text("the secret\nanything else\n")
    for told in (
        connection_of("--access-key", "me", "--secret-key", "the secret"),
        connection_of(ROCKETMQ_ACCESS_KEY="me", ROCKETMQ_SECRET_KEY="the secret"),
        connection_of("--access-key", "me", "--secret-key-file", str(file)),
        connection_of(ROCKETMQ_ACCESS_KEY="me", ROCKETMQ_SECRET_KEY_FILE=str(file)),
    ):
        assert isinstance(told, Connection)
        assert told.credentials == Credentials("me", "the secret")
        assert "the secret" not in repr(told)
    with_token = connection_of(
        ROCKETMQ_ACCESS_KEY="me", ROCKETMQ_SECRET_KEY="the secret", ROCKETMQ_SECURITY_TOKEN="the token"
    )
    assert isinstance(with_token, Connection)
    assert with_token.credentials == Credentials("me", "the secret", "the token")


def test_tls_and_its_files(pki):
    cert_file, key_file = (Path(path) for path in pki.client)
    assert connection_of("--tls") == connection_of(ROCKETMQ_TLS="true")
    told = connection_of("--tls")
    assert isinstance(told, Connection)
    assert told.tls is True
    files = connection_of(
        "--tls-ca-file", pki.ca_file, "--tls-cert-file", pki.client[0], "--tls-key-file", pki.client[1]
    )
    assert isinstance(files, Connection)
    assert files.tls == TlsFiles(Path(pki.ca_file), cert_file, key_file)
    assert files == connection_of(
        ROCKETMQ_TLS_CA_FILE=pki.ca_file, ROCKETMQ_TLS_CERT_FILE=pki.client[0], ROCKETMQ_TLS_KEY_FILE=pki.client[1]
    )
    anybody = connection_of("--tls-any-host-name")
    assert isinstance(anybody, Connection)
    assert anybody.tls == TlsFiles(check_host_name=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--access-key", "me"], "--access-key and --secret-key belong together"),
        (["--secret-key", "hunter2"], "--access-key and --secret-key belong together"),
        (["--secret-key", "hunter2", "--secret-key-file", "x"], "two ways to say the same: give one"),
        (["--access-key", "me", "--secret-key-file", "/no/such"], "--secret-key-file /no/such cannot be read: No such"),
        (["--access-key", "me", "--secret-key-file", "/dev/null"], "/dev/null: its first line is empty"),
        (["--security-token", "hunter2"], "--security-token is of no use without"),
        (["--tls-ca-file", "/no/such"], "--tls-ca-file='/no/such' cannot be read: No such"),
        (["--tls-key-file", __file__], "--tls-key-file is given without --tls-cert-file"),
        (["--tls-ca-file", __file__], "holds no certificate in PEM"),
    ],
)
def test_what_cannot_work_is_said_in_one_sentence(arguments, words):
    said = connection_of(*arguments)
    assert isinstance(said, str)
    assert words in said
    assert "hunter2" not in said
    assert said.count("\n") == 1


def test_an_embedded_broker_that_wants_client_certificates(pki):
    for arguments, words in (
        (["--client-ca", pki.ca_file], "--client-ca needs --certificate"),
        (["--certificate", pki.server[0], "--key", pki.server[1], "--client-ca", __file__], "--client-ca"),
        (["--access-key", "me", "--secret-key-file", "/dev/null"], "its first line is empty"),
    ):
        ended = runner.invoke(make_app(), ["broker", "--port", "0", *arguments])
        assert ended.exit_code != 0
        assert words in ended.stderr
