"""``penstock journal consumers``: who reads a journal's streams, and how far behind they are."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.journal_facts import look_at_stream
from penstock.cli.journal_places import (
    JsonOption,
    PathArgument,
    open_journal,
    open_stream,
    open_streams,
)
from penstock.errors import ConfigError
from penstock.journal import consumers, remove_consumer

__all__ = ["app"]

app = typer.Typer(
    name="consumers", no_args_is_help=True, help="List a journal's consumers, remove one."
)


@app.command("ls")
def list_consumers(
    path: PathArgument,
    stream: Annotated[
        str | None, typer.Argument(help="Only this stream.", show_default="all")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the consumers that hold blocks back, and how many records each has yet to commit."""
    facts = [look_at_stream(each) for each in open_streams(open_journal(path), stream)]
    if as_json:
        listing = {each.stream: [asdict(consumer) for consumer in each.consumers] for each in facts}
        typer.echo(json.dumps(listing))
        return
    table = Table("stream", "consumer", "records behind")
    table.columns[2].justify = "right"
    for each in facts:
        for consumer in each.consumers:
            table.add_row(each.stream, consumer.consumer, str(consumer.lag))
    Console(markup=False, highlight=False).print(table)


@app.command("rm")
def remove(
    path: PathArgument,
    stream: Annotated[str, typer.Argument(help="The stream.")],
    consumer: Annotated[str, typer.Argument(help="The consumer.")],
) -> None:
    """Forget a consumer that is gone for good: what it has not read is no longer kept for it.

    One that still runs comes back with its next commit, and may find its records retired: stop it
    first.
    """
    found = open_stream(open_journal(path), stream)
    known = consumers(found)
    if consumer not in known:
        raise ConfigError(
            f"stream {stream!r} has no consumer {consumer!r}",
            operation="remove consumer",
            path=found.storage.url,
            hint=f"name one of: {', '.join(known)}" if known else "the stream has no consumers",
        )
    remove_consumer(found, consumer)
    typer.echo(f"removed {consumer} from {stream}")
