"""The options that every command has which talks to a cluster, written once.

@connected
def topics(connection: Connection, ...): ...        # has -n, --namespace, --access-key, --secret-key and --tls
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rocketstream.admin.client import AdminClient
from rocketstream.cli._console import clear_failures
from rocketstream.cluster.name_servers import ENVIRONMENT_VARIABLE, configured_name_servers
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import Credentials

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
        Annotated[str | None, typer.Option(envvar="ROCKETMQ_SECRET_KEY", help="Better by the environment.")],
        None,
    ),
    "tls": (Annotated[bool, typer.Option("--tls", help="Connect with TLS.")], False),
}


@dataclass(frozen=True, slots=True)
class Connection:
    """How a command reaches its cluster."""

    name_servers: tuple[str, ...]
    namespace: str | None
    credentials: Credentials | None
    tls: bool

    def admin(self) -> AdminClient:
        """The operator's client."""
        return AdminClient(
            self.name_servers, namespace=self.namespace, credentials=self.credentials, tls=self.tls, timeout=5.0
        )


def connect(
    name_servers: str | None, namespace: str | None, access_key: str | None, secret_key: str | None, tls: bool
) -> Connection:
    """The connection that the options ask for; on a command line there is no guessing of name servers."""
    addresses = configured_name_servers(name_servers)
    if addresses is None:
        raise ConfigurationError(
            f"no name server is given: use -n HOST:PORT (for example -n 127.0.0.1:9876) or set ${ENVIRONMENT_VARIABLE}"
        )
    if (access_key is None) != (secret_key is None):
        raise ConfigurationError("--access-key and --secret-key belong together: one of them is missing")
    credentials = None if access_key is None or secret_key is None else Credentials(access_key, secret_key)
    return Connection(addresses, namespace, credentials, tls)


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
    # typer reads both.
    run.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*own, *shared)} | {"return": None}
    return run
