"""Runs of ours and of the peer in turns, so that a noisy minute meets both."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

__all__ = ["Sides", "in_turns"]

Sides = Mapping[str, Callable[[], float]]
"""What to measure, by name; each call is one run and returns its figure."""


def in_turns(sides: Sides, rounds: int, unit: str) -> dict[str, float]:
    """Run every side ``rounds`` times, one after the other in each round; return the medians."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, run in sides.items():
            figures[name].append(run())
            print(f"  {number + 1}/{rounds} {name}: {figures[name][-1]:,.4g} {unit}", flush=True)
    return {name: statistics.median(values) for name, values in figures.items()}
