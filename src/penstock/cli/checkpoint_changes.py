"""``penstock checkpoint``'s commands that change a location: a plan, done with ``--apply``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Annotated, Any

import typer

from penstock.checkpoint.log_format import parse_json
from penstock.checkpoint.tools import (
    Plan,
    TopicCheck,
    apply_fork,
    apply_import,
    apply_plan,
    describe_evidence,
    export_location,
    plan_fields,
    plan_fork,
    plan_import,
    plan_promote,
    plan_repair,
    plan_rewind,
    plan_undo,
    worst,
)
from penstock.cli.checkpoint_path import refuse_batches
from penstock.cli.checkpoint_text import plan_lines
from penstock.cli.kafka_conf import ConfOption, client_settings
from penstock.cli.options import (
    NOT_YET,
    ApplyOption,
    CheckBrokersOption,
    LocationArgument,
    NewLocationArgument,
    PlanJsonOption,
    StoppedOption,
)
from penstock.cli.output import counted, print_json, print_line
from penstock.cli.progress import progress_bar
from penstock.kafka.held import noted_ids
from penstock.kafka.identified import IdentifiedOffsets
from penstock.status import size

__all__ = ["EXIT_STATUS", "app", "parse_time", "show_or_apply"]

app = typer.Typer()

EXIT_STATUS = {"warning": 1, "error": 2}
"""By the worst finding; notes are harmless."""

_Sink = Annotated[
    str | None,
    typer.Option(help="Output folder of Spark's own file sink, which goes back, too."),
]


@app.command("rewind")
def rewind(
    location: LocationArgument,
    to_batch: Annotated[int | None, typer.Option(min=0, help="Back to the end of it.")] = None,
    to_offsets: Annotated[
        str | None, typer.Option(help='JSON such as {"0":{"logOffset":5}}, or a file of it.')
    ] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option(help="Back to the newest batch planned by then: ISO 8601 (UTC), or ms."),
    ] = None,
    shift_by: Annotated[int | None, typer.Option(min=1, help="Go back N batches.")] = None,
    sink: _Sink = None,
    drop_state: Annotated[
        bool, typer.Option("--drop-state", help="Empty the state instead of taking it back.")
    ] = False,
    brokers: CheckBrokersOption = None,
    conf: ConfOption = [],  # noqa: B006 - typer copies it
    apply: ApplyOption = False,
    stopped: StoppedOption = False,
    as_json: PlanJsonOption = False,
) -> None:
    """Go back to an earlier point: later records are processed again."""
    refuse_batches(location)
    plan = plan_rewind(
        location,
        to_batch=to_batch,
        to_offsets=None if to_offsets is None else _parse_offsets(to_offsets),
        to_timestamp_ms=None
        if to_timestamp is None
        else parse_time(to_timestamp, "--to-timestamp"),
        shift_by=shift_by,
        sink=sink,
        drop_state=drop_state,
        are_held=_topic_check(location, brokers, conf),
    )
    show_or_apply(plan, apply=apply, stopped=stopped, as_json=as_json)


@app.command("promote")
def promote(
    location: LocationArgument,
    batch: Annotated[int, typer.Argument(metavar="N", min=0, help="A batch that is done.")],
    sink: _Sink = None,
    brokers: CheckBrokersOption = None,
    conf: ConfOption = [],  # noqa: B006 - typer copies it
    apply: ApplyOption = False,
    stopped: StoppedOption = False,
    as_json: PlanJsonOption = False,
) -> None:
    """Make the query continue from an old entry, with its settings."""
    refuse_batches(location)
    plan = plan_promote(location, batch, sink=sink, are_held=_topic_check(location, brokers, conf))
    show_or_apply(plan, apply=apply, stopped=stopped, as_json=as_json)


@app.command("repair")
def repair(
    location: LocationArgument,
    sink: _Sink = None,
    apply: ApplyOption = False,
    stopped: StoppedOption = False,
    as_json: PlanJsonOption = False,
) -> None:
    """Fix what can be fixed without a choice; exit status as of `validate`, by what is left."""
    plan = plan_repair(location, sink=sink)
    show_or_apply(plan, apply=apply, stopped=stopped, as_json=as_json)
    if status := EXIT_STATUS.get(worst(plan.left) or "note"):
        raise typer.Exit(status)


@app.command("undo")
def undo(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What --apply named.")],
    apply: ApplyOption = False,
    stopped: StoppedOption = False,
    as_json: PlanJsonOption = False,
) -> None:
    """Take a change back, if no query has run on the location since."""
    show_or_apply(plan_undo(file), apply=apply, stopped=stopped, as_json=as_json)


@app.command("fork")
def fork(
    location: LocationArgument,
    target: NewLocationArgument,
    sink: Annotated[
        str | None,
        typer.Option(help="A new folder, to which the second query writes with Spark's file sink."),
    ] = None,
    apply: ApplyOption = False,
    as_json: PlanJsonOption = False,
) -> None:
    """Copy a location, so that a second query continues from it; the first may run."""
    plan = plan_fork(location, target, sink=sink)
    if not as_json:
        print_line(f"{plan.location}: fork {plan.target}")
        print_line(f"  copy {counted(len(plan.files), 'file')}, {size(plan.size_bytes)}")
        for sentence in plan.meaning:
            print_line(f"- {sentence}")
    fork_id = None
    if apply:
        with progress_bar("copy", len(plan.files) + len(plan.appended)) as advance:
            fork_id = apply_fork(plan, advance)
    if as_json:
        entries = [change.place for change in plan.sink_changes]
        appended = [change.path for change in plan.appended]
        names = ("location", "target", "batch_id", "files", "size_bytes", "meaning")
        facts = {name: getattr(plan, name) for name in names}
        files = {"appended": appended, "sink": entries}
        print_json({**facts, **files, "applied": apply, "id": fork_id})
    else:
        print_line(f"done: {plan.target} has id {fork_id}" if apply else NOT_YET)


@app.command("export")
def export(
    location: LocationArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file.")],
    as_json: PlanJsonOption = False,
) -> None:
    """Write a location to one JSON file."""
    data = export_location(location)
    try:
        with open(file, "xb") as new:
            new.write(data)
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="FILE") from error
    if as_json:
        print_json({"location": location, "file": file, "size_bytes": len(data)})
    else:
        print_line(f"{file}: {size(len(data))}")


@app.command("import")
def import_location(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `export` wrote.")],
    target: NewLocationArgument,
    apply: ApplyOption = False,
    as_json: PlanJsonOption = False,
) -> None:
    """Make a location from a JSON file, with the same id."""
    try:
        with open(file, "rb") as exported:
            plan = plan_import(exported.read(), target)
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="FILE") from error
    if not as_json:
        print_line(f"{plan.target}: import of {plan.location}, {counted(len(plan.files), 'file')}")
    if apply:
        apply_import(plan)
    if as_json:
        facts = {"location": plan.location, "target": plan.target, "files": sorted(plan.files)}
        print_json({**facts, "applied": apply})
    else:
        print_line("done" if apply else NOT_YET)


def show_or_apply(plan: Plan, *, apply: bool, stopped: bool, as_json: bool) -> None:
    """Print a plan, and do what it says if that is asked for."""
    if not as_json:
        for line in plan_lines(plan, describe_evidence(plan) if plan.changes else None):
            print_line(line)
    is_done = apply and bool(plan.changes)
    undo_file = None
    if is_done:
        with progress_bar("change", len(plan.changes)) as advance:
            undo_file = apply_plan(plan, stopped=stopped, on_step=advance)
    if as_json:
        facts = {"location": plan.location, **plan_fields(plan), "left": plan.left}
        print_json({**facts, "applied": is_done, "undo": undo_file})
    elif plan.changes and not is_done:
        print_line(NOT_YET)
    elif is_done and plan.command.startswith("undo "):
        print_line("done")
    elif is_done:
        undo = shlex.quote(undo_file or "")
        print_line(f"done; to take it back: penstock checkpoint undo {undo} --apply")


def _topic_check(location: str, brokers: str | None, conf: list[str]) -> TopicCheck | None:
    if brokers is None and not conf:
        return None
    settings = client_settings(brokers, conf)
    from penstock.kafka.brokers import check_topics_have  # needs confluent-kafka

    def check(begins: Mapping[str, int]) -> None:
        check_topics_have(settings, IdentifiedOffsets(begins, noted_ids(location)))

    return check


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
    try:
        if text.isdecimal():
            return int(text)
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    return int((when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp() * 1000)
