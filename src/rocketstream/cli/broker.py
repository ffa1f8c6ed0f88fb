"""`rocketstream broker`: a RocketMQ in one process, for development, tests and single machines."""

from __future__ import annotations

import ipaddress
import logging
import signal
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.logging import RichHandler
from rich.markup import escape

from rocketstream.cli._console import clear_failures, output, print_json_line, problems
from rocketstream.cli._credentials import credentials_of
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import Credentials
from rocketstream.stop_event import StopEvent

if TYPE_CHECKING:
    from rocketstream.broker.embedded import EmbeddedBroker


def broker(
    data: Annotated[
        Path | None, typer.Option(file_okay=False, help="Keep everything in this directory; without it, in memory.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The name server's port; 0 takes a free one.")] = 9876,
    host: Annotated[
        str, typer.Option(help="The address to listen on, and the one that clients are told.")
    ] = "127.0.0.1",
    broker_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The broker's own port; 0 takes 10911 if it is free.")
    ] = 0,
    broker_name: Annotated[str, typer.Option(help="The broker's name.")] = "broker-a",
    cluster_name: Annotated[str, typer.Option(help="The name of its cluster.")] = "DefaultCluster",
    auto_create: Annotated[
        bool, typer.Option("--auto-create/--no-auto-create", help="Whether sending to a topic creates it.")
    ] = True,
    flush: Annotated[
        Literal["sync", "async"], typer.Option(help="With --data: acknowledge after, or before, it is on the disk.")
    ] = "sync",
    access_key: Annotated[str | None, typer.Option(envvar="ROCKETMQ_ACCESS_KEY", help="Refuse all others.")] = None,
    secret_key: Annotated[
        str | None, typer.Option(envvar="ROCKETMQ_SECRET_KEY", help="Better by the environment or --secret-key-file.")
    ] = None,
    secret_key_file: Annotated[
        Path | None,
        typer.Option(envvar="ROCKETMQ_SECRET_KEY_FILE", help="A file whose first line is the secret key."),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(exists=True, help="For TLS: a PEM file with the chain.")] = None,
    key: Annotated[Path | None, typer.Option(exists=True, help="For TLS: a PEM file with the key.")] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(exists=True, help="With TLS: let only clients in with a certificate of this authority."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell what it does.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when it is ready.")] = False,
) -> None:
    """Run a name server and a broker in this process until Ctrl-C."""
    from rocketstream.broker.embedded import EmbeddedBroker  # every command would pay for it

    with clear_failures():
        _show_log(verbose)
        embedded = EmbeddedBroker(
            data,
            port,
            host=host,
            broker_port=broker_port,
            broker_name=broker_name,
            cluster_name=cluster_name,
            auto_create_topics=auto_create,
            flush=flush,
            credentials=_credentials(access_key, secret_key, secret_key_file),
            tls=_tls(certificate, key, client_ca),
        )
        stopped = _stop_signals()
        with embedded:
            _introduce(embedded, json)
            stopped.wait()
            if not json:
                output().print("Stopping.", style="dim")


def _stop_signals() -> StopEvent:
    """Set by Ctrl-C or a polite kill; who presses it again does not want to wait."""
    stopped = StopEvent()

    def stop(number: int, frame: object) -> None:
        stopped.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopped


def _introduce(embedded: EmbeddedBroker, json: bool) -> None:
    place = None if embedded.settings.data is None else str(embedded.settings.data.resolve())
    if json:
        print_json_line({"name_server": embedded.name_server_address, "broker": embedded.broker_address, "data": place})
    else:
        _show_screen(embedded, place)
    if not _is_loopback(embedded.settings.host) and not embedded.settings.credentials:
        problems().print(
            f"[bold yellow]Everybody who reaches {escape(embedded.settings.host)} may read, send and delete:[/] give"
            " --access-key and --secret-key, or listen on 127.0.0.1 only."
        )


def _show_screen(embedded: EmbeddedBroker, place: str | None) -> None:
    address = escape(embedded.name_server_address)
    kept = f"in {escape(place)}" if place else "in memory: gone when it ends (--data DIR keeps them)"
    console = output()
    console.print(
        f"[bold]An embedded RocketMQ is running.[/] Press Ctrl-C to stop it.\n\n"
        f"  name server  [bold green]{address}[/]\n"
        f"  broker       {escape(embedded.broker_address)}\n"
        f"  messages     {kept}\n\n"
        "It speaks RocketMQ's remoting protocol, so every client of RocketMQ 4.9 and 5.x can use it. It is one node"
        " for development, tests and single machines: it has no replicas and no proxy. For a cluster, run RocketMQ.\n\n"
        "Try it from another terminal:\n\n"
        f"  rocketstream consume hello -n {address}\n"
        f"  rocketstream produce hello -n {address} --body 'Hello, RocketMQ'\n",
        soft_wrap=not console.is_terminal,
    )
    # Whoever started us by a pipe reads it now, not when we end.
    console.file.flush()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _credentials(access_key: str | None, secret_key: str | None, file: Path | None) -> tuple[Credentials, ...]:
    credentials = credentials_of(access_key, secret_key, file)
    return () if credentials is None else (credentials,)


def _tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        for name, given in (("--key", key), ("--client-ca", client_ca)):
            if given is not None:
                raise ConfigurationError(f"{name} needs --certificate")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"--certificate {certificate}: {error}") from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"--client-ca {client_ca}: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _show_log(verbose: bool) -> None:
    """What the broker has to say (a log that was cut, a client that sends garbage) goes to standard error."""
    log = logging.getLogger("rocketstream.broker")
    log.setLevel(logging.INFO if verbose else logging.WARNING)
    log.addHandler(RichHandler(console=problems(), show_path=False, markup=False))
