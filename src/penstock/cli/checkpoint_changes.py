"""``penstock checkpoint``'s commands that change a location: a plan, done with ``--apply``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from penstock.checkpoint.log_format import parse_json
from penstock.checkpoint.tools import (
    Plan,
    apply_fork,
    apply_import,
    apply_plan,
    describe_evidence,
    export_location,
    plan_fork,
    plan_import,
    plan_promote,
    plan_repair,
    plan_rewind,
    plan_undo,
)
from penstock.cli.output import print_line

__all__ = ["app", "parse_time", "show_or_apply"]

app = typer.Typer()

_NOT_YET = "nothing is changed yet: add --apply to do it"

_Location = Annotated[
    str, typer.Argument(metavar="DIR", help="The checkpoint location: a folder or URL.")
]
_Target = Annotated[str, typer.Argument(metavar="TO", help="A folder or URL with nothing in it.")]
_Apply = Annotated[bool, typer.Option("--apply", help="Do it; otherwise only the plan is shown.")]
_Stopped = Annotated[
    bool,
    typer.Option("--stopped", help="The query is stopped, although its files are fresh."),
]


@app.command("rewind")
def rewind(
    location: _Location,
    to_batch: Annotated[int | None, typer.Option(min=0, help="Back to the end of it.")] = None,
    to_offsets: Annotated[
        str | None, typer.Option(help='JSON such as {"0":{"logOffset":5}}, or a file of it.')
    ] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option(help="Back to the newest batch planned by then: ISO 8601 (UTC), or ms."),
    ] = None,
    shift_by: Annotated[int | None, typer.Option(min=1, help="So many batches back.")] = None,
    apply: _Apply = False,
    stopped: _Stopped = False,
) -> None:
    """Go back: what came after a point is read again, by new batch ids."""
    plan = plan_rewind(
        location,
        to_batch=to_batch,
        to_offsets=None if to_offsets is None else _parse_offsets(to_offsets),
        to_timestamp_ms=None
        if to_timestamp is None
        else parse_time(to_timestamp, "--to-timestamp"),
        shift_by=shift_by,
    )
    show_or_apply(plan, apply=apply, stopped=stopped)


@app.command("promote")
def promote(
    location: _Location,
    batch: Annotated[int, typer.Argument(metavar="N", min=0, help="A batch that is done.")],
    apply: _Apply = False,
    stopped: _Stopped = False,
) -> None:
    """Make an old entry the one that the query uses, with the settings in it."""
    show_or_apply(plan_promote(location, batch), apply=apply, stopped=stopped)


@app.command("repair")
def repair(location: _Location, apply: _Apply = False, stopped: _Stopped = False) -> None:
    """Fix what `validate` finds and can be fixed without a choice; say what is left."""
    show_or_apply(plan_repair(location), apply=apply, stopped=stopped)


@app.command("undo")
def undo(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What --apply named.")],
    apply: _Apply = False,
    stopped: _Stopped = False,
) -> None:
    """Take a change back, if no query has run on the location since."""
    show_or_apply(plan_undo(file), apply=apply, stopped=stopped)


@app.command("fork")
def fork(
    location: _Location,
    target: Annotated[
        str, typer.Argument(metavar="TO", help="A folder or URL with nothing in it.")
    ],
    apply: _Apply = False,
) -> None:
    """Copy a location, so that a second query continues from it; the first may run."""
    plan = plan_fork(location, target)
    print_line(f"{plan.location}: fork {plan.target}")
    print_line(f"  copy {len(plan.files)} files, {decimal(plan.size_bytes)}")
    for sentence in plan.meaning:
        print_line(f"- {sentence}")
    if apply:
        print_line(f"done: {plan.target} has id {apply_fork(plan)}")
    else:
        print_line(_NOT_YET)


@app.command("export")
def export(
    location: _Location,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file.")],
) -> None:
    """Write a location to one JSON file."""
    data = export_location(location)
    try:
        with open(file, "xb") as new:
            new.write(data)
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="FILE") from error
    print_line(f"{file}: {decimal(len(data))}")


@app.command("import")
def import_location(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `export` wrote.")],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="A folder or URL with nothing in it.")
    ],
    apply: _Apply = False,
) -> None:
    """Make a location from a JSON file, with the same id."""
    try:
        with open(file, "rb") as exported:
            plan = plan_import(exported.read(), target)
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="FILE") from error
    print_line(f"{plan.target}: import of {plan.location}, {len(plan.files)} files")
    if apply:
        apply_import(plan)
        print_line("done")
    else:
        print_line(_NOT_YET)


def show_or_apply(plan: Plan, *, apply: bool, stopped: bool) -> None:
    """Print a plan, and do what it says if that is asked for."""
    for line in _plan_lines(plan):
        print_line(line)
    if not plan.changes:
        return
    if not apply:
        print_line(_NOT_YET)
        return
    undo_file = apply_plan(plan, stopped=stopped)
    print_line(f"done; to take it back: penstock checkpoint undo {undo_file} --apply")


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield f"{plan.location}: {plan.command}"
    for change in plan.changes:
        yield f"  {_verb(change.before, change.after)} {change.path}  ({change.why})"
    for sentence in plan.meaning:
        yield f"- {sentence}"
    if plan.changes:
        yield f"- {describe_evidence(plan)}"


def _verb(before: object, after: object) -> str:
    if after is None:
        return "remove"
    return "create" if before is None else "replace"


def _parse_offsets(text: str) -> dict[str, Any]:
    try:
        if not text.lstrip().startswith("{"):
            with open(text, encoding="utf-8") as file:
                text = file.read()
        offsets = parse_json(text)
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(str(error), param_hint="--to-offsets") from error
    if not isinstance(offsets, dict):
        raise typer.BadParameter("give an object: source to offset", param_hint="--to-offsets")
    return offsets


def parse_time(text: str, option: str) -> int:
    """Return the time that an option says, in ms since the epoch."""
    if text.isdecimal():
        return int(text)
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    return int((when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp() * 1000)
