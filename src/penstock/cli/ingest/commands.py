"""The commands of ``penstock ingest``: each makes a receiver from its options."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.ingest.custom import make_custom
from penstock.cli.ingest.options import with_ingest_options
from penstock.cli.ingest.process import run_ingest
from penstock.receivers import Receiver, SocketReceiver, TailReceiver

__all__ = ["app"]

app = typer.Typer(
    name="ingest",
    no_args_is_help=True,
    help="Receive into a journal without Spark, so that ingestion goes on while Spark restarts. "
    "SIGTERM or SIGINT ends it: what it holds becomes durable first. Exit status 0 after a stop, "
    "1 after an error, 2 for wrong options, 3 when another process took over, 4 when the journal "
    "is full and --when-full is fail.",
)
_ingest = with_ingest_options(run_ingest)


@app.command("socket")
@_ingest
def socket(
    host: Annotated[str, typer.Option(help="The server to connect to.", show_default=False)],
    port: Annotated[int, typer.Option(help="Its TCP port.", show_default=False)],
) -> Receiver:
    """Receive lines that a TCP server sends."""
    return SocketReceiver(host, port)


@app.command("tail")
@_ingest
def tail(
    paths: Annotated[
        list[str], typer.Argument(help="Files or globs (quoted, so that new files are seen).")
    ],
    from_beginning: Annotated[
        bool, typer.Option(help="At the very first start: read what the files hold already.")
    ] = True,
) -> Receiver:
    """Follow growing files as tail -F does, each line exactly once."""
    return TailReceiver(paths, from_beginning=from_beginning)


@app.command("custom")
@_ingest
def custom(
    receiver_class: Annotated[
        str, typer.Argument(metavar="MODULE:CLASS", help="A subclass of Receiver.")
    ],
    arg: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE",
            help="An argument of the class; the value is JSON, or else text. May come again.",
        ),
    ] = [],  # noqa: B006 - typer copies it
) -> Receiver:
    """Run a receiver of your own."""
    return make_custom(receiver_class, arg)
