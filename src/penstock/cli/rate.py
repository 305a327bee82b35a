"""``penstock rate``: shows the rates of a program, and sets overrides at run time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated

import typer

from penstock.checkpoint import CheckpointLocation
from penstock.cli.options import JsonOption
from penstock.cli.output import print_json, print_line
from penstock.cli.tables import table_lines
from penstock.rate import EndedBatch, RateOverride
from penstock.status.rate_facts import (
    StreamRates,
    change_overrides,
    open_location,
    parse_rate,
    read_rates,
)

app = typer.Typer(
    name="rate", invoke_without_command=True, help="Show a program's rates, change its limits."
)

_EFFECT = (
    "Takes effect within a second in a running DStream program, with the next batch in a running "
    "Structured Streaming query (after its very first batch), otherwise when it starts."
)
_COLUMNS = ("batch", "ended", "records", "limit", "took ms", "late ms", "rate/s", "reason")
_Checkpoint = Annotated[str, typer.Option(help="The program's checkpoint location.")]
_Stream = Annotated[str | None, typer.Option(help="Only this input.", show_default="all")]


@app.callback()
def show_rates(
    context: typer.Context,
    checkpoint: _Checkpoint = "",
    stream: _Stream = None,
    last: Annotated[int, typer.Option(min=1, help="Batches to show for each input.")] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with all batches, and reasons in full.")
    ] = False,
) -> None:
    """Show each input's limits and the rates that followed from its last batches."""
    if context.invoked_subcommand is not None:
        return
    if not checkpoint:
        raise typer.BadParameter(
            "give the program's checkpoint location", param_hint="--checkpoint"
        )
    storage = open_location(checkpoint)
    found = read_rates(storage, stream)
    if as_json:
        typer.echo(json.dumps({"checkpoint": checkpoint, "streams": [asdict(f) for f in found]}))
    else:
        has_ended = bool(CheckpointLocation(storage).commits.batch_ids())
        for each in found:
            _print_stream(each, last, has_ended)


@app.command("set")
def set_rate(
    rate: Annotated[
        str, typer.Argument(help="Records per second, or 'default' for the program's own setting.")
    ],
    checkpoint: _Checkpoint,
    stream: _Stream = None,
    as_json: JsonOption = False,
) -> None:
    """Set the highest rate of inputs, for batches and receivers."""
    max_rate = None if rate == "default" else parse_rate(rate)
    _override(checkpoint, stream, as_json, lambda override: replace(override, max_rate=max_rate))


@app.command("pause")
def pause(checkpoint: _Checkpoint, stream: _Stream = None, as_json: JsonOption = False) -> None:
    """Pause receiving and processing of inputs until they are resumed."""
    _override(checkpoint, stream, as_json, lambda override: replace(override, paused=True))


@app.command("resume")
def resume(checkpoint: _Checkpoint, stream: _Stream = None, as_json: JsonOption = False) -> None:
    """Resume inputs that were paused."""
    _override(checkpoint, stream, as_json, lambda override: replace(override, paused=False))


def _override(
    checkpoint: str,
    stream: str | None,
    as_json: bool,
    change: Callable[[RateOverride], RateOverride],
) -> None:
    storage = open_location(checkpoint)
    changed = change_overrides(storage, stream, change)
    for name in () if as_json else changed:
        print_line(f"{name}: {_describe(changed[name])}")
    if as_json:
        print_json({"checkpoint": checkpoint, "overrides": changed})
    else:
        typer.echo(_EFFECT)


def _describe(override: RateOverride) -> str:
    highest = (
        "highest rate of the program's settings"
        if override.max_rate is None
        else f"highest rate overridden: {override.max_rate:,g} records/s"
    )
    return f"paused; {highest}" if override.paused else highest


def _print_stream(facts: StreamRates, last: int, has_ended: bool) -> None:
    print_line(f"{facts.stream} ({_describe(facts.override)})")
    if not facts.batches:
        off = "no batch had a limit: back pressure is off, and no highest rate is set"
        print_line(off if has_ended else "no batch has ended yet")
    else:
        rows = map(_row, facts.batches[-last:])
        for line in table_lines(_COLUMNS, rows, right=_COLUMNS[:1] + _COLUMNS[2:-1]):
            print_line(line)
        if (hidden := len(facts.batches) - last) > 0:
            print_line(f"and {hidden} before (--last)")
    typer.echo()


def _row(batch: EndedBatch) -> tuple[str, ...]:
    decision = batch.decision
    return (
        str(batch.batch_id),
        datetime.fromtimestamp(decision.time_ms / 1000).astimezone().strftime("%H:%M:%S"),
        f"{decision.num_elements:,}",
        "" if batch.limit is None else _short(batch.limit),
        str(decision.processing_delay_ms),
        str(decision.scheduling_delay_ms),
        _short(decision.rate),
        _in_short(decision.why),
    )


def _in_short(why: str) -> str:
    """Return a reason without the numbers that it came of: they are in the JSON."""
    word, _, terms = why.partition(": ")
    return word if any(each.isdigit() for each in terms) else why


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
