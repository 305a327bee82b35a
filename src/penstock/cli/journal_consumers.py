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
from penstock.cli.options import JsonOption
from penstock.cli.output import print_json, print_line
from penstock.cli.tables import table_lines
from penstock.errors import ConfigError
from penstock.journal import remove_consumer
from penstock.journal.retention.consumer_files import consumer_names
from penstock.status import ago
from penstock.status.model import ConsumerStatus
from penstock.status.streams import read_stream

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
    found = [read_stream(each) for each in streams]
    if as_json:
        listing = {each.name: [asdict(consumer) for consumer in each.consumers] for each in found}
        typer.echo(json.dumps(listing))
        return
    rows = [_row(each.name, one) for each in found for one in each.consumers]
    for line in table_lines(_COLUMNS, rows, right=_COLUMNS[2:3]) if rows else ["no consumers"]:
        print_line(line)
    for problem in itertools.chain.from_iterable(each.problems for each in found):
        print_line(f"DAMAGED: {problem}")


def _row(stream: str, found: ConsumerStatus) -> tuple[object, ...]:
    process, committed_ms = found.process, found.committed_ms
    if process is None:
        return (stream, found.name, found.lag_records, "-", "-", "-")
    committed = (
        "none yet" if committed_ms is None else ago(committed_ms, time.time_ns() // 1_000_000)
    )
    last_writer = f"{process.pid} on {process.host}"
    return (stream, found.name, found.lag_records, committed, last_writer, found.location)


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
