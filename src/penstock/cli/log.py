"""The logging of commands: standard error, coloured on a terminal, plain for files and journald."""

from __future__ import annotations

import logging
import sys
from enum import Enum

from rich.logging import RichHandler

from penstock.cli.output import print_line
from penstock.errors import PenstockError
from penstock.logs import FORMAT, TIME_FORMAT, JsonFormatter


class LogFormat(str, Enum):
    """How commands write their log."""

    text = "text"
    json = "json"


def log_to_stderr(level: int = logging.WARNING, log_format: LogFormat | None = None) -> None:
    """Log what penstock says from that level on, and warnings of all others.

    A later call changes the level, and the format if it has one.
    """
    is_first = not logging.getLogger().handlers
    if is_first or log_format is not None:
        handler = _handler(log_format or LogFormat.text)
        logging.basicConfig(level=logging.WARNING, handlers=[handler], force=not is_first)
    logging.getLogger("penstock").setLevel(level)


def report_error(error: PenstockError) -> None:
    """Print the error that ends a command: one line, in the log's format."""
    if any(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger().handlers):
        logging.getLogger("penstock").error(str(error))
    else:
        print_line(f"penstock: error: {error}", err=True)


def _handler(log_format: LogFormat) -> logging.Handler:
    handler: logging.Handler = logging.StreamHandler()
    if log_format == LogFormat.json:
        handler.setFormatter(JsonFormatter())
    elif sys.stderr.isatty():
        handler = RichHandler(show_path=False, log_time_format=TIME_FORMAT)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))
    return handler
