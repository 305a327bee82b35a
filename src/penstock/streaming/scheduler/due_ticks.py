"""Ticks of the batch interval that no batch was planned for yet. Plain state, for one thread."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

__all__ = ["DueTick", "DueTicks"]


class DueTick(NamedTuple):
    """A tick that a batch is due for."""

    time_ms: int
    """The batch's time: that of the last tick that was merged into it."""
    since_ms: int
    """That of the first one: from then on the batch is late."""


class DueTicks:
    """Merges ticks into the latest one, or keeps each, where a result is due for every slide."""

    def __init__(self, *, keep_all: bool) -> None:
        self._keep_all = keep_all
        self._ticks: deque[DueTick] = deque()

    @property
    def times_ms(self) -> tuple[int, ...]:
        """The ticks that wait, in order."""
        return tuple(tick.time_ms for tick in self._ticks)

    def add(self, time_ms: int) -> None:
        """Take a tick that is later than all before it."""
        if self._keep_all or not self._ticks:
            self._ticks.append(DueTick(time_ms, time_ms))
        else:
            self._ticks[0] = DueTick(time_ms, self._ticks[0].since_ms)

    def take(self) -> DueTick | None:
        """Return the tick to plan a batch for next, None when there is none."""
        return self._ticks.popleft() if self._ticks else None
