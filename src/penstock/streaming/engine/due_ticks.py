"""Ticks of the batch interval that no batch was planned for yet. Plain state, for one thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["DueTick", "DueTicks"]


class DueTick(NamedTuple):
    """A tick that a batch is due for."""

    time_ms: int
    """The batch's time: that of the last tick that was merged into it."""
    since_ms: int
    """The time of the first merged tick: from then on the batch is late."""
    is_missed: bool = False
    """Whether it passed without a batch; see penstock.streaming.core.missed_ticks."""


class DueTicks:
    """Merges ticks into the latest one; earlier missed ticks come first, one by one."""

    def __init__(self) -> None:
        self._missed: deque[DueTick] = deque()
        self._latest: DueTick | None = None
        self._missed_are_known = False

    @property
    def next_ms(self) -> int | None:
        """The time of the batch to plan next, None without one."""
        tick = self._missed[0] if self._missed else self._latest
        return None if tick is None else tick.time_ms

    @property
    def late_since_ms(self) -> int | None:
        """The first tick that waits for earlier batches to end, None without one."""
        return None if self._latest is None else self._latest.since_ms

    def add(self, time_ms: int, since_ms: int) -> None:
        """Add a tick that is later than all earlier ones."""
        since_ms = since_ms if self._latest is None else self._latest.since_ms
        self._latest = DueTick(time_ms, since_ms)
        self._missed_are_known = False

    def add_missed(self, ticks: Sequence[DueTick]) -> None:
        """Add ticks that were missed before the latest one, and after all other missed ones."""
        self._missed.extend(ticks)
        self._missed_are_known = True

    @property
    def unknown_before_ms(self) -> int | None:
        """The next tick, before which ticks may have been missed, None without one."""
        if self._missed or self._latest is None or self._missed_are_known:
            return None
        return self._latest.time_ms

    def take(self) -> DueTick | None:
        """Return the tick to plan a batch for next, None without one."""
        if self._missed:
            return self._missed.popleft()
        tick, self._latest = self._latest, None
        return tick
