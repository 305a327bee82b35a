"""``penstock checkpoint``: shows the checkpoint location of any query. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.checkpoint.tools import inspect
from penstock.cli.checkpoint_text import batch_lines, inspection_lines
from penstock.clock import SystemClock

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["app"]

app = typer.Typer(
    name="checkpoint",
    no_args_is_help=True,
    help="Show the checkpoint location of a Structured Streaming query or penstock program.",
)

_Location = Annotated[
    str, typer.Argument(metavar="DIR", help="The checkpoint location: a folder or URL.")
]


@app.command("inspect")
def inspect_location(
    location: _Location,
    batch: Annotated[int | None, typer.Option(min=0, help="All about this batch.")] = None,
    last: Annotated[int, typer.Option(min=1, help="Number of newest batches to show.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all batches.")] = False,
) -> None:
    """Show where a query stands: batches, offsets, what runs next, state."""
    if batch is not None:
        found = inspect(location, batch_ids=[batch])
    else:
        found = inspect(location, last=None if as_json else last)
    if as_json:
        typer.echo(_json(found))
    elif batch is not None:
        _print(batch_lines(found.batches[0], found.problems))
    else:
        _print(inspection_lines(found, now_ms=SystemClock().time_ms()))


def _json(found: DataclassInstance) -> str:
    return json.dumps(found, default=_fields)


def _fields(value: DataclassInstance) -> dict[str, object]:
    """Return a plain value's fields; unlike asdict, without copies of all that is in them."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)
