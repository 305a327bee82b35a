"""``penstock journal skip`` and ``penstock journal losses``: skipped records."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.journal_places import (
    PathArgument,
    names,
    open_journal,
    open_location,
    open_stream,
)
from penstock.cli.options import JsonOption
from penstock.cli.output import print_json, print_line
from penstock.cli.tables import table_lines
from penstock.errors import ConfigError
from penstock.journal.losses.loss_log import Loss, read_losses, source_folder
from penstock.journal.losses.skip import check_skip, skip
from penstock.model import OffsetRange

_COLUMNS = ("stream", "writer", "offsets", "records", "when", "who", "reason")
_RANGE = re.compile(r"(.+):([0-9]{1,19})-([0-9]{1,19})")


def skip_records(
    path: PathArgument,
    stream: Annotated[str, typer.Argument(help="The stream.")],
    records: Annotated[
        str, typer.Argument(metavar="WRITER:START-END", help="Records to skip; END is exclusive.")
    ],
    reason: Annotated[str, typer.Option(help="The reason, for the loss log.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Skip damaged or missing records for good; readers leave them out from then on.

    Refused for records that can be read, or that may still be written.

    The stream's loss log records it; `penstock journal losses` prints the log.
    """
    found = open_stream(open_journal(path), stream)
    wanted = _parse(records)
    told = f"{wanted.count} records {records} of stream {stream}"
    if not yes and check_skip(found, wanted):
        typer.confirm(f"{told} cannot be read. Skip them for good?", abort=True)
    is_new = skip(found, wanted, reason) is not None
    if as_json:
        facts = {"writer": wanted.partition, "start": wanted.start_offset, "end": wanted.end_offset}
        print_json({"stream": stream, **facts, "records": wanted.count, "skipped_now": is_new})
    elif not is_new:
        print_line(f"{told} were skipped already")
    else:
        print_line(f"{told} are skipped")


def list_losses(
    path: PathArgument,
    stream: Annotated[
        str | None, typer.Argument(help="Only this stream.", show_default="all")
    ] = None,
    as_json_object: JsonOption = False,
) -> None:
    """Print the records that were skipped, or lost before they were read: which, when, and why."""
    journal = open_journal(path)
    of_inputs = _losses_of_inputs(path, stream)
    of_streams = [] if stream in of_inputs else names(journal, stream)
    logs = {name: read_losses(journal, name) for name in of_streams} | of_inputs
    if as_json_object:
        entries = [_as_json(name, loss) for name, losses in logs.items() for loss in losses]
        typer.echo(json.dumps({"journal": journal.url, "losses": entries}))
        return
    rows = [_as_row(name, loss) for name, losses in logs.items() for loss in losses]
    for line in table_lines(_COLUMNS, rows) if rows else ["nothing was skipped"]:
        print_line(line)


def _losses_of_inputs(path: str, only: str | None) -> dict[str, list[Loss]]:
    """Return the loss logs of inputs without a journal, such as Kafka topics."""
    location = open_location(path)
    if location is None:
        return {}
    inputs = [entry.name for entry in location.list("sources") if entry.is_folder]
    wanted = [name for name in inputs if only in (None, name)]
    logs = {name: read_losses(location, source_folder(name)) for name in wanted}
    return {name: losses for name, losses in logs.items() if losses}


def _parse(text: str) -> OffsetRange:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"{text!r} is not a range of records",
            operation="skip records",
            hint="give WRITER:START-END, such as r0-00000003:1000-1250, with an exclusive end",
        )
    return OffsetRange(match[1], int(match[2]), int(match[3]))


def _as_row(stream: str, loss: Loss) -> tuple[object, ...]:
    records = loss.records
    return (
        stream,
        records.partition,
        f"{records.start_offset}..{records.end_offset}",
        records.count,
        loss.when,
        f"{loss.who}@{loss.host}",
        loss.reason,
    )


def _as_json(stream: str, loss: Loss) -> dict[str, object]:
    facts = asdict(loss)
    records = facts.pop("records")
    return {
        "stream": stream,
        "writer": records["partition"],
        "start_offset": records["start_offset"],
        "end_offset": records["end_offset"],
        "records": loss.records.count,
        **facts,
    }
