"""``penstock journal consumers``: the readers of a journal's streams, and their lag."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.journal_places import (
    PathArgument,
    open_journal,
    open_stream,
    open_streams,
)
from penstock.cli.options import NOT_YET, ApplyOption, JsonOption
from penstock.cli.output import age_in_words, print_json, print_line
from penstock.cli.tables import table_lines
from penstock.conf import parse_duration_ms
from penstock.errors import ConfigError
from penstock.journal import remove_consumer
from penstock.journal.retention.consumer_files import consumer_names, expired_consumers
from penstock.journal.retention.expiry import expire
from penstock.status.stream_facts import ConsumerFacts, read_stream_facts

__all__ = ["app"]

app = typer.Typer(
    name="consumers",
    no_args_is_help=True,
    help="List a journal's consumers, remove or expire them.",
)
_COLUMNS = ("stream", "consumer", "records behind", "last commit", "process", "location")


@app.command("ls")
def list_consumers(
    path: PathArgument,
    stream: Annotated[
        str | None, typer.Argument(help="Only this stream.", show_default="all")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the consumers that hold blocks back, and how many records each has yet to commit.

    Also prints the time of the last commit, the process that last wrote, and its program's
    checkpoint location; readers other than programs have none of these.
    """
    streams = open_streams(open_journal(path), stream)
    facts = [read_stream_facts(each) for each in streams]
    if as_json:
        listing = {each.stream: [asdict(consumer) for consumer in each.consumers] for each in facts}
        typer.echo(json.dumps(listing))
        return
    rows = [_row(each.stream, one) for each in facts for one in each.consumers]
    for line in table_lines(_COLUMNS, rows, right=_COLUMNS[2:3]) if rows else ["no consumers"]:
        print_line(line)
    for damage in itertools.chain.from_iterable(each.damage for each in facts):
        print_line(f"DAMAGED: {damage}")
    for found in streams:
        for name in expired_consumers(found):
            print_line(f"EXPIRED: {name} of {found.name}; `rm` lets it begin again")


def _row(stream: str, facts: ConsumerFacts) -> tuple[object, ...]:
    program = facts.program
    if program is None:
        return (stream, facts.consumer, facts.lag, "-", "-", "-")
    committed = "none yet" if program.committed_ms is None else age_in_words(program.committed_ms)
    ended = " (ended)" if facts.has_process is False else ""
    process = f"{program.pid} on {program.host}{ended}"
    return (stream, facts.consumer, facts.lag, committed, process, program.location)


@app.command("rm")
def remove(
    path: PathArgument,
    stream: Annotated[str, typer.Argument(help="The stream.")],
    consumer: Annotated[str, typer.Argument(help="The consumer.")],
    as_json: JsonOption = False,
) -> None:
    """Remove a consumer that never comes back: its unread records are no longer kept for it.

    An expired consumer may begin again when it is removed, where its program's checkpoint says.

    Stop it first: a running consumer registers again with its next commit, and its records may be
    retired by then.
    """
    found = open_stream(open_journal(path), stream)
    # By the names of the files: an unreadable one can also be removed.
    known = sorted({*consumer_names(found), *expired_consumers(found)})
    if consumer not in known:
        raise ConfigError(
            f"stream {stream!r} has no consumer {consumer!r}",
            operation="remove consumer",
            path=found.storage.url,
            hint=f"name one of: {', '.join(known)}" if known else "the stream has no consumers",
        )
    remove_consumer(found, consumer)
    if as_json:
        print_json({"stream": stream, "removed": consumer})
    else:
        print_line(f"removed {consumer} from {stream}")


@app.command("expire")
def expire_consumers(
    path: PathArgument,
    after: Annotated[
        str, typer.Option(help="Age of the last commit and of what waits, such as 7d or 12h.")
    ],
    stream: Annotated[
        str | None, typer.Argument(help="Only this stream.", show_default="all")
    ] = None,
    apply: ApplyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Expire the consumers that have let records wait for long: they are no longer kept for them.

    One that is caught up is not expired, however long ago it last committed: it may be running.
    One that comes back ends with an error that says so, and begins again when `rm` has removed it.
    Readers that do not tell when they commit are not expired.
    """
    after_ms = parse_duration_ms("--after", after)
    streams = open_streams(open_journal(path), stream)
    found = [each for one in streams for each in expire(one, after_ms, apply=apply)]
    if as_json:
        print_json({"applied": apply, "expired": found})
        return
    now_ms = time.time_ns() // 1_000_000
    for each in found:
        what = "expired" if apply else "would expire"
        last = age_in_words(now_ms - each.idle_ms)
        since = age_in_words(now_ms - each.waiting_ms)
        print_line(
            f"{what} {each.consumer} of {each.stream}, whose last commit was {last}, and for which"
            f" records wait that were stored {since}"
        )
    if not found:
        print_line("no consumer has let records wait for so long")
    elif not apply:
        print_line(NOT_YET)
