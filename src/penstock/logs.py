"""Where penstock logs: to the loggers at and below ``penstock``, through Python's ``logging``.

Handlers and levels are the program's to choose, so none but this file's is added, and never to the
root logger. For a program that configures nothing Python prints warnings on standard error as bare
messages (``logging.lastResort``). Here they have time, level and logger, too, and a logger of
penstock's for which a program sets a level shows what that level lets through; as soon as a program
adds a handler of its own that would take them, this one is silent.

TRACE is a level finer than DEBUG, for messages about every batch. It has its name as soon as
``penstock`` is imported: ``logging.getLogger("penstock.rate.pid").setLevel("TRACE")``.

What programs parse, such as the line of a batch, is an ``Event``: ``key=value`` pairs as text, and
fields of their own with the ``JsonFormatter``. docs/logs.md lists them.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping

__all__ = ["FORMAT", "TIME_FORMAT", "TRACE", "Event", "JsonFormatter", "add_last_resort"]

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""Of text lines: time, level, logger, message."""
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S%z"
"""ISO 8601, local time with its offset."""


TRACE = 5
"""Below logging.DEBUG; other libraries also use 5, so one handler's filter works for all."""
logging.addLevelName(TRACE, "TRACE")

_BARE = re.compile(r"[\w.:/+@%,-]+")


class Event:
    """A message with named values: ``batch batch_id=12 result=committed``. Pass it as the message.

    Values of None are left out; text with blanks or signs such as quotes is written as in JSON.
    """

    def __init__(self, name: str, fields: Mapping[str, str | int | float | None]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        known = ((key, value) for key, value in self.fields.items() if value is not None)
        return " ".join((self.name, *(f"{key}={_quoted(str(value))}" for key, value in known)))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the fields of an ``Event``.

    The time is ISO 8601 in UTC. An exception's traceback is in ``exception``. For any handler:
    ``handler.setFormatter(JsonFormatter())``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        from penstock.clock import iso_time  # `import penstock` imports this module, and is fast

        line: dict[str, object] = {
            "time": iso_time(round(record.created * 1000)),
            "level": record.levelname,
            "logger": record.name,
        }
        event = record.msg
        if isinstance(event, Event):
            line["message"] = event.name
            line.update((key, value) for key, value in event.fields.items() if value is not None)
        else:
            line["message"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _quoted(text: str) -> str:
    return text if _BARE.fullmatch(text) else json.dumps(text)


class _LastResort(logging.Handler):
    """Prints warnings, and what a level lets through, while no other handler would take them."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        logger = logging.getLogger(record.name)
        is_wanted = record.levelno >= logging.WARNING or _has_level(logger)
        if is_wanted and self._is_alone(logger):
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


def _has_level(logger: logging.Logger | None) -> bool:
    """Whether the program set a level for it, or for one above it that is penstock's."""
    while logger is not None and logger is not logging.root:
        if logger.level != logging.NOTSET:
            return True
        logger = logger.parent
    return False


def add_last_resort() -> None:
    """Have warnings printed with time and level unless the program chooses otherwise."""
    logging.getLogger("penstock").addHandler(_LastResort())
