"""``penstock top``: the overview of the dashboard in a terminal, also over ssh."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from penstock.cli.options import JsonOption
from penstock.cli.output import print_json
from penstock.cli.top_view import view
from penstock.status import LocationStatus, SharedStatus, Unreadable, health

__all__ = ["app"]

app = typer.Typer()


@app.command("top")
def top(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Checkpoint locations and journals: paths, URLs."),
    ],
    interval: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds between two refreshes.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what programs, queries and journals do, live; Ctrl-C ends it."""
    shared = SharedStatus(paths)
    if as_json:
        print_json({"locations": [_as_json(each) for each in shared.all(None)]})
        return
    console = Console(markup=False, highlight=False)
    if once or not console.is_terminal:
        console.print(view(shared.all(None), console.width))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it, too, leaves the screen
    with (
        suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            title = Text(time.strftime("%H:%M:%S  Ctrl-C ends"), style="dim")
            live.update(Group(title, view(shared.all(), console.width)), refresh=True)
            time.sleep(interval)


def _as_json(status: LocationStatus | Unreadable) -> dict[str, Any]:
    found = asdict(status)
    return (
        found | {"health": asdict(health(status))} if isinstance(status, LocationStatus) else found
    )
