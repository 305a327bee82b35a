"""The line of a job's error that says what went wrong: the exception of the user's code, and where.

What a function raises in a task comes to the driver as text, the worker's traceback inside the
JVM's: some hundred lines. Pure.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterable

from penstock.errors import one_line, printable

_PACKAGE = os.path.join(os.path.dirname(__file__), "")
_STDLIB = sysconfig.get_path("stdlib")
_TRACE = "Traceback (most recent call last):\n"
_JVM_FRAME = "\n\tat "
_FRAME = re.compile(r'^  File "([^"\n]+)", line ([0-9]+), in ', re.MULTILINE)
_JAVA_CAUSE = re.compile(r"^(?:Caused by)?: (.+)$", re.MULTILINE)
_NOT_USERS = re.compile(
    r"/(?:site|dist)-packages/|/pyspark/|\bpyspark\.zip/|/lib/python3|^<frozen "
)
_CHARS = 1000


def root_cause(error: BaseException) -> str:
    """Return an error's root cause on one line, with file and line of the user's code if known."""
    text = "".join(traceback.format_exception_only(printable(error)))
    called = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    place = _users_place(called)
    if trace := _worker_trace(text):
        place = _users_place(_FRAME.findall(trace)) or place
        raised = _first_line(trace)
    elif _JVM_FRAME in text and (causes := _JAVA_CAUSE.findall(text)):
        raised = causes[-1]
    else:
        raised = _first_line(text)
    raised = one_line(raised[:_CHARS])
    return f"{raised}, at {place}" if place else raised


def raised_by_worker(text: str) -> str:
    """Return type and message, the first line, of what a Python worker raised; "" if none did."""
    return _first_line(_worker_trace(text))


def _worker_trace(text: str) -> str:
    """Return the frames and the last exception of the first trace of a Python worker."""
    _, begin, rest = text.partition(_TRACE)
    return (begin + rest).split(_JVM_FRAME, 1)[0].rpartition(_TRACE)[2]


def _first_line(text: str) -> str:
    """Return the first line that is not indented, as those of frames and source lines are."""
    return next((line for line in text.split("\n") if line and not line[0].isspace()), "")


def _users_place(frames: Iterable[tuple[str, object]]) -> str:
    """Return the innermost place that is neither of a library nor of this package."""
    places = [f"{name}:{line}" for name, line in frames if _is_users(name)]
    return places[-1] if places else ""


def _is_users(filename: str) -> bool:
    return not (filename.startswith((_PACKAGE, _STDLIB)) or _NOT_USERS.search(filename))
