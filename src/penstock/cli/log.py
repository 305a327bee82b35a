"""The logging of commands: standard error, coloured on a terminal, plain for files and journald."""

from __future__ import annotations

import logging
import sys

from rich.logging import RichHandler

from penstock.logs import FORMAT, TIME_FORMAT

__all__ = ["log_to_stderr"]


def log_to_stderr(level: int = logging.WARNING) -> None:
    """Log what penstock says from that level on, and warnings of all others.

    A second call only changes the level.
    """
    handler: logging.Handler
    if sys.stderr.isatty():
        handler = RichHandler(show_path=False, log_time_format=TIME_FORMAT)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("penstock").setLevel(level)
