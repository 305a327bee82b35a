"""Ticks of the batch interval that no batch was planned for yet. Plain state, for one thread."""

from __future__ import annotations

from collections import deque

__all__ = ["DueTicks"]


class DueTicks:
    """Merges ticks into the latest one, or keeps each, where a result is due for every slide."""

    def __init__(self, *, keep_all: bool) -> None:
        self._keep_all = keep_all
        self._times_ms: deque[int] = deque()

    @property
    def times_ms(self) -> tuple[int, ...]:
        """The ticks that wait, in order."""
        return tuple(self._times_ms)

    def add(self, time_ms: int) -> None:
        """Take a tick that is later than all before it."""
        if not self._keep_all:
            self._times_ms.clear()
        self._times_ms.append(time_ms)

    def take(self) -> int | None:
        """Return the tick to plan a batch for next, None when there is none."""
        return self._times_ms.popleft() if self._times_ms else None
