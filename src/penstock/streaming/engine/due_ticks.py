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
    """When the first one came: from then on the batch is late."""
    is_missed: bool = False
    """Whether it passed while no batches were planned; see penstock.streaming.core.missed_ticks."""
    follows_missed: bool = False
    """Whether those that were missed before it are planned already."""


class DueTicks:
    """Merges ticks into the latest one, or keeps each, where a result is due for every slide."""

    def __init__(self, *, keep_all: bool) -> None:
        self._keep_all = keep_all
        self._ticks: deque[DueTick] = deque()

    @property
    def next_ms(self) -> int | None:
        """The time of the batch to plan next, None when there is none."""
        return self._ticks[0].time_ms if self._ticks else None

    @property
    def late_since_ms(self) -> int | None:
        """The first tick that waits for earlier batches to end, None without one."""
        return next((tick.since_ms for tick in self._ticks if not tick.is_missed), None)

    def add(self, time_ms: int, since_ms: int) -> None:
        """Take a tick that is later than all before it."""
        if self._keep_all or not self._ticks:
            self._ticks.append(DueTick(time_ms, since_ms))
        else:
            self._ticks[0] = DueTick(time_ms, self._ticks[0].since_ms)

    def put_first(self, ticks: Sequence[DueTick]) -> None:
        """Take ticks that come before all others."""
        self._ticks.extendleft(reversed(ticks))

    def take(self) -> DueTick | None:
        """Return the tick to plan a batch for next, None when there is none."""
        return self._ticks.popleft() if self._ticks else None
