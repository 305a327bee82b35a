"""How well a rate was kept: figures over finished batches, simulated or real. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.rate.controller import RateDecision

__all__ = ["batches_until_stable", "overshoot", "peak_scheduling_delay_ms", "utilisation"]

_STABLE_OVERSHOOT = 0.1
"""A batch may take this much more than the interval and still count as within it."""


def peak_scheduling_delay_ms(batches: Sequence[RateDecision]) -> int:
    """Return the longest that a batch was late, 0 without batches."""
    return max((batch.scheduling_delay_ms for batch in batches), default=0)


def overshoot(batches: Sequence[RateDecision], batch_interval_ms: int) -> float:
    """Return by how much the longest batch exceeds the interval, relative to it; 0 if none does."""
    longest = max((batch.processing_delay_ms for batch in batches), default=0)
    return max(longest / batch_interval_ms - 1, 0.0)


def utilisation(batches: Sequence[RateDecision], batch_interval_ms: int) -> float:
    """Return the mean share of the interval that batches took, 0 without batches."""
    if not batches:
        return 0.0
    total_ms = sum(batch.processing_delay_ms for batch in batches)
    return total_ms / len(batches) / batch_interval_ms


def batches_until_stable(
    batches: Sequence[RateDecision], batch_interval_ms: int, least_utilisation: float = 0.7
) -> int:
    """Return after how many batches every one that follows is stable; all of them if none is.

    Stable: it starts before the next one is due, and takes between ``least_utilisation`` and 1.1 of
    the interval.
    """
    for place in range(len(batches), 0, -1):
        batch = batches[place - 1]
        share = batch.processing_delay_ms / batch_interval_ms
        late = batch.scheduling_delay_ms >= batch_interval_ms
        if late or not least_utilisation <= share <= 1 + _STABLE_OVERSHOOT:
            return place
    return 0
