"""What the demo knows of its run: the sum of the messages that its processes sent."""

from __future__ import annotations

from collections import deque
from typing import Any

__all__ = ["Progress"]

_RATE_WINDOW_S = 5.0


class Progress:
    """Counts lines, from feeding to commit. Times are seconds of one monotonic clock.

    Batches run one after the other, so a commit says that every batch before it is committed too,
    also one whose own word was cut off by a kill.
    """

    def __init__(self) -> None:
        self.fed_lines = 0
        self.fed_bytes = 0
        self.fed_all = False
        self.file = ""
        self.committed_lines = 0
        self.delay_ms: int | None = None
        """Of the last committed batch, from its planning to its commit."""
        self.restarts = 0
        self.recovery_s: list[float] = []
        """For each restart, from the start of the driver's process to its first commit."""
        self.batch: int | None = None
        """The batch that runs."""
        self.has_records = False
        """Whether the driver began a batch with records since its start."""
        self.is_up = False
        """Whether the driver committed a batch since its start."""
        self.idle_batches = 0
        """How many batches in a row were committed without a record."""
        self._planned: dict[int, int] = {}
        self._restarted_s: float | None = None
        self._first_fed_s: float | None = None
        self._last_commit_s = 0.0
        self._recent: deque[tuple[float, int]] = deque()

    @property
    def backlog_lines(self) -> int:
        """Fed and not yet committed."""
        return max(0, self.fed_lines - self.committed_lines)

    @property
    def is_drained(self) -> bool:
        """Whether all is fed, and as much is committed."""
        return self.fed_all and self.committed_lines >= self.fed_lines

    @property
    def lines_per_s(self) -> float:
        """Lines committed, from the first that was fed to the last commit, over that time."""
        if self._first_fed_s is None or self._last_commit_s <= self._first_fed_s:
            return 0.0
        return self.committed_lines / (self._last_commit_s - self._first_fed_s)

    def recent_lines_per_s(self, now_s: float) -> float:
        """Lines committed in the last seconds, over that time."""
        while self._recent and self._recent[0][0] < now_s - _RATE_WINDOW_S:
            self._recent.popleft()
        return sum(lines for _, lines in self._recent) / _RATE_WINDOW_S

    def restarted(self, now_s: float) -> None:
        """Note that the driver was killed and its process started again."""
        self.restarts += 1
        self.batch = None
        self.is_up = self.has_records = False
        self.idle_batches = 0
        self._restarted_s = now_s

    def take(self, message: dict[str, Any], now_s: float) -> None:
        """Take in a message of the feeder or the job."""
        match message["event"]:
            case "fed" | "fed_all" as event:
                self.fed_all = event == "fed_all"
                self.fed_lines, self.fed_bytes = message["lines"], message["bytes"]
                self.file = message.get("file", self.file)
                self._first_fed_s = now_s if self._first_fed_s is None else self._first_fed_s
            case "planned":
                self._planned[message["batch"]] = message["lines"]
            case "started":
                self.batch = message["batch"]
                self.has_records = self.has_records or message["lines"] > 0
            case "committed":
                self._committed(message["batch"], message["delay_ms"], now_s)

    def _committed(self, batch: int, delay_ms: int, now_s: float) -> None:
        lines = sum(self._planned.pop(each) for each in list(self._planned) if each <= batch)
        self.committed_lines += lines
        self._recent.append((now_s, lines))
        self.batch, self.delay_ms, self.is_up = None, delay_ms, True
        self.idle_batches = 0 if lines else self.idle_batches + 1
        if lines:
            self._last_commit_s = now_s
        if self._restarted_s is not None:
            self.recovery_s.append(now_s - self._restarted_s)
            self._restarted_s = None
