"""Time, injected: engine code asks a Clock, so tests can step it (penstock.testing.ManualClock)."""

from __future__ import annotations

import threading
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What the engine knows of time. All times are milliseconds since the Unix epoch."""

    def time_ms(self) -> int:
        """Return the current time in milliseconds."""
        ...

    def wait_until(self, time_ms: int, cancelled: threading.Event) -> bool:
        """Block until ``time_ms`` has come (return True) or ``cancelled`` is set (return False)."""
        ...


class SystemClock:
    """The machine's clock."""

    def time_ms(self) -> int:
        """Return the current time in milliseconds."""
        return time.time_ns() // 1_000_000

    def wait_until(self, time_ms: int, cancelled: threading.Event) -> bool:
        """Block until ``time_ms`` has come (return True) or ``cancelled`` is set (return False)."""
        while not cancelled.is_set():
            remaining_ms = time_ms - self.time_ms()
            if remaining_ms <= 0:
                return True
            # Short waits, so that a stepped system clock is noticed within a second.
            cancelled.wait(min(remaining_ms, 1000) / 1000)
        return False
