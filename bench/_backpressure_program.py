"""One program of the back pressure benchmark: numbered lines of a socket, at a scripted cost.

Usage: _backpressure_program.py SYSTEM PORT SECONDS SLOW_FROM_S. SYSTEM is fit, pid or peer. From
SLOW_FROM_S on (0: never) a batch costs four times as much. The last line of output is JSON: when
the script began and ended, what came of each batch that ended (a RateDecision), and how many lines
before the last one never came.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from typing import Any

from harness import spark_context

from penstock.rate import RateDecision

INTERVAL_MS = 1000
FIXED_S = 0.05
RECORD_S = 0.00004
SLOWDOWN = 4
Ended = Callable[[], list[RateDecision]]
"""Tells what came of each batch, in the order of their ends."""

_BACKPRESSURE = {"spark.streaming.backpressure.enabled": "true"}


class _Work:
    """The job: takes its time over a batch, as its size and the script say, and looks for gaps."""

    def __init__(self, slow_from_s: float) -> None:
        self._slow_from_s = slow_from_s
        self._begin_s = math.inf
        self.begin_ms = 0
        self._next = 0
        self.lost = 0

    def begin(self) -> None:
        """Start the script's time."""
        self.begin_ms = time.time_ns() // 1_000_000
        self._begin_s = time.monotonic()

    def run(self, rdd: Any) -> None:
        slow = 0 < self._slow_from_s <= time.monotonic() - self._begin_s
        work = _paced(SLOWDOWN if slow else 1)
        for first, last, count in rdd.coalesce(1).mapPartitions(work).collect():
            self.lost += (last + 1 - first - count) + abs(first - self._next)
            self._next = last + 1


def _paced(factor: int) -> Callable[[Iterable[str]], Iterator[tuple[int, int, int]]]:
    """Return what a task does: read all of its records, and take as long as the script says."""

    def work(lines: Iterable[str]) -> Iterator[tuple[int, int, int]]:
        begin_s = time.monotonic()
        numbers = list(map(int, lines))
        cost_s = factor * (FIXED_S + RECORD_S * len(numbers))
        time.sleep(max(0.0, begin_s + cost_s - time.monotonic()))
        return iter([(min(numbers), max(numbers), len(numbers))] if numbers else [])

    return work


def _penstock(system: str, port: int, work: _Work) -> tuple[Any, Ended]:
    from penstock.checkpoint import CheckpointLocation
    from penstock.rate import RATES_KEY, decode_rates
    from penstock.streaming import StreamingContext

    settings = {
        "spark.streaming.backpressure.rateEstimator": system,
        "spark.sql.streaming.minBatchesToRetain": "10000",  # the history that is read in the end
    }
    folder = tempfile.mkdtemp(prefix="checkpoint-")
    ssc = StreamingContext(spark_context("local[3]", _BACKPRESSURE | settings), INTERVAL_MS / 1000)
    ssc.checkpoint(folder)
    ssc.socketTextStream("127.0.0.1", port, name="lines").foreachRDD(lambda rdd: work.run(rdd))

    def ended() -> list[RateDecision]:
        offsets = CheckpointLocation(folder).offsets
        entries = (offsets.get(batch_id) for batch_id in offsets.batch_ids())
        kept = [decode_rates(entry.conf[RATES_KEY])["lines"] for entry in entries if entry]
        return [batch.decision for each in kept for batch in each.batches]

    return ssc, ended


def _pyspark(port: int, work: _Work) -> tuple[Any, Ended]:
    warnings.simplefilter("ignore", FutureWarning)  # DStreams are deprecated
    from pyspark.streaming import StreamingContext, StreamingListener

    ended: list[RateDecision] = []

    class Listener(StreamingListener):
        def onBatchCompleted(self, batchCompleted: Any) -> None:
            info = batchCompleted.batchInfo()
            start_ms = info.submissionTime() + info.schedulingDelay()
            took_ms, late_ms = info.processingDelay(), start_ms - info.batchTime().milliseconds()
            # Spark does not tell its limit: what a batch has is what was received under it.
            rate = info.numRecords() / INTERVAL_MS * 1000
            batch = (start_ms + took_ms, info.numRecords(), took_ms, late_ms)
            ended.append(RateDecision(*batch, None, rate, ""))

    ssc = StreamingContext(spark_context("local[3]", _BACKPRESSURE), INTERVAL_MS // 1000)
    ssc.addStreamingListener(Listener())
    ssc.socketTextStream("127.0.0.1", port).foreachRDD(lambda rdd: work.run(rdd))
    return ssc, lambda: ended


def main() -> None:
    """Run the program for the given time and print what it did."""
    system, port, seconds, slow_from_s = sys.argv[1:]
    work = _Work(float(slow_from_s))
    if system == "peer":
        ssc, ended = _pyspark(int(port), work)
    else:
        ssc, ended = _penstock(system, int(port), work)
    work.begin()
    ssc.start()
    ssc.awaitTerminationOrTimeout(float(seconds))
    batches = [astuple(batch) for batch in ended()]
    end_ms = time.time_ns() // 1_000_000
    found = {
        "begin_ms": work.begin_ms,
        "end_ms": end_ms,
        "batches": batches,
        "lost": work.lost,
    }
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
