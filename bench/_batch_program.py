"""One program of the batch benchmark.

    _batch_program.py overhead|blocks dataframe|python BATCHES
    _batch_program.py growth engine BATCHES

Records are written by a journal writer in this process beside the program's own idle receiver, so
that each step finds exactly those. The last line of output is JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from harness import create_durably, spark_context
from pyspark.sql import SparkSession

from penstock.journal import JournalWriter
from penstock.model import OffsetRange
from penstock.receivers import Receiver
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper

_WARMUP = 20
_WINDOW = 100
_BLOCKS = 200
_BLOCK_RECORDS = 30
_START_MS = 1_000_000


class _Idle(Receiver):
    """Receives nothing."""

    def onStart(self) -> None:
        """Do nothing."""

    def onStop(self) -> None:
        """Do nothing."""


class _Program:
    """A program over one stream, stepped by hand, with one record in each batch."""

    def __init__(self, checkpoint: str, path: str) -> None:
        clock = ManualClock(_START_MS)
        self.sc = spark_context("local[3]")
        self._ssc = StreamingContext(self.sc, 1, clock=clock)
        self._ssc.checkpoint(checkpoint)
        self.lines = self._ssc.receiverStream(_Idle(), name="lines")
        _OUTPUTS[path](self.lines)
        self._stepper = Stepper(self._ssc, clock)
        self._ssc.start()
        self.writer = JournalWriter(self.lines.journal, "bench")

    def add_record(self) -> OffsetRange:
        """Make one more record durable; return where it is."""
        at = self.writer.end_offset
        self.writer.append("x" * 77)
        self.writer.flush()
        return OffsetRange(str(self.writer.id), at, at + 1)

    def add_blocks(self, count: int) -> None:
        """Make so many tiny blocks durable."""
        for _ in range(count):
            self.writer.append_all(["x" * 77] * _BLOCK_RECORDS)
            self.writer.flush()

    def step_ms(self) -> float:
        """Run a batch; return the milliseconds from its tick to its durable commit."""
        return _timed_ms(self._stepper.step)


_OUTPUTS: dict[str, Callable[[Any], None]] = {
    "dataframe": lambda lines: lines.foreachBatch(lambda df, batch_id: df.count()),
    "python": lambda lines: lines.foreachRDD(lambda rdd: rdd.count()),
    "engine": lambda lines: lines.foreachRDD(lambda rdd: None),
}


def _timed_ms(act: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    act()
    return (time.perf_counter() - start_s) * 1000


def _bare_job(program: _Program, path: str, record: OffsetRange) -> Callable[[], object]:
    """Return the job of a one-record batch, as a program without an engine would run it."""
    storage = program.lines.journal.storage
    uri = storage.uri(f"lines/{record.partition}/{record.start_offset:020d}.parquet")
    if path == "python":
        return lambda: program.sc.parallelize([uri], 1).mapPartitions(_read_lines).count()
    spark = SparkSession.builder.getOrCreate()
    return lambda: spark.read.schema("value string").parquet(uri).count()


def _read_lines(uris: Iterable[str]) -> Iterator[str]:
    for uri in uris:
        yield from pq.read_table(uri.removeprefix("file://")).column(0).to_pylist()


def _overhead(program: _Program, path: str, batches: int) -> dict[str, float]:
    batch_ms, bare_ms = [], []
    for _ in range(_WARMUP + batches):
        job = _bare_job(program, path, program.add_record())
        bare_ms.append(_timed_ms(job))
        batch_ms.append(program.step_ms())
    over_ms = [batch - bare for batch, bare in zip(batch_ms, bare_ms, strict=True)]
    names = {"batch_ms": batch_ms, "bare_ms": bare_ms, "over_ms": over_ms}
    return {name: statistics.median(values[_WARMUP:]) for name, values in names.items()}


def _blocks(program: _Program, path: str, batches: int) -> dict[str, float]:
    one_ms, many_ms = [], []
    for _ in range(_WARMUP + batches):
        for count, taken_ms in ((1, one_ms), (_BLOCKS, many_ms)):
            program.add_blocks(count)
            taken_ms.append(program.step_ms())
    names = {"one_ms": one_ms, "many_ms": many_ms}
    return {name: statistics.median(values[_WARMUP:]) for name, values in names.items()}


def _growth(program: _Program, path: str, batches: int) -> dict[str, float]:
    taken_ms, file_ms = [], []
    folder = Path(tempfile.mkdtemp(prefix="files-"))
    for number in range(batches + _WINDOW):
        program.add_record()
        file_ms.append(_timed_ms(partial(create_durably, folder, str(number), b"x" * 300)))
        taken_ms.append(program.step_ms())
    return {
        "file_ms": statistics.median(file_ms[-_WINDOW:]),
        "early_ms": statistics.median(taken_ms[10 : 10 + _WINDOW]),
        "late_ms": statistics.median(taken_ms[-_WINDOW:]),
    }


def main() -> None:
    """Run one program and print what it took."""
    what, path, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
    program = _Program(tempfile.mkdtemp(prefix="checkpoint-"), path)
    measure = {"overhead": _overhead, "blocks": _blocks, "growth": _growth}[what]
    print(json.dumps(measure(program, path, batches)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
