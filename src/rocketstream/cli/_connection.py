"""The options that every command has which talks to a cluster, written once.

@connected
def topics(connection: Connection, ...): ...        # has -n, --namespace, --access-key, --secret-key, --tls, ...
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstream.admin.client import AdminClient
from rocketstream.cli._console import clear_failures
from rocketstream.cli._credentials import credentials_of
from rocketstream.cluster.name_servers import ENVIRONMENT_VARIABLE, configured_name_servers
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import Credentials
from rocketstream.remoting.tls import TlsFiles

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON, one document per line.")]

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "name_servers": (
        Annotated[
            str | None,
            typer.Option(
                "-n",
                "--name-servers",
                metavar="HOST:PORT;...",
                help=f"The name servers; without it ${ENVIRONMENT_VARIABLE}.",
                show_default=False,
            ),
        ],
        None,
    ),
    "namespace": (Annotated[str | None, typer.Option(help="The namespace of topics and groups.")], None),
    "access_key": (
        Annotated[str | None, typer.Option(envvar="ROCKETMQ_ACCESS_KEY", help="For clusters with access control.")],
        None,
    ),
    "secret_key": (
        Annotated[
            str | None,
            typer.Option(
                envvar="ROCKETMQ_SECRET_KEY",
                help="Better by the environment or --secret-key-file: everybody on a machine sees command lines.",
            ),
        ],
        None,
    ),
    "secret_key_file": (
        Annotated[
            Path | None,
            typer.Option(envvar="ROCKETMQ_SECRET_KEY_FILE", help="A file whose first line is the secret key."),
        ],
        None,
    ),
    "security_token": (
        Annotated[str | None, typer.Option(envvar="ROCKETMQ_SECURITY_TOKEN", help="With temporary access keys.")],
        None,
    ),
    "tls": (Annotated[bool, typer.Option("--tls", envvar="ROCKETMQ_TLS", help="Connect with TLS.")], False),
    "tls_ca_file": (
        Annotated[
            Path | None,
            typer.Option(
                envvar="ROCKETMQ_TLS_CA_FILE", help="The authorities that are trusted, in PEM; without it the system's."
            ),
        ],
        None,
    ),
    "tls_cert_file": (
        Annotated[
            Path | None,
            typer.Option(envvar="ROCKETMQ_TLS_CERT_FILE", help="Our own certificate, for brokers that want one."),
        ],
        None,
    ),
    "tls_key_file": (
        Annotated[Path | None, typer.Option(envvar="ROCKETMQ_TLS_KEY_FILE", help="Its private key.")],
        None,
    ),
    "tls_check_host_name": (
        Annotated[
            bool,
            typer.Option(
                "--tls-check-host-name/--tls-any-host-name",
                envvar="ROCKETMQ_TLS_CHECK_HOST_NAME",
                help="Whether a server's certificate has to name its address.",
            ),
        ],
        True,
    ),
}
for _kind, _ in _OPTIONS.values():
    # Apart from what the command itself is about: there are as many of them.
    _kind.__metadata__[0].rich_help_panel = "Connection"
_TLS_NAMES = {
    "ca_file": "--tls-ca-file",
    "cert_file": "--tls-cert-file",
    "key_file": "--tls-key-file",
    "check_host_name": "--tls-check-host-name",
}


@dataclass(frozen=True, slots=True)
class Connection:
    """How a command reaches its cluster."""

    name_servers: tuple[str, ...]
    namespace: str | None
    credentials: Credentials | None
    tls: bool | TlsFiles

    def admin(self) -> AdminClient:
        """The operator's client."""
        return AdminClient(
            self.name_servers, namespace=self.namespace, credentials=self.credentials, tls=self.tls, timeout=5.0
        )


def connect(
    name_servers: str | None,
    namespace: str | None,
    access_key: str | None,
    secret_key: str | None,
    secret_key_file: Path | None,
    security_token: str | None,
    tls: bool,
    **tls_files: Any,
) -> Connection:
    """The connection that the options ask for; on a command line there is no guessing of name servers."""
    addresses = configured_name_servers(name_servers)
    if addresses is None:
        raise ConfigurationError(
            f"no name server is given: use -n HOST:PORT (for example -n 127.0.0.1:9876) or set ${ENVIRONMENT_VARIABLE}"
        )
    credentials = credentials_of(access_key, secret_key, secret_key_file, security_token)
    return Connection(addresses, namespace, credentials, _tls(tls, **tls_files))


def _tls(
    tls: bool,
    tls_ca_file: Path | None,
    tls_cert_file: Path | None,
    tls_key_file: Path | None,
    tls_check_host_name: bool,
) -> bool | TlsFiles:
    """Any of the files means TLS."""
    if tls_check_host_name and not (tls_ca_file or tls_cert_file or tls_key_file):
        return tls
    files = TlsFiles(tls_ca_file, tls_cert_file, tls_key_file, check_host_name=tls_check_host_name)
    files.context(_TLS_NAMES)  # for its checks
    return files


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a connection, and clear failures."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        with clear_failures():
            connection = connect(**{name: arguments.pop(name) for name in _OPTIONS})
            command(connection, **arguments)

    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _OPTIONS.items()
    ]
    # Help wraps lines itself; those of the source would end in its midst.
    run.__doc__ = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.__doc__ or ""))
    # typer reads both.
    run.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*own, *shared)} | {"return": None}
    return run
