"""Text for people, on a terminal: what files and records hold must not control it.

Every command prints through this module what is not JSON. A terminal obeys control characters
(escape sequences move the cursor, set its title, hide text) and directions of writing; text that
came from elsewhere shows them as escapes, as Python writes them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_CONTROL = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"  # C0 without the tab, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directions
    "\u2028\u2029\ud800-\udfff]"  # ends of lines and paragraphs, bytes that are not UTF-8
)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural if need be: ``1 file``, ``3 files``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """Return text as one line that a terminal shows as it is."""
    return _CONTROL.sub(_escape, text)


def print_line(text: str, *, err: bool = False) -> None:
    """Print one line, to standard error if ``err``."""
    typer.echo(printable(text), err=err)


def print_text(text: str) -> None:
    """Print text that may have several lines."""
    for line in text.split("\n"):
        print_line(line)


def print_json(value: object) -> None:
    """Print plain values, dataclasses among them, as one JSON object."""
    typer.echo(json.dumps(value, default=_fields))


def _fields(value: DataclassInstance) -> dict[str, object]:
    """Return a plain value's fields; unlike asdict, without copies of all that is in them."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "backslashreplace").decode("ascii")


# -- progress bars: on standard error, and only if that is a terminal --

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
