"""What the demo knows of its run: the sum of what its drivers said."""

from __future__ import annotations

from typing import Any

from penstock.cli.demo.outcome import Outcome
from penstock.cli.demo.word_counts import Comparison


class Progress:
    """Counts lines that are committed. Times are seconds of one monotonic clock.

    Batches run one after the other, so a commit says that every batch before it is committed too,
    also one whose own word was cut off by a kill.
    """

    def __init__(self) -> None:
        self.committed_lines = 0
        self.restarts = 0
        self.recovery_s: list[float] = []
        """For each restart, from the start of the driver's process to its first commit."""
        self.works = False
        """Whether a driver began a batch with records since the last start."""
        self.is_up = False
        """Whether, since the last start, a batch was committed, and records were read."""
        self.idle_batches = 0
        """How many batches in a row were committed without a record."""
        self._planned: dict[int, int] = {}
        self._restarted_s: float | None = None
        self._first_s: float | None = None
        self._last_s = 0.0

    def outcome(self, totals: Comparison) -> Outcome:
        """Return the result of the demo."""
        seconds = self._last_s - (self._first_s or 0.0)
        return Outcome(
            fed=totals.fed,
            processed=totals.processed,
            lost=totals.lost,
            duplicated=totals.duplicated,
            restarts=self.restarts,
            records_per_s=round(self.committed_lines / seconds, 1) if seconds > 0 else 0.0,
            recovery_s=round(max(self.recovery_s, default=0.0), 2),
        )

    def restarted(self, now_s: float) -> None:
        """Note that the driver was killed and its process started again."""
        self.restarts += 1
        self.is_up = self.works = False
        self.idle_batches = 0
        self._restarted_s = now_s

    def take(self, event: dict[str, Any], now_s: float) -> None:
        """Take in what a driver said."""
        batch, lines = event["batch"], event["lines"]
        match event["event"]:
            case "planned":
                self._planned[batch] = lines
            case "started":
                self.works = self.works or lines > 0
                self._first_s = now_s if self._first_s is None and lines else self._first_s
            case "committed":
                self._committed(batch, now_s)

    def _committed(self, batch: int, now_s: float) -> None:
        lines = sum(self._planned.pop(each) for each in list(self._planned) if each <= batch)
        self.committed_lines += lines
        self.is_up = self.works
        self.idle_batches = 0 if lines else self.idle_batches + 1
        if lines:
            self._last_s = now_s
        if self._restarted_s is not None:
            self.recovery_s.append(now_s - self._restarted_s)
            self._restarted_s = None
