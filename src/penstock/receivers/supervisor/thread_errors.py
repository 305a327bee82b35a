"""Threads of a receiver's own code, which may fail; the host has to hear of that."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)


@contextmanager
def uncaught_errors_to(report: Callable[[str, BaseException | None], None]) -> Iterator[None]:
    """Report threads that end with an exception to ``report``, instead of a text on stderr.

    For a process that runs one receiver: all threads count as the receiver's.
    """
    before = threading.excepthook

    def hook(failed: threading.ExceptHookArgs) -> None:
        name = "?" if failed.thread is None else failed.thread.name
        _log.error(
            "Thread %s failed",
            name,
            exc_info=failed.exc_value,
        )
        report(f"thread {name} failed", failed.exc_value)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
