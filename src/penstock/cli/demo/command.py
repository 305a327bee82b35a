"""``penstock demo``: the command line of the demo."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from penstock.cli.demo.runner import run_demo
from penstock.cli.machine import check_java
from penstock.errors import ConfigError

app = typer.Typer()


@app.command("demo")
def demo(
    kills: Annotated[
        int, typer.Option(min=0, help="How often to kill the driver; each takes about 13 s more.")
    ] = 2,
    megabytes: Annotated[int, typer.Option(min=1, help="How much text to feed.")] = 40,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object, the last line.")
    ] = False,
) -> None:
    """Count words of growing log files on Spark through kill -9, and compare with a direct count.

    Exit status 1 unless every word that was fed is counted exactly once.
    """
    java = check_java(os.environ)
    if not java.ok:
        raise ConfigError(
            f"Spark needs Java {java.wanted}, found {java.found}",
            operation="run demo",
            hint=java.hint,
        )
    signal.signal(signal.SIGTERM, _exit)
    # With --json, standard output is for programs; people read the rest.
    console = Console(stderr=as_json)
    console.print(f"penstock demo: {megabytes} MB of source text, {kills} x kill -9", style="bold")
    started_s = time.monotonic()

    def tell(text: str) -> None:
        line = f"[dim]{time.monotonic() - started_s:6.1f} s[/]  {text}"
        console.print(line, highlight=False, soft_wrap=True)

    outcome = run_demo(megabytes * 1_000_000, kills, tell)
    good = outcome.is_good(kills)
    if as_json:
        typer.echo(json.dumps(outcome.to_json()))
    else:
        console.print(outcome.to_table())
        console.print(_verdict(good))
    if not good:
        raise typer.Exit(1)


def _exit(signum: int, _frame: Any) -> NoReturn:
    """End as by an exception, so that processes and files are cleaned up."""
    sys.exit(128 + signum)


def _verdict(good: bool) -> str:
    if good:
        return "[green]Every word that was fed is counted exactly once.[/]"
    return "[red]The totals differ from what was fed.[/]"
