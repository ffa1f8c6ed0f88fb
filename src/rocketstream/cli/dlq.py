"""`rocketstream dlq list|try|replay GROUP`: what a group failed to consume, why, and sending it again."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer
from rich.markup import escape

from rocketstream.admin.errors import ReplayStoppedError
from rocketstream.admin.letters import DeadLetter, DeadLetters, Wanted
from rocketstream.admin.moments import Moment, parse_moment
from rocketstream.admin.replays import LetterFate, ReplayedLetter, ReplayReport
from rocketstream.admin.showing import local_time, showable
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, is_wide, output, print_json, progress_bar, table, tell, warn
from rocketstream.cli._messages import print_message
from rocketstream.clock import SystemClock
from rocketstream.wire.subscription import SUBSCRIBE_ALL

app = typer.Typer(help="Dead letters of a group: look at them, send them again.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]
Key = Annotated[str | None, typer.Option(help="Only messages with this key.")]
Tags = Annotated[str, typer.Option("--tags", "--tag", help='Only these tags: "a || b".')]
Topic = Annotated[str | None, typer.Option(help="Only those that were sent to this topic.")]
Since = Annotated[str | None, typer.Option(metavar="WHEN", help="Dead since: 2026-03-01T12:00, 15m (ago), ...")]
Until = Annotated[str | None, typer.Option(metavar="WHEN", help="Dead until.")]
Ids = Annotated[list[str] | None, typer.Option("--id", help="Only the message with this id; may be repeated.")]

# More replayed letters than fit on a screen are a number; --json has them all.
_SHOWN = 20


@app.command("list")
@connected
def list_(
    connection: Connection,
    group: Group,
    topic: Topic = None,
    tags: Tags = SUBSCRIBE_ALL,
    key: Key = None,
    ids: Ids = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=100_000, help="Show the newest so many.")] = 20,
    scan: Annotated[int, typer.Option(min=1, max=100_000, help="Look at so many of each queue.")] = 100_000,
    bodies: Annotated[bool, typer.Option("--bodies", "-b", help="Show what they say, too.")] = False,
    json: Json = False,
) -> None:
    """Show the dead letters of a group, and how many there are of each topic. None is consumed."""
    wanted = _wanted(ids, key, tags, topic, since, until)
    with connection.admin() as admin:
        found = admin.dead_letters(group, limit, scan=scan, **wanted)
    if json:
        print_json(found.to_dict())
        return
    if bodies:
        _print_bodies(found)
    elif found.letters:
        _print_letters(found.letters)
    _print_counts(found)


@app.command("try")
@connected
def try_(
    connection: Connection,
    group: Group,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="An id of the dead letter.")],
    client: Annotated[str | None, typer.Option(help="The member's client id; any member without it.")] = None,
    json: Json = False,
) -> None:
    """Give one dead letter to a running member's listener and show what it says, or raises. The letter stays.

    The listener really runs: what it does to the world, it does. The exit code is 1 if the message fails again.
    """
    with connection.admin() as admin:
        done = admin.try_dead_letter(group, message_id, client_id=client)
    if json:
        print_json(done.to_dict())
    else:
        out = output()
        style = "green" if done.succeeded else "red"
        out.print(f"{_text(done.client_id)}: [{style}]{_text(done.result)}[/] after {done.spent_ms} ms", soft_wrap=True)
        for line in (done.remark or "").splitlines():
            print(f"    {showable(line)}", file=out.file)
    if not done.succeeded:
        raise typer.Exit(1)


@app.command()
@connected
def replay(
    connection: Connection,
    group: Group,
    to: Annotated[str | None, typer.Option(metavar="TOPIC", help="To this topic instead of the original one.")] = None,
    to_retry: Annotated[
        bool, typer.Option("--to-retry", help="To this group only, through its retry topic: no other group gets them.")
    ] = False,
    topic: Topic = None,
    tags: Tags = SUBSCRIBE_ALL,
    key: Key = None,
    ids: Ids = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="Replay the oldest so many.")] = None,
    rate: Annotated[float | None, typer.Option(help="At most so many messages per second.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Those too that were replayed there before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    json: Json = False,
) -> None:
    """Send the dead letters of a group again, oldest first, each once. They stay among the dead letters.

    A copy keeps body, tags, keys, properties and unique id; DLQ_REPLAYED_FROM says where it was taken from. When a send
    fails the command ends and says what was replayed; the same command goes on from there.
    """
    wanted = _wanted(ids, key, tags, topic, since, until)
    order: _Order = {
        "to": to,
        "to_retry": to_retry,
        "limit": limit,
        "rate": rate,
        "again": again,
        "dry_run": dry_run,
    }
    sent = 0
    try:
        with connection.admin() as admin, progress_bar() as bar:
            task = bar.add_task("looked at" if dry_run else "replayed", total=limit)

            def count(letter: ReplayedLetter) -> None:
                nonlocal sent
                sent += letter.fate is LetterFate.REPLAYED
                bar.advance(task, letter.fate in (LetterFate.REPLAYED, LetterFate.WOULD_BE_REPLAYED))

            report = admin.replay_dead_letters(group, each=count, **order, **wanted)
    except ReplayStoppedError as stopped:
        _print_report(stopped.report, json)
        raise
    except KeyboardInterrupt:
        tell(f"{sent} replayed before it ended; what was under way may be replayed too")
        raise
    _print_report(report, json)
    if report.count(LetterFate.SKIPPED):
        raise typer.Exit(1)


class _Order(TypedDict):
    to: str | None
    to_retry: bool
    limit: int | None
    rate: float | None
    again: bool
    dry_run: bool


def _wanted(
    ids: list[str] | None, key: str | None, tags: str, topic: str | None, since: str | None, until: str | None
) -> Wanted:
    now = SystemClock().wall_ms()

    def moment(name: str, text: str | None) -> Moment | None:
        return None if text is None else parse_moment(name, text, now)

    return {
        "ids": ids or (),
        "key": key,
        "tags": tags,
        "topic": topic,
        "since": moment("--since", since),
        "until": moment("--until", until),
    }


def _print_letters(letters: tuple[DeadLetter, ...]) -> None:
    out = output()
    if not is_wide(out):
        for one in letters:
            named = "".join(
                f"  {name}={_text(text)}" for name, text in (("tags", one.tags), ("keys", one.keys)) if text
            )
            head = f"[bold]{local_time(one.store_timestamp)}[/]  {_text(one.origin_topic)}  {_text(one.message_id)}"
            out.print(f"{head}{named}  [yellow]{one.why}[/]  {one.size} bytes  {_place(one)}", soft_wrap=True)
        return
    shown = table(
        "dead since", "topic", "message id", "tags", "keys", "why", "sent", "bytes", "place", numbers=("bytes",)
    )
    for one in letters:
        shown.add_row(
            local_time(one.store_timestamp),
            _text(one.origin_topic),
            _text(one.message_id),
            _text(one.tags),
            _text(one.keys),
            one.why,
            local_time(one.born_timestamp),
            str(one.size),
            _place(one),
        )
    out.print(shown)


def _place(one: DeadLetter | ReplayedLetter) -> str:
    return _text(f"{one.broker_name}:{one.queue_id}:{one.queue_offset}")


def _print_bodies(found: DeadLetters) -> None:
    out = output()
    for one in found.letters:
        out.print(
            f"[bold]{_text(one.origin_topic)}[/]: {one.why}, sent {local_time(one.born_timestamp)}", soft_wrap=True
        )
        print_message(out, one.message, properties=True)


def _print_counts(found: DeadLetters) -> None:
    if not found.total:
        tell(f"No dead letter of group {found.group} matches, of {found.scanned} looked at.")
        return
    out = output()
    for topic, count in found.counts.items():
        out.print(f"{count} of topic [bold]{escape(topic) or '(unknown)'}[/]")
    more = "" if found.complete else f"; older ones were not looked at (--scan {found.scanned})"
    out.print(f"Group [bold]{escape(found.group)}[/]: {found.total} dead letters, {len(found.letters)} shown{more}")


def _print_report(report: ReplayReport, json: bool) -> None:
    if json:
        print_json(report.to_dict())
        return
    out = output()
    if report.letters:
        shown = table("message id", "topic", "place", "what", "to")
        told = [one for one in report.letters if one.fate is LetterFate.SKIPPED] + [
            one for one in report.letters if one.fate is not LetterFate.SKIPPED
        ]
        for one in told[:_SHOWN]:
            what = one.fate.value if one.why is None else f"{one.fate.value}: {one.why}"
            shown.add_row(_text(one.message_id), _text(one.origin_topic), _place(one), _text(what), _text(one.target))
        out.print(shown)
        if len(told) > _SHOWN:
            out.print(f"... and {len(told) - _SHOWN} more (--json shows them all)")
    for topic, groups in report.other_groups.items():
        would, who = "would get" if report.dry_run else "get", ", ".join(groups)
        warn(f"Topic {topic} is consumed by others, who {would} them too: {who} (--to-retry: {report.group} alone)")
    done = "would be replayed; nothing was done (--dry-run)" if report.dry_run else "replayed"
    before, skipped = report.count(LetterFate.ALREADY_REPLAYED), report.count(LetterFate.SKIPPED)
    parts = [f"{report.replayed} {done}"]
    parts += [f"{before} replayed before (--again replays them once more)"] if before else []
    parts += [f"{skipped} skipped"] if skipped else []
    out.print(f"Group [bold]{escape(report.group)}[/]: {'; '.join(parts)}")


def _text(value: str | None) -> str:
    """A text of somebody else's in a table."""
    return cell(None if value is None else showable(value))
