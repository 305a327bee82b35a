"""Time, injected: engine code asks a Clock, so tests can step it (penstock.testing.ManualClock).

The wall clock says what time it is, for batch times and for people. It jumps when it is set. So
whatever waits, or measures how long something took, goes by the monotonic clock.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone
from typing import Protocol


def iso_time(time_ms: int) -> str:
    """Return a time, milliseconds since the Unix epoch, as people read it: ISO 8601, in UTC.

    A number that no calendar has, as damaged files may hold, is returned as it is.
    """
    try:
        time = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Clock(Protocol):
    """What the engine knows of time."""

    def time_ms(self) -> int:
        """Return the wall clock's time, milliseconds since the Unix epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Return how many milliseconds passed since some moment that stays the same."""
        ...

    def wait_until(self, monotonic_ms: int, cancelled: threading.Event) -> bool:
        """Block until ``monotonic_ms`` has come (return True), or ``cancelled`` is set (False)."""
        ...


class SystemClock:
    """The machine's clocks."""

    def time_ms(self) -> int:
        """Return the wall clock's time, milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return how many milliseconds passed since the machine was started, or so."""
        return time.monotonic_ns() // 1_000_000

    def wait_until(self, monotonic_ms: int, cancelled: threading.Event) -> bool:
        """Block until ``monotonic_ms`` has come (return True), or ``cancelled`` is set (False)."""
        while not cancelled.is_set():
            remaining_ms = monotonic_ms - self.monotonic_ms()
            if remaining_ms <= 0:
                return True
            cancelled.wait(remaining_ms / 1000)
        return False


class SteadyClock:
    """A wall clock that is read once, and then follows the monotonic one: it never jumps.

    Args:
        clock: the machine's clocks.
        from_ms: where it begins, milliseconds since the Unix epoch; the wall clock's time if None.
    """

    def __init__(self, clock: Clock | None = None, from_ms: int | None = None) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        begin_ms = self._clock.time_ms() if from_ms is None else from_ms
        self._ahead_ms = begin_ms - self._clock.monotonic_ms()

    def time_ms(self) -> int:
        """Return the time, milliseconds since the Unix epoch, or about that."""
        return self._clock.monotonic_ms() + self._ahead_ms
