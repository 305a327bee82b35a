"""What streams over windows of their parent have in common, however they compute them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.streaming.core.base import BaseDStream
from penstock.streaming.operations.window_times import window_ends

__all__ = ["SlidingWindows"]


class SlidingWindows(BaseDStream):
    """The part of such a stream that knows how wide its windows are and how far apart."""

    needs_missed_ticks = True
    _window_ms: int
    _slide_ms: int

    @property
    def slide_ms(self) -> int:
        """How far apart windows are."""
        return self._slide_ms

    @property
    def parent_remember_ms(self) -> int:
        """Longer by a window than this stream itself is remembered."""
        return self.remember_ms + self._window_ms

    @property
    def records_last_ms(self) -> int:
        """For how long a record of the parent makes a difference to windows."""
        return self._window_ms

    def times_with_records(self, parents_ms: Sequence[int], until_ms: int) -> Sequence[int]:
        """Return when the windows end that hold records of the parent."""
        return window_ends(
            parents_ms,
            window_ms=self.records_last_ms,
            slide_ms=self._slide_ms,
            zero_ms=self._initialized_at(),
            until_ms=until_ms,
        )
