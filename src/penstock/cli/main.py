"""The ``penstock`` command line: every command has its own module, and is listed here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.lazy import LazyCommand, lazy_group
from penstock.cli.log import LogFormat, log_to_stderr, report_error
from penstock.errors import PenstockError

__all__ = ["app", "main"]

_COMMANDS = {
    "demo": LazyCommand(
        "penstock.cli.demo.command",
        "Count words of growing log files on Spark through kill -9, and compare with a direct "
        "count.",
    ),
    "doctor": LazyCommand(
        "penstock.cli.doctor",
        "Report what is lacking for penstock; exit status 1 if a requirement is missing.",
    ),
    "checkpoint": LazyCommand(
        "penstock.cli.checkpoint",
        "The checkpoint location of a Structured Streaming query or penstock program.",
    ),
    "ingest": LazyCommand(
        "penstock.cli.ingest",
        "Receive into a journal without Spark, so that ingestion continues while Spark restarts.",
    ),
    "journal": LazyCommand("penstock.cli.journal", "Show, read, verify and repair a journal."),
    "kafka": LazyCommand(
        "penstock.cli.kafka",
        "Topics, and the offsets of queries, programs, receivers and groups.",
    ),
    "rate": LazyCommand("penstock.cli.rate", "Show a program's rates, change its limits."),
    "top": LazyCommand(
        "penstock.cli.top", "Show what programs, queries and journals do, live; Ctrl-C ends it."
    ),
    "ui": LazyCommand(
        "penstock.cli.ui",
        "Serve pages about programs, queries and journals: whether they keep up, and what was "
        "lost.",
    ),
}

app = typer.Typer(name="penstock", cls=lazy_group(_COMMANDS), no_args_is_help=True)


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
