"""How long to wait before a receiver starts, or its source connects, again."""

from __future__ import annotations

import random
from collections.abc import Callable

_FIRST_MS = 100
_MOST_MS = 30_000


def backoff_ms(failures: int, base_ms: int) -> int:
    """Return the delay before start number ``failures`` + 1: base, doubled each time, capped."""
    doublings = min(max(failures - 1, 0), 16)
    return min(base_ms << doublings, max(base_ms, _MOST_MS))


def reconnect_delay_ms(failures: int, chance: float) -> int:
    """Return the delay before attempt number ``failures`` + 1.

    Args:
        failures: how many attempts failed in a row, from 1 on.
        chance: from 0 to 1. The delay is between half and all of 100 ms, doubled with each failure
            up to 30 s: many clients of a server that comes back do not all come at once.
    """
    return round(backoff_ms(failures, _FIRST_MS) * (1 + chance) / 2)


class Backoff:
    """Counts the failures in a row of one source."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._failures = 0

    def failed(self) -> int:
        """Note a failure; return the delay before the next attempt, in ms."""
        self._failures += 1
        return reconnect_delay_ms(self._failures, self._chance())

    def worked(self) -> None:
        """Note that a connection did what it is for: the next failure is the first one again."""
        self._failures = 0
