"""The common part of streams over windows of their parent."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.streaming.core.base import BaseDStream
from penstock.streaming.operations.window_times import window_ends


class SlidingWindows(BaseDStream):
    """The part of such a stream that holds the width and the slide of its windows."""

    needs_missed_ticks = True
    _window_ms: int
    _slide_ms: int

    @property
    def slide_ms(self) -> int:
        """The time between windows."""
        return self._slide_ms

    @property
    def parent_remember_ms(self) -> int:
        """One window longer than the retention of this stream."""
        return self.remember_ms + self._window_ms

    @property
    def records_last_ms(self) -> int:
        """The time for which a record of the parent affects windows."""
        return self._window_ms

    def times_with_records(self, parents_ms: Sequence[int], until_ms: int) -> Sequence[int]:
        """Return the ends of the windows that hold records of the parent."""
        return window_ends(
            parents_ms,
            window_ms=self.records_last_ms,
            slide_ms=self._slide_ms,
            zero_ms=self._initialized_at(),
            until_ms=until_ms,
        )
