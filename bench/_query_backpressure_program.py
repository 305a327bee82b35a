"""One program of the back pressure benchmark of queries: numbered lines at a scripted cost.

Usage: _query_backpressure_program.py SYSTEM BACKLOG SECONDS SLOW_FROM_S FROM_S:LINES_PER_S ...

SYSTEM is fit, pid, or a number: a static maxOffsetsPerTrigger. A thread writes the lines to a
journal as they arrive; BACKLOG lines are there already. The job is that of
_backpressure_program.py. The last line of output is JSON, as there; delays are left to the reader.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from _backpressure_program import FIXED_S, INTERVAL_MS, RECORD_S, SLOWDOWN
from harness import spark_context
from harness.load_server import arrived
from pyspark.sql import DataFrame, SparkSession

from penstock.journal import CommitPolicy, JournalStream, JournalWriter, RecordFormat
from penstock.storage import open_storage
from penstock.structured import register

_PIECE_S = 0.05
_BACKLOG_LINES = 200_000


class _Source:
    """Writes numbered lines to a journal."""

    def __init__(self, folder: str) -> None:
        self.stream = JournalStream.create(open_storage(folder), "lines", RecordFormat(_SCHEMA))
        policy = CommitPolicy(block_interval_ms=200)
        self._writer = JournalWriter(self.stream.without_sync(), "r0", policy=policy)
        self._sent = 0

    def send_until(self, end: int) -> None:
        """Write the lines before a number that are not written yet."""
        while self._sent < end:
            upto = min(end, self._sent + _BACKLOG_LINES)
            numbers = pa.array(np.arange(self._sent, upto, dtype=np.int64))
            self._writer.append_all(pa.record_batch([numbers], schema=_SCHEMA))
            self._sent = upto

    def serve(self, backlog: int, steps: list[tuple[float, float]]) -> None:
        """Write lines as they arrive, from now on."""
        begin_s = time.monotonic()
        while True:
            self.send_until(backlog + int(arrived(steps, time.monotonic() - begin_s)))
            self._writer.flush()
            time.sleep(_PIECE_S)


class _Job:
    """Takes its time over a batch, as its size and the script say, and counts what is missing."""

    def __init__(self, slow_from_s: float) -> None:
        self._slow_from_s = slow_from_s
        self.begin_s = time.monotonic()
        self._next = 0
        self.lost = 0

    def __call__(self, batch: DataFrame, _: int) -> None:
        slow = 0 < self._slow_from_s <= time.monotonic() - self.begin_s
        paced = batch.coalesce(1).mapInArrow(_paced(SLOWDOWN if slow else 1), _COUNTED)
        for first, last, count in paced.collect():
            self.lost += (last + 1 - first - count) + abs(first - self._next)
            self._next = last + 1


def _paced(factor: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does: read all of its records, and take as long as the script says."""
    fixed_s, record_s, names = factor * FIXED_S, factor * RECORD_S, ["first", "last", "count"]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_s = time.monotonic()
        numbers = np.concatenate([b.column(0).to_numpy() for b in batches] or [np.empty(0)])
        time.sleep(max(0.0, begin_s + fixed_s + record_s * len(numbers) - time.monotonic()))
        if len(numbers):
            found = (int(numbers.min()), int(numbers.max()), len(numbers))
            yield pa.record_batch([pa.array([value]) for value in found], names=names)

    return work


def main() -> None:
    """Run the query for the given time, and print what it did."""
    system, backlog, seconds, slow_from_s, *given = sys.argv[1:]
    steps = [(float(at), float(rate)) for at, rate in (step.split(":") for step in given)]
    spark_context("local[3]", {"spark.sql.streaming.numRecentProgressUpdates": "10000"})
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    folder = tempfile.mkdtemp(prefix="query-")
    source, job = _Source(f"{folder}/journal"), _Job(float(slow_from_s))
    source.send_until(int(backlog))
    begin_ms = time.time_ns() // 1_000_000
    job.begin_s = time.monotonic()
    limits = (
        {"maxOffsetsPerTrigger": system}
        if system.isdigit()
        else {"backpressure.enabled": "true", "backpressure.rateEstimator": system}
    )
    options = {"journal": f"{folder}/journal", "stream": "lines", "consumer": "c", **limits}
    query = (
        spark.readStream.format("penstock")
        .options(**options)
        .load()
        .writeStream.foreachBatch(job)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(processingTime=f"{INTERVAL_MS} milliseconds")
        .start()
    )
    threading.Thread(target=source.serve, args=(int(backlog), steps), daemon=True).start()
    query.awaitTermination(int(float(seconds)))
    batches = [_batch(progress) for progress in query.recentProgress if progress.numInputRows]
    end_ms = time.time_ns() // 1_000_000
    found = {"begin_ms": begin_ms, "end_ms": end_ms, "batches": batches, "lost": job.lost}
    print(json.dumps(found), flush=True)
    query.stop()


def _batch(progress: Any) -> tuple[Any, ...]:
    """Return a batch as the fields of a RateDecision."""
    took_ms = progress.durationMs["triggerExecution"]
    begin = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00"))
    end_ms = round(begin.timestamp() * 1000) + took_ms
    report = json.loads(progress.sources[0].latestOffset).get("(penstock)", {})
    why = report.get("reason", "fixed limit")
    return end_ms, progress.numInputRows, took_ms, 0, None, float(report.get("rate", 0)), why


_SCHEMA = pa.schema([("number", pa.int64())])
_COUNTED = "first long, last long, count long"

if __name__ == "__main__":
    main()
