"""Ticks of the batch interval that no batch was planned for yet. Plain state, for one thread."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from penstock.clock import iso_time

_log = logging.getLogger(__name__)
_SAY_LATE_EVERY_MS = 60_000
_WARM_UP_MS = 30_000
"""The first batches of a run are late on any machine, while Spark starts its workers."""


class DueTick(NamedTuple):
    """A tick that a batch is due for."""

    time_ms: int
    """The batch's time: that of the last tick that was merged into it."""
    since_ms: int
    """The time of the first merged tick: from then on the batch is late."""
    is_missed: bool = False
    """Whether it passed without a batch; see penstock.streaming.core.missed_ticks."""


class DueTicks:
    """Late ticks, oldest first; those that were missed come before the tick that follows them.

    Args:
        merge: whether a tick replaces one that still waits, or each waits for its own batch.
    """

    def __init__(self, merge: bool) -> None:
        self._merge = merge
        self._missed: deque[DueTick] = deque()
        self._due: deque[DueTick] = deque()
        self._missed_are_known = False  # before the first one of _due

    @property
    def late_since_ms(self) -> int | None:
        """The first tick that waits for earlier batches to end, None without one."""
        return self._due[0].since_ms if self._due else None

    def add(self, time_ms: int, since_ms: int) -> None:
        """Add a tick that is later than all earlier ones."""
        if self._due and self._merge:
            since_ms = self._due.pop().since_ms
        self._due.append(DueTick(time_ms, since_ms))
        self._missed_are_known = False

    def add_missed(self, ticks: Sequence[DueTick]) -> None:
        """Add ticks that were missed before the next one, and after all other missed ones."""
        self._missed.extend(ticks)
        self._missed_are_known = True

    @property
    def unknown_before_ms(self) -> int | None:
        """The next tick, before which ticks may have been missed, None without one."""
        if self._missed or not self._due or self._missed_are_known:
            return None
        return self._due[0].time_ms

    def take(self) -> DueTick | None:
        """Return the tick to plan a batch for next, None without one."""
        if self._missed:
            return self._missed.popleft()
        self._missed_are_known = False
        return self._due.popleft() if self._due else None


class LateWarning:
    """Warns of late batches, after the warm-up, and once a minute at most."""

    def __init__(self, batch_interval_ms: int, now_ms: int) -> None:
        self._interval_ms = batch_interval_ms
        self._next_ms = now_ms + _WARM_UP_MS

    def check(self, late_since_ms: int | None, now_ms: int) -> None:
        """Warn if a batch has been late since then."""
        if late_since_ms is None or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _SAY_LATE_EVERY_MS
        _log.warning(
            "The next batch has waited for %.1f s, since %s: the batches before it take longer "
            "than the batch interval of %g s. Records received meanwhile are kept for the next "
            "batches. If this continues, give the program more cores or a longer batch interval, "
            "or limit its rate (spark.streaming.backpressure.enabled)",
            (now_ms - late_since_ms) / 1000,
            iso_time(late_since_ms),
            self._interval_ms / 1000,
        )
