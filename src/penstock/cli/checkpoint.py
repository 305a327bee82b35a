"""``penstock checkpoint``: shows the checkpoint location of any query. What is here only reads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.batched.inspection import is_checkpoint_path
from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.tools import (
    diff_batches,
    diff_locations,
    inspect,
    validate,
)
from penstock.cli.checkpoint_changes import app as changes
from penstock.cli.checkpoint_path import inspect_batches
from penstock.cli.checkpoint_text import (
    batch_diff_lines,
    batch_lines,
    inspection_lines,
    location_diff_lines,
    validation_lines,
)
from penstock.cli.kafka_conf import ConfOption, client_settings
from penstock.cli.kafka_readers import find_readers
from penstock.cli.options import JsonOption, LagBrokersOption, LocationArgument
from penstock.cli.output import print_json, print_line
from penstock.clock import SystemClock

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

app = typer.Typer(
    name="checkpoint",
    no_args_is_help=True,
    help="The checkpoint location of a Structured Streaming query or penstock program.",
)
app.add_typer(changes)

_EXIT_STATUS = {"warning": 1, "error": 2}
"""By the worst finding; notes are harmless."""


@app.command("inspect")
def inspect_location(
    location: LocationArgument,
    batch: Annotated[int | None, typer.Option(min=0, help="All about this batch.")] = None,
    last: Annotated[int, typer.Option(min=1, help="Number of newest batches to show.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all batches.")] = False,
    brokers: LagBrokersOption = None,
    conf: ConfOption = [],  # noqa: B006 - typer copies it
) -> None:
    """Show where a query stands; exit status 2 if it cannot start."""
    if is_checkpoint_path(location):
        if brokers is not None or conf:
            raise typer.BadParameter("for such a path: penstock kafka lag", param_hint="--brokers")
        inspect_batches(location, as_json=as_json)
        return
    if batch is not None:
        found = inspect(location, batch_ids=[batch])
    else:
        found = inspect(location, last=None if as_json else last)
    if brokers is not None or conf:
        found = replace(found, lag={**found.lag, **_topic_lag(location, brokers, conf)})
    if batch is not None:
        lines = batch_lines(found.batches[0], found.problems)
    else:
        lines = inspection_lines(found, now_ms=SystemClock().time_ms())
    _show(found, lines, as_json=as_json)
    if batch is None and found.next.problem is not None:
        raise typer.Exit(_EXIT_STATUS["error"])


def _topic_lag(location: str, brokers: str | None, conf: list[str]) -> dict[str, int]:
    """Return the records that Kafka has after the newest batch, by source."""
    settings = client_settings(brokers, conf)
    from penstock.kafka.brokers import records_behind  # needs confluent-kafka

    return {each.name: records_behind(settings, each.ends) for each in find_readers(location)}


@app.command("diff")
def diff(
    location: LocationArgument,
    others: Annotated[
        list[str],
        typer.Argument(metavar="A B | OTHER", help="Two batch ids, or another location."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show what changed between two batches, or differs between two locations."""
    is_batch = parse_batch_id(others[0]) is not None and not os.path.exists(others[0])
    if len(others) == 1 and not is_batch:
        locations = diff_locations(location, others[0])
        _show(locations, location_diff_lines(locations), as_json=as_json)
        return
    left, right = map(parse_batch_id, others) if len(others) == 2 else (None, None)
    if left is None or right is None:
        raise typer.BadParameter(
            f"give two batch ids (A B), or one other location: {' '.join(others)} is neither",
            param_hint="A B | OTHER",
        )
    batches = diff_batches(location, left, right)
    _show(batches, batch_diff_lines(batches), as_json=as_json)


@app.command("validate")
def validate_location(
    location: LocationArgument,
    as_json: JsonOption = False,
) -> None:
    """Find what is damaged or missing; exit status 1 with warnings, 2 with errors."""
    if is_checkpoint_path(location):
        raise typer.BadParameter("for such a path: penstock checkpoint inspect")
    found = validate(location)
    _show(found, validation_lines(found), as_json=as_json)
    if status := _EXIT_STATUS.get(found.severity or "note"):
        raise typer.Exit(status)


def _show(found: DataclassInstance, lines: Iterable[str], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for line in lines:
        print_line(line)
