"""Progress bars of long commands: on standard error, and only if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[int], None]
"""Takes how many steps were done."""


def is_shown() -> bool:
    """Whether a progress bar is shown, so that it is worth while to find the number of steps."""
    return sys.stderr.isatty()


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Advance]:
    """Show a bar while the block runs; ``total`` is None where the number is not known."""
    if not is_shown():
        yield lambda count: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        # Above the bar, unless it is not for this terminal.
        redirect_stdout=sys.stdout.isatty(),
    ) as shown:
        task = shown.add_task(title, total=total)
        yield lambda count: shown.advance(task, count)
