"""``penstock journal consumers``: the readers of a journal's streams, and their lag."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.journal_places import (
    PathArgument,
    open_journal,
    open_stream,
    open_streams,
)
from penstock.cli.options import JsonOption
from penstock.cli.output import age_in_words, print_json, print_line
from penstock.cli.tables import table_lines
from penstock.errors import ConfigError
from penstock.journal import remove_consumer
from penstock.journal.retention.consumer_files import consumer_names
from penstock.status.stream_facts import ConsumerFacts, read_stream_facts

app = typer.Typer(
    name="consumers",
    no_args_is_help=True,
    help="List a journal's consumers, and remove them.",
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

    Stop it first: a running consumer registers again with its next commit, and its records may be
    retired by then.
    """
    found = open_stream(open_journal(path), stream)
    # By the names of the files: an unreadable one can also be removed.
    known = consumer_names(found)
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
