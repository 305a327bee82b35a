"""Where in a user's program an operation was called."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CallSite", "user_call_site"]

_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class CallSite:
    """An operation and its place: ``short`` for tables, ``long`` with all calls that led there."""

    operation: str
    short: str
    long: str


def user_call_site() -> CallSite:
    """Return which operation of this package the program called, and where.

    Source: ``org.apache.spark.util.CallSite``.
    """
    frames = traceback.extract_stack()
    own = next(i for i, f in reversed(list(enumerate(frames))) if not _is_own(f)) + 1
    caller = frames[own - 1]
    place = f"{Path(caller.filename).name}:{caller.lineno}"
    operation = frames[own].name
    calls = [f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames[own - 1 :: -1]]
    return CallSite(operation, f"{operation} at {place}", "\n".join(calls))


def _is_own(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(_PACKAGE)
