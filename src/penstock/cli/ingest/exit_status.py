"""The exit statuses of the ingest process, for people and service managers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.cli.output import print_line
from penstock.errors import ConfigError, FencedError, JournalFullError, PenstockError

__all__ = ["exit_status"]

_STATUS: tuple[tuple[type[PenstockError], int], ...] = (
    (ConfigError, 2),
    (FencedError, 3),
    (JournalFullError, 4),
    (PenstockError, 1),
)
"""In this order; usage errors of the command line also have status 2."""


@contextmanager
def exit_status() -> Iterator[None]:
    """End the process with one line and the status of an error of penstock's own."""
    try:
        yield
    except PenstockError as error:
        print_line(f"penstock: error: {error}", err=True)
        sys.exit(next(status for kind, status in _STATUS if isinstance(error, kind)))
