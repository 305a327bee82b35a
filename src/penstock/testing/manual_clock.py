"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading

__all__ = ["ManualClock"]


class ManualClock:
    """A ``penstock.clock.Clock`` that tests step. Thread-safe.

    Args:
        time_ms: where it stands at first, milliseconds since the epoch.
    """

    def __init__(self, time_ms: int = 0) -> None:
        self._time_ms = time_ms
        self._moved = threading.Condition()

    def time_ms(self) -> int:
        """Return the time that the clock stands at."""
        with self._moved:
            return self._time_ms

    def advance(self, by_ms: int) -> None:
        """Move the clock on, and wake what waits for a time that has come."""
        with self._moved:
            self._time_ms += by_ms
            self._moved.notify_all()

    def wait_until(self, time_ms: int, cancelled: threading.Event) -> bool:
        """Block until the clock stands at ``time_ms`` or later, or ``cancelled`` is set."""
        with self._moved:
            while self._time_ms < time_ms and not cancelled.is_set():
                # The event cannot wake this condition, so look at it now and then.
                self._moved.wait(0.02)
            return not cancelled.is_set()
