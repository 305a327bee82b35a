"""The ``penstock`` command line: every command has its own module and is registered here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.checkpoint import app as checkpoint
from penstock.cli.demo.command import demo
from penstock.cli.doctor import doctor
from penstock.cli.ingest import app as ingest
from penstock.cli.journal import app as journal
from penstock.cli.journal_consumers import app as journal_consumers
from penstock.cli.kafka import app as kafka
from penstock.cli.log import log_to_stderr
from penstock.cli.output import print_line
from penstock.cli.rate import app as rate
from penstock.cli.state import app as state
from penstock.errors import PenstockError

__all__ = ["app", "main"]

app = typer.Typer(name="penstock", no_args_is_help=True, add_completion=False)
app.command("demo")(demo)
app.command("doctor")(doctor)
app.add_typer(checkpoint)
app.add_typer(ingest)
journal.add_typer(journal_consumers)
app.add_typer(journal)
app.add_typer(kafka)
app.add_typer(rate)
app.add_typer(state)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Durable push ingestion, back pressure and recoverable checkpoints for PySpark jobs."""


def main() -> None:
    """Run the command line; penstock's own errors are one line, not a traceback."""
    log_to_stderr()
    try:
        app()
    except PenstockError as error:
        print_line(f"penstock: error: {error}", err=True)
        sys.exit(1)
