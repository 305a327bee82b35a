"""When the demo kills the driver."""

from __future__ import annotations

import random

__all__ = ["KillPlan"]

_LONGEST_WAIT_S = 1.5  # a little more than a batch, so every moment of one can be hit


class KillPlan:
    """Spreads kills over the feeding, each at a random moment of a driver that is processing.

    Args:
        kills: how many.
        chance: where the moments come from.
    """

    def __init__(self, kills: int, chance: random.Random) -> None:
        self._chance = chance
        # Within its own stretch of the feeding, but the last: after it there is only recovery.
        self._shares = [(k + chance.uniform(0.3, 1.0)) / (kills + 1) for k in range(kills)]
        self._moment_s: float | None = None

    @property
    def left(self) -> int:
        """How many kills are still to come."""
        return len(self._shares)

    def is_due(self, fed_share: float, *, is_processing: bool, now_s: float) -> bool:
        """Whether to kill now; answers True once for each kill.

        Args:
            fed_share: how much of the input is fed, 0 to 1.
            is_processing: whether the driver, since its start, has come to work on records.
            now_s: a monotonic time.
        """
        if not self._shares or fed_share < self._shares[0] or not is_processing:
            return False
        if self._moment_s is None:
            self._moment_s = now_s + self._chance.uniform(0, _LONGEST_WAIT_S)
        if now_s < self._moment_s:
            return False
        self._shares.pop(0)
        self._moment_s = None
        return True
