"""`rocketstream brokers`: which there are, and how they are."""

from __future__ import annotations

import typer

from rocketstream.admin.showing import local_time
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, is_wide, output, print_json, table, warn


@connected
def brokers(connection: Connection, json: Json = False) -> None:
    """List the brokers with their versions and rates; the exit code is 1 if one of them does not answer."""
    with connection.admin() as admin:
        found = admin.cluster()
    if json:
        print_json(found.to_dict())
    else:
        out = output()
        numbers = ("in/s", "out/s", "disk used", "in today", "out today")
        columns = ["cluster", "broker", "role", "address", "version", *numbers, "up since"]
        # The last ones are what a narrow terminal can do without.
        columns = columns if is_wide(out) else columns[:-3]
        shown = table(*columns, numbers=numbers)
        for one in found.brokers:
            cells = (
                cell(one.cluster),
                cell(one.broker_name),
                "master" if one.is_master else f"slave {one.broker_id}",
                cell(one.address),
                cell(one.version),
                "-" if one.in_tps is None else f"{one.in_tps:.1f}",
                "-" if one.out_tps is None else f"{one.out_tps:.1f}",
                "-" if one.disk_used is None or one.disk_used < 0 else f"{one.disk_used:.0%}",
                cell(one.in_today),
                cell(one.out_today),
                local_time(one.boot_timestamp) or "-",
            )
            shown.add_row(*cells[: len(columns)])
        out.print(shown)
        out.print(f"name servers: {', '.join(found.name_servers)}", markup=False)
    silent = [one for one in found.brokers if one.problem is not None]
    for one in silent:
        warn(f"{one.broker_name}: {one.problem}")
    if silent:
        raise typer.Exit(1)
