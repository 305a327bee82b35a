"""``penstock checkpoint``'s commands that change a location: a plan, done with ``--apply``."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from typing import Annotated, Any

import typer

from penstock.checkpoint.log_format import parse_json
from penstock.checkpoint.tools import (
    Plan,
    TopicCheck,
    apply_fork,
    apply_plan,
    plan_fields,
    plan_fork,
    plan_promote,
    plan_rewind,
    plan_undo,
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
)
from penstock.cli.output import counted, print_json, print_line, progress_bar
from penstock.status import size

app = typer.Typer()


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
    drop_state: Annotated[
        bool, typer.Option("--drop-state", help="Empty the state instead of taking it back.")
    ] = False,
    brokers: CheckBrokersOption = None,
    conf: ConfOption = [],  # noqa: B006 - typer copies it
    apply: ApplyOption = False,
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
        else _parse_time(to_timestamp, "--to-timestamp"),
        shift_by=shift_by,
        drop_state=drop_state,
        are_held=_topic_check(brokers, conf),
    )
    _show_or_apply(plan, apply=apply, as_json=as_json)


@app.command("promote")
def promote(
    location: LocationArgument,
    batch: Annotated[int, typer.Argument(metavar="N", min=0, help="A batch that is done.")],
    brokers: CheckBrokersOption = None,
    conf: ConfOption = [],  # noqa: B006 - typer copies it
    apply: ApplyOption = False,
    as_json: PlanJsonOption = False,
) -> None:
    """Make the query continue from an old entry, with its settings."""
    refuse_batches(location)
    plan = plan_promote(location, batch, are_held=_topic_check(brokers, conf))
    _show_or_apply(plan, apply=apply, as_json=as_json)


@app.command("undo")
def undo(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What --apply named.")],
    apply: ApplyOption = False,
    stopped: Annotated[
        bool,
        typer.Option(
            "--stopped", help="The command that was interrupted has ended, on an object store."
        ),
    ] = False,
    as_json: PlanJsonOption = False,
) -> None:
    """Take a change back, if no query has run on the location since."""
    _show_or_apply(plan_undo(file), apply=apply, stopped=stopped, as_json=as_json)


@app.command("fork")
def fork(
    location: LocationArgument,
    target: NewLocationArgument,
    apply: ApplyOption = False,
    as_json: PlanJsonOption = False,
) -> None:
    """Copy a location, so that a second query continues from it; the first may run."""
    plan = plan_fork(location, target)
    if not as_json:
        print_line(f"{plan.location}: fork {plan.target}")
        print_line(f"  copy {counted(len(plan.files), 'file')}, {size(plan.size_bytes)}")
        for sentence in plan.meaning:
            print_line(f"- {sentence}")
    fork_id = None
    if apply:
        with progress_bar("copy", len(plan.files)) as advance:
            fork_id = apply_fork(plan, advance)
    if as_json:
        print_json({**asdict(plan), "applied": apply, "id": fork_id})
    else:
        print_line(f"done: {plan.target} has id {fork_id}" if apply else NOT_YET)


def _show_or_apply(plan: Plan, *, apply: bool, stopped: bool = False, as_json: bool) -> None:
    """Print a plan, and do what it says if that is asked for; ``stopped`` as for apply_plan."""
    if not as_json:
        for line in plan_lines(plan):
            print_line(line)
    is_done = apply and bool(plan.changes)
    undo_file = None
    if is_done:
        with progress_bar("change", len(plan.changes)) as advance:
            undo_file = apply_plan(plan, stopped=stopped, on_step=advance)
    if as_json:
        facts = {"location": plan.location, **plan_fields(plan)}
        print_json({**facts, "applied": is_done, "undo": undo_file})
    elif plan.changes and not is_done:
        print_line(NOT_YET)
    elif is_done and plan.command.startswith("undo "):
        print_line("done")
    elif is_done:
        undo = shlex.quote(undo_file or "")
        print_line(f"done; to take it back: penstock checkpoint undo {undo} --apply")


def _topic_check(brokers: str | None, conf: list[str]) -> TopicCheck | None:
    if brokers is None and not conf:
        return None
    settings = client_settings(brokers, conf)
    from penstock.kafka.brokers import check_topics_have  # needs confluent-kafka

    return partial(check_topics_have, settings)


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


def _parse_time(text: str, option: str) -> int:
    """Return the time that an option says, in ms since the epoch."""
    try:
        if text.isdecimal():
            return int(text)
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    return int((when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp() * 1000)
