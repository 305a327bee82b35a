"""The ``penstock`` command line: every command has its own module, and is listed here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import checkpoint, demo, doctor, ingest, journal, kafka, rate, ui
from penstock.cli.log import LogFormat, log_to_stderr, report_error
from penstock.errors import PenstockError

app = typer.Typer(name="penstock", no_args_is_help=True)
for _command in (demo, doctor, checkpoint, ingest, journal, kafka, rate, ui):
    app.add_typer(_command.app)


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
    log_format: Annotated[
        LogFormat,
        typer.Option(envvar="PENSTOCK_LOG_FORMAT", help="Format of the log on standard error."),
    ] = LogFormat.text,
) -> None:
    """Durable push ingestion, back pressure and recoverable checkpoints for PySpark jobs."""
    if log_format == LogFormat.json:
        log_to_stderr(log_format=log_format)


def main() -> None:
    """Run the command line; penstock's own errors are one line, not a traceback."""
    log_to_stderr()
    try:
        app()
    except PenstockError as error:
        report_error(error)
        sys.exit(1)
