"""The location of an operation's call in a user's program."""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
"""Spelled as in frames, which may be relative, as ``./src/penstock``."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """An operation and its location: ``short`` for tables, ``long`` with the call stack."""

    operation: str
    short: str
    long: str


def user_call_site() -> CallSite:
    """Return the operation of this package that the program called, and the location.

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
