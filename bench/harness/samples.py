"""What a process holds, and whether a series of such figures grows."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Series", "count_files", "open_descriptors", "resident_mb"]


def resident_mb(pid: int) -> float:
    """Return a process's resident memory in megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def open_descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def count_files(folder: Path) -> int:
    """Return how many files are under a folder, at any depth."""
    return sum(len(files) for _, _, files in os.walk(folder))


@dataclass(frozen=True)
class Series:
    """Figures at times, and how much growth of them over the whole series is none.

    The allowance is for what moves without growing: allocators, and how many blocks wait at the
    moment of a look. None: the series is shown and not judged.
    """

    name: str
    unit: str
    times_s: Sequence[float]
    values: Sequence[float]
    allowance: float | None

    @property
    def mean(self) -> float:
        """The mean of the figures."""
        return statistics.fmean(self.values)

    @property
    def growth(self) -> float:
        """How much the fitted line (least squares) rises from the first to the last figure."""
        slope = statistics.linear_regression(self.times_s, self.values).slope
        return slope * (self.times_s[-1] - self.times_s[0])

    @property
    def grows(self) -> bool:
        """Whether it rises by more than the allowance."""
        return self.allowance is not None and self.growth > self.allowance
