"""Calls back once each period, at multiples of the period."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.clock import Clock

__all__ = ["RecurringTimer"]


class RecurringTimer:
    """Source: ``org.apache.spark.streaming.util.RecurringTimer``.

    A callback that is late does not shift the ones after it: every period gets its call.
    """

    def __init__(
        self, clock: Clock, period_ms: int, callback: Callable[[int], None], name: str
    ) -> None:
        self._clock = clock
        self._period_ms = period_ms
        self._callback = callback
        self._stopped = threading.Event()
        self._next_ms = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def first_tick_after(self, time_ms: int) -> int:
        """Return the first multiple of the period after that time."""
        return (time_ms // self._period_ms + 1) * self._period_ms

    def start(self, first_ms: int) -> None:
        """Begin; the first call is for ``first_ms``."""
        self._next_ms = first_ms
        self._thread.start()

    def stop(self) -> int:
        """Call back no more; return the time that the next call would have been for."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        return self._next_ms

    def _run(self) -> None:
        while self._clock.wait_until(self._next_ms, self._stopped):
            self._callback(self._next_ms)
            self._next_ms += self._period_ms
