"""What streams over windows of their parent have in common, however they compute them."""

from __future__ import annotations

from penstock.streaming.base import BaseDStream

__all__ = ["SlidingWindows"]


class SlidingWindows(BaseDStream):
    """The part of such a stream that knows how wide its windows are and how far apart."""

    needs_every_tick = True
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
