"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading


class ManualClock:
    """A ``penstock.clock.Clock`` that tests step. Thread-safe.

    Args:
        time_ms: where its wall clock stands at first, milliseconds since the epoch.
    """

    def __init__(self, time_ms: int = 0) -> None:
        self._time_ms = time_ms
        self._monotonic_ms = 0
        self._moved = threading.Condition()

    def time_ms(self) -> int:
        """Return the time that the wall clock stands at."""
        with self._moved:
            return self._time_ms

    def monotonic_ms(self) -> int:
        """Return by how much the clock was advanced in all."""
        with self._moved:
            return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        """Let time pass, and wake what waits for a time that has come."""
        with self._moved:
            self._time_ms += by_ms
            self._monotonic_ms += by_ms
            self._moved.notify_all()

    def set_wall(self, by_ms: int) -> None:
        """Set the wall clock forward, or back when ``by_ms`` is negative; no time passes."""
        with self._moved:
            self._time_ms += by_ms

    def wait_until(self, monotonic_ms: int, cancelled: threading.Event) -> bool:
        """Block until ``monotonic_ms`` has come, or ``cancelled`` is set."""
        with self._moved:
            while self._monotonic_ms < monotonic_ms and not cancelled.is_set():
                # The event cannot wake this condition, so check it now and then.
                self._moved.wait(0.02)
            return not cancelled.is_set()
