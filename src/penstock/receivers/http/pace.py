"""By when more of a body has to come. Pure.

The received part of a body is held in memory until the rest arrives. So a body has a time for the
whole, and once it has begun it has to grow: in each part of that time by the same part of what
there is. What comes evenly, within most of the time for the whole, does so; a client that stops
near the end of a large body holds its memory for a short while.

Prior art: ``client_body_timeout`` (nginx), ``MinRate`` (Apache's mod_reqtimeout).
"""

from __future__ import annotations


class BodyPace:
    """The deadlines of one body.

    Args:
        whole_s: the time for the whole body.
        growth_s: in this time a body that has begun grows by ``growth_s / whole_s`` of itself.
        now_s: when its head was complete.
    """

    def __init__(self, whole_s: float, growth_s: float, now_s: float) -> None:
        self.due_s = self._end_s = now_s + whole_s
        """By when more has to come; set anew by ``add``."""
        self._growth_s = growth_s
        self._growth = 1 + growth_s / whole_s
        self._bytes = 0
        self._goal_bytes = 0.0

    def add(self, size: int, now_s: float) -> None:
        """Take in that so many bytes came."""
        self._bytes += size
        if self._bytes >= self._goal_bytes:
            self._goal_bytes = self._bytes * self._growth
            self.due_s = min(self._end_s, now_s + self._growth_s)
