"""Counts the batches of one program or query, on its driver."""

from __future__ import annotations

import bisect
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from penstock.metrics.catalog import (
    BATCH_INTERVAL,
    BATCHES,
    BATCHES_RUNNING,
    BUCKETS_S,
    INPUT_WAITING,
    LAST_PROGRESS,
    PROCESSING,
    PROGRAM_UP,
    RATE_LIMIT,
    RECEIVED,
    SCHEDULING_DELAY,
    SENT,
    Histogram,
    Metric,
    Sample,
)


class _Durations:
    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._total_s = 0.0

    def add(self, duration_ms: int) -> None:
        self._counts[bisect.bisect_left(BUCKETS_S, duration_ms / 1000)] += 1
        self._total_s += duration_ms / 1000

    def value(self) -> Histogram:
        return Histogram(list(itertools.accumulate(self._counts)), self._total_s)


class BatchMetrics:
    """One program's counts. Thread-safe; a call takes microseconds.

    Args:
        program: its name, a label of all its metrics.
        interval_ms: its batch interval, None or 0 without one.
    """

    def __init__(self, program: str, interval_ms: int | None) -> None:
        self.program = program
        self._interval_ms = interval_ms
        self._lock = threading.Lock()
        self._running = 0
        self._results = Counter(committed=0, failed=0)
        self._delay = _Durations()
        self._processing = _Durations()
        self._received: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()
        self._limits: Mapping[str, float] = {}
        self._waiting: Mapping[str, int] = {}
        self._progress_s = time.time()
        self._is_up = True

    def planned(
        self,
        records: Mapping[str, int],
        limits: Mapping[str, float],
        waiting: Mapping[str, int],
    ) -> None:
        """Count a batch that was planned, by input.

        Args:
            records: those that it takes.
            limits: the most that it might take.
            waiting: those that the input has beyond it, where that is known.
        """
        with self._lock:
            self._running += 1
            self._received.update(records)
            self._limits, self._waiting = limits, waiting

    def committed(
        self, records: Mapping[str, int], delay_ms: int | None, processing_ms: int | None
    ) -> None:
        """Count a batch that was committed, with its records by input."""
        with self._lock:
            self._ended("committed", delay_ms, processing_ms)
            self._sent.update(records)
            self._progress_s = time.time()

    def failed(self, delay_ms: int | None, processing_ms: int | None) -> None:
        """Count a batch that failed."""
        with self._lock:
            self._ended("failed", delay_ms, processing_ms)

    def idle(self) -> None:
        """Note that there was nothing to do."""
        with self._lock:
            self._progress_s = time.time()

    def down(self) -> None:
        """Note that the program ended with an error."""
        with self._lock:
            self._is_up, self._running = False, 0

    def samples(self) -> Iterator[Sample]:
        """Return the values as they are now."""
        with self._lock:
            return iter(
                [Sample(each, (self.program, *rest), v) for each, rest, v in self._values()]
            )

    def _ended(self, result: str, delay_ms: int | None, processing_ms: int | None) -> None:
        self._running = max(self._running - 1, 0)
        self._results[result] += 1
        if delay_ms is not None:
            self._delay.add(delay_ms)
        if processing_ms is not None:
            self._processing.add(processing_ms)

    def _values(self) -> Iterator[tuple[Metric, tuple[str, ...], float | Histogram]]:
        yield PROGRAM_UP, (), int(self._is_up)
        for result, count in self._results.items():
            yield BATCHES, (result,), count
        yield BATCHES_RUNNING, (), self._running
        if self._interval_ms:
            yield BATCH_INTERVAL, (), self._interval_ms / 1000
        yield SCHEDULING_DELAY, (), self._delay.value()
        yield PROCESSING, (), self._processing.value()
        yield LAST_PROGRESS, (), self._progress_s
        for stream, limit in self._limits.items():
            yield RATE_LIMIT, (stream,), limit
        for stream, count in self._waiting.items():
            yield INPUT_WAITING, (stream,), count
        for metric, counts in ((RECEIVED, self._received), (SENT, self._sent)):
            for name, count in counts.items():
                yield metric, ("input", name), count
