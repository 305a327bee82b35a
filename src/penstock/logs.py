"""Where penstock logs: to the loggers at and below ``penstock``, through Python's ``logging``.

Handlers and levels are the program's to choose, so none but this file's is added, and never to the
root logger. For a program that configures nothing Python prints warnings on standard error as bare
messages (``logging.lastResort``). Here they have time, level and logger, too; as soon as a program
adds a handler of its own that would take them, this one is silent.
"""

from __future__ import annotations

import logging
import sys

__all__ = ["FORMAT", "TIME_FORMAT", "add_last_resort"]

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S%z"
"""ISO 8601, local time with its offset."""


class _LastResort(logging.Handler):
    """Prints warnings while no other handler would take them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_alone(logging.getLogger(record.name)):
            try:
                print(self.format(record), file=sys.stderr)
            except Exception:
                self.handleError(record)

    def _is_alone(self, logger: logging.Logger | None) -> bool:
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


def add_last_resort() -> None:
    """Have warnings printed with time and level unless the program chooses otherwise."""
    logging.getLogger("penstock").addHandler(_LastResort())
