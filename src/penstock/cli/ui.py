"""``penstock ui``: the dashboard about any locations, live or dead."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from penstock.cli.output import print_line
from penstock.shutdown import wait_in_steps
from penstock.ui import DashboardSettings, start_dashboard
from penstock.ui.serve import DEFAULT_PORT

app = typer.Typer()


@app.command("ui")
def ui(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Checkpoint locations and journals: folders or URLs."
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Address to bind to; off loopback a token is required.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="TCP port; 0 takes any free one.")] = DEFAULT_PORT,
    token_file: Annotated[
        str | None,
        typer.Option(
            help="File with a token: pages ask for it, and rates can be changed.",
            show_default=False,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A name under which a proxy serves it. May be repeated."),
    ] = None,
) -> None:
    """Serve pages about programs, queries and journals: whether they keep up, and what was lost.

    It reads what they write, and only when a page is open. It changes nothing, but for rates with
    a token.
    """
    settings = DashboardSettings(host, port, token_file, tuple(allow_host or ()))
    dashboard = start_dashboard(paths, settings)
    print_line(f"The dashboard is at {dashboard.url} (Ctrl-C ends it)")
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    wait_in_steps(ended.wait)
    dashboard.close()
