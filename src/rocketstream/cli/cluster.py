"""`rocketstream cluster up|down|status`: a real RocketMQ from Maven Central on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from rocketstream.cli._console import clear_failures, output, print_json, tell
from rocketstream.testing import detached
from rocketstream.testing.detached import DetachedCluster

app = typer.Typer(help="A real RocketMQ cluster on this machine (needs Java 17).", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def up(
    version: Annotated[str, typer.Option("--version", help="The RocketMQ version, e.g. 5.5.0 or 4.9.7.")] = "5.5.0",
    brokers: Annotated[int, typer.Option(min=1, max=26, help="How many masters.")] = 1,
    slaves: Annotated[int, typer.Option(min=0, help="How many slaves of each master.")] = 0,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="The name server's port; without it 9876, or another if that is taken."),
    ] = None,
    json: Json = False,
) -> None:
    """Start a cluster that keeps running after this command.

    The first time a version is used its jars are fetched from Maven Central, which takes a few minutes.
    """
    with clear_failures():
        started = detached.start(version, brokers=brokers, slaves=slaves, port=port, progress=tell)
    if port is None and not started.name_server_address.endswith(f":{detached.DEFAULT_PORT}"):
        tell(f"Port {detached.DEFAULT_PORT} is taken, so the name server listens on another one.")
    if json:
        print_json(_as_json(started, []))
        return
    out = output()
    out.print(_table(started))
    out.print(f"RocketMQ {started.version} is up. Name server address: [bold]{started.name_server_address}[/]")
    out.print("Stop it with: [bold]rocketstream cluster down[/]")


@app.command()
def status(json: Json = False) -> None:
    """Tell whether the cluster is running, by asking it; the exit code is 0 if it is and 1 if not."""
    with clear_failures():
        cluster = detached.load()
        found = cluster.problems() if cluster is not None else []
    if json:
        print_json(_as_json(cluster, found) if cluster is not None else {"running": False})
    elif cluster is None:
        output().print("No cluster is running. Start one with: rocketstream cluster up")
    else:
        out = output()
        out.print(_table(cluster))
        for problem in found:
            out.print(f"[red]{escape(problem)}[/]")
        if found:
            out.print("`rocketstream cluster down` cleans up.")
        else:
            out.print(f"RocketMQ {cluster.version} is running. Name server address: {cluster.name_server_address}")
    if cluster is None or found:
        raise typer.Exit(1)


@app.command()
def down(json: Json = False) -> None:
    """Stop the cluster in order and remove its data; a broker may take half a minute for it."""
    with clear_failures():
        cluster = detached.load()
        if cluster is not None:
            tell(f"Stopping RocketMQ {cluster.version} ...")
            cluster.stop()
    if json:
        print_json({"running": False, "stopped": cluster is not None})
    elif cluster is None:
        output().print("No cluster is running.")
    else:
        output().print(f"RocketMQ {cluster.version} is stopped and its data is removed.")


def _table(cluster: DetachedCluster) -> Table:
    table = Table("node", "role", "address", "process", "directory (store, logs)")
    for node in cluster.nodes:
        process = str(node.pid) if node.alive else f"[red]{node.pid} (gone)[/]"
        table.add_row(node.name, node.role, node.address, process, escape(node.directory))
    return table


def _as_json(cluster: DetachedCluster, found: list[str]) -> dict[str, Any]:
    return {
        "running": not found,
        "version": cluster.version,
        "name_servers": cluster.name_server_address,
        "problems": found,
        "nodes": [
            {
                "name": node.name,
                "role": node.role,
                "address": node.address,
                "pid": node.pid,
                "alive": node.alive,
                "directory": node.directory,
            }
            for node in cluster.nodes
        ],
    }
