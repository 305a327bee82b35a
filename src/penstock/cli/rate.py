"""``penstock rate``: shows the rates of a program, and sets overrides at run time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.output import print_line, printable
from penstock.cli.plots import draw_rates
from penstock.cli.rate_facts import StreamRates, open_location, program_streams, read_rates
from penstock.errors import ConfigError
from penstock.rate import EndedBatch, RateOverride, RateOverrides

__all__ = ["app"]

app = typer.Typer(
    name="rate", invoke_without_command=True, help="Show a program's rates, change its limits."
)

_Checkpoint = Annotated[str, typer.Option(help="The program's checkpoint location.")]
_Stream = Annotated[str | None, typer.Option(help="Only this input.", show_default="all")]


@app.callback()
def show_rates(
    context: typer.Context,
    checkpoint: _Checkpoint = "",
    stream: _Stream = None,
    last: Annotated[int, typer.Option(min=1, help="Batches to show for each input.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all batches.")] = False,
    plot: Annotated[
        str | None, typer.Option(help="Draw all batches to this .png or .svg file.")
    ] = None,
) -> None:
    """Show each input's limits and the rates that followed from its last batches."""
    if context.invoked_subcommand is not None:
        return
    if not checkpoint:
        raise typer.BadParameter(
            "give the program's checkpoint location", param_hint="--checkpoint"
        )
    found = read_rates(open_location(checkpoint), stream)
    if plot is not None:
        draw_rates(plot, {each.stream: [b.decision for b in each.batches] for each in found})
        typer.echo(f"drawn to {plot}")
    elif as_json:
        typer.echo(json.dumps({"checkpoint": checkpoint, "streams": [asdict(f) for f in found]}))
    else:
        for each in found:
            _print_stream(Console(markup=False, highlight=False), each, last)


@app.command("set")
def set_rate(
    rate: Annotated[
        str, typer.Argument(help="Records per second, or 'default' for the program's own setting.")
    ],
    checkpoint: _Checkpoint,
    stream: _Stream = None,
) -> None:
    """Set the highest rate of inputs, for batches and receivers."""
    max_rate = None if rate == "default" else _number(rate)
    _override(checkpoint, stream, lambda override: replace(override, max_rate=max_rate))


@app.command("pause")
def pause(checkpoint: _Checkpoint, stream: _Stream = None) -> None:
    """Pause receiving and processing of inputs until they are resumed."""
    _override(checkpoint, stream, lambda override: replace(override, paused=True))


@app.command("resume")
def resume(checkpoint: _Checkpoint, stream: _Stream = None) -> None:
    """Resume inputs that were paused."""
    _override(checkpoint, stream, lambda override: replace(override, paused=False))


def _override(
    checkpoint: str, stream: str | None, change: Callable[[RateOverride], RateOverride]
) -> None:
    storage = open_location(checkpoint)
    overrides = RateOverrides(storage)
    for name in program_streams(storage, stream):
        override = change(overrides.get(name))
        overrides.set(name, override)
        print_line(f"{name}: {_describe(override)}")
    typer.echo("Takes effect within a second if the program is running, otherwise when it starts.")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as e:
        raise ConfigError(
            f"the rate {text!r} is not a number",
            operation="set rate",
            hint="give records per second, such as 5000 or 0.5, or 'default'",
        ) from e


def _describe(override: RateOverride) -> str:
    highest = (
        "highest rate of the program's settings"
        if override.max_rate is None
        else f"highest rate overridden: {override.max_rate:,g} records/s"
    )
    return f"paused; {highest}" if override.paused else highest


def _print_stream(console: Console, facts: StreamRates, last: int) -> None:
    print_line(f"{facts.stream} ({_describe(facts.override)})")
    if not facts.batches:
        console.print("no batch had a limit: back pressure is off, and no highest rate is set\n")
        return
    table = Table("batch", "ended", "records", "limit", "took ms", "late ms", "rate/s", "reason")
    for column in table.columns[:1] + table.columns[2:-1]:
        column.justify = "right"
    for batch in facts.batches[-last:]:
        table.add_row(*_row(batch))
    console.print(table)
    if hidden := len(facts.batches) - last:
        console.print(f"and {hidden} before (--last)" if hidden > 0 else "")


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
        printable(decision.why),
    )


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
