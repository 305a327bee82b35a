"""Calls into a receiver's own code, which may hang or fail; the host has to survive that."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["HungError", "call_within", "uncaught_errors_to"]

_log = logging.getLogger(__name__)


class HungError(Exception):
    """A call did not return in time; its thread continues, as threads cannot be ended."""


def call_within(
    call: Callable[[], None],
    timeout_ms: int,
    poll_ms: int,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Make a call in a separate thread and wait for it; call ``meanwhile`` at each poll.

    Raises:
        HungError: it did not return within ``timeout_ms``.
        Exception: what the call raises.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=run, name="penstock-receiver-call", daemon=True)
    thread.start()
    deadline_s = time.monotonic() + timeout_ms / 1000
    while thread.is_alive():
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise HungError(f"it did not return within {timeout_ms / 1000:g} s")
        thread.join(min(left_s, poll_ms / 1000))
        if thread.is_alive():
            meanwhile()
    if failures:
        raise failures[0]


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
