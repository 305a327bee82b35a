"""One program of the benchmark of Structured Streaming.

    _structured_program.py read LINES ROUNDS
    _structured_program.py plan BLOCKS BATCHES

The last line of output is JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
from harness import log_lines, spark_context
from pyspark.sql import DataFrame, SparkSession

from penstock.journal import CommitPolicy, JournalStream, JournalWriter, RecordFormat
from penstock.model import Offsets
from penstock.storage import open_storage
from penstock.structured import register, scan
from penstock.structured.journal.options import JournalOptions
from penstock.structured.journal.planner import JournalPlanner
from penstock.structured.session import Session

_BLOCK_LINES = 200_000
_PLANS = 9
_PATIENT = CommitPolicy(block_interval_ms=600_000)


def _fill(folder: str, blocks: list[pa.Array]) -> JournalStream:
    stream = JournalStream.create(open_storage(folder), "lines", RecordFormat("string"))
    writer = JournalWriter(stream.without_sync(), "r0", policy=_PATIENT)
    for block in blocks:
        writer.append_all(pa.record_batch([block], names=["value"]))
        writer.flush()
    writer.close()
    return stream


def _to_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _read(folder: str, count: int, rounds: int) -> dict[str, float]:
    lines = log_lines(_BLOCK_LINES).decode().split("\n")[:-1]
    _fill(folder, [pa.array(lines)] * (count // _BLOCK_LINES))
    spark_context("local[2]")
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    records = count // _BLOCK_LINES * _BLOCK_LINES

    def parquet() -> float:
        begun_s = time.perf_counter()
        paths = [str(path) for path in Path(folder).glob("lines/r0-*/*.parquet")]
        _to_nothing(spark.read.schema("value STRING").parquet(*paths))
        return time.perf_counter() - begun_s

    def streamed(content: str, work: Callable[[DataFrame], None]) -> float:
        number = next(_numbers)
        options = {"journal": folder, "stream": "lines", "consumer": f"c{number}"}
        source = spark.readStream.format("penstock").options(**options, content=content).load()
        query = (
            source.writeStream.foreachBatch(lambda batch, _: work(batch))
            .option("checkpointLocation", f"{folder}/checkpoint-{number}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        (took_ms,) = [
            p.durationMs["triggerExecution"]
            for p in query.recentProgress
            if p.sources[0].numInputRows
        ]
        return took_ms / 1000

    sides: dict[str, Callable[[], float]] = {
        "parquet": parquet,
        "records": partial(streamed, "records", _to_nothing),
        "ranges": partial(streamed, "ranges", lambda batch: _to_nothing(scan(batch))),
    }
    took: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds + 1):
        for side, run in sides.items():
            took[side].append(run())
    return {side: records / statistics.median(times[1:]) for side, times in took.items()}


def _plan(folder: str, blocks: int, batches: int) -> dict[str, float]:
    """Measure plans of a new query, and in turns of one that has had many batches."""
    new, used = (_query_with(f"{folder}/{count}", count, blocks) for count in (0, batches))
    took_ms = [(*_plan_ms(*new), *_plan_ms(*used)) for _ in range(_PLANS + 1)][1:]
    plan_ms, cpu_ms, _, used_cpu_ms = zip(*took_ms, strict=True)
    # The quickest of each: the others differ by collected garbage and by other work.
    least = {"cpu_ms": min(cpu_ms), "used_cpu_ms": min(used_cpu_ms)}
    return {"plan_ms": statistics.median(plan_ms), **least}


def _query_with(folder: str, batches: int, blocks: int) -> tuple[JournalPlanner, Offsets]:
    """Return a query that had a batch for each of some blocks, and where it stands before more."""
    stream = _fill(folder, [])
    writer = JournalWriter(stream.without_sync(), "r0", policy=_PATIENT)
    given = {"journal": folder, "stream": "lines", "consumer": "c"}
    planner = JournalPlanner(stream, "c", JournalOptions.parse(given), Session("", 4, 100))
    at = planner.begin()
    for number in range(batches + blocks):
        writer.append_all(pa.record_batch([pa.array([str(number)])], names=["value"]))
        writer.flush()
        if number < batches:
            at = planner.latest(at)
    return planner, at


def _plan_ms(planner: JournalPlanner, start: Offsets) -> tuple[float, float]:
    """Return how long a plan takes, and how much of a core: other work disturbs this less."""
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    planner.partitions(start, planner.latest(start))
    return 1000 * (time.perf_counter() - begun_s), 1000 * (time.process_time() - begun_cpu_s)


def main(part: str, count: str, rounds: str) -> None:
    """Run a part, and print its figures."""
    with tempfile.TemporaryDirectory() as folder:
        run = {"read": _read, "plan": _plan}[part]
        print(json.dumps(run(folder, int(count), int(rounds))), flush=True)


_numbers = iter(range(1_000_000))

if __name__ == "__main__":
    main(*sys.argv[1:])
