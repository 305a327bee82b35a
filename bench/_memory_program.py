"""The program of the memory benchmark. Usage: _memory_program.py PORT SECONDS. Prints JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import count_files, open_descriptors, resident_mb, spark_context

from penstock.journal import JournalStream
from penstock.receivers import read_status
from penstock.streaming import StreamingContext

_Look = tuple[str, str, Callable[[], float], float | None]
"""Name, unit, look, and how much growth is none (None: any)."""
_START_S = 30
_SETTLE_S = 5
_SETTLED = 1 / 3
"""What part of the time is left out: allocators and caches fill."""
_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.streaming.minBatchesToRetain": "5",  # reached before the sampling begins
}
_counted: list[int] = []


def main() -> None:
    """Run the program and sample it."""
    port, seconds = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as place:
        sc = spark_context("local[3]", _SETTINGS)
        ssc = StreamingContext(sc, 1)
        ssc.checkpoint(place)
        lines = ssc.socketTextStream("127.0.0.1", port, name="lines")
        lines.foreachBatch(lambda df, batch_id: _counted.append(df.count()))
        ssc.start()

        receiver = _receiver_pid(lines.journal, ssc)
        ssc.awaitTerminationOrTimeout(_SETTLE_S)
        series = _sample(_looks(receiver, Path(place)), ssc, seconds)
        print(
            json.dumps({"series": series, "records": sum(_counted), "batches": len(_counted)}),
            flush=True,
        )
    os._exit(0)


def _receiver_pid(journal: JournalStream, ssc: StreamingContext) -> int:
    deadline_s = time.monotonic() + _START_S
    while (status := read_status(journal, "r0")) is None:
        if time.monotonic() > deadline_s or ssc.awaitTerminationOrTimeout(0.2):
            raise SystemExit(f"the receiver did not start within {_START_S} s")
    return status.pid


def _looks(receiver: int, place: Path) -> list[_Look]:
    """Return what to look at."""
    driver, jvm = os.getpid(), _jvm_pid()
    return [
        ("receiver memory", "MB", lambda: resident_mb(receiver), 20.0),
        ("receiver descriptors", "files", lambda: open_descriptors(receiver), 3.0),
        ("driver memory", "MB", lambda: resident_mb(driver), 10.0),
        ("driver descriptors", "files", lambda: open_descriptors(driver), 3.0),
        ("JVM memory", "MB", lambda: resident_mb(jvm), None),
        ("JVM descriptors", "files", lambda: open_descriptors(jvm), 20.0),
        ("files of the checkpoint location", "files", lambda: count_files(place), 30.0),
    ]


def _jvm_pid() -> int:
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    names = {int(pid): Path(f"/proc/{pid}/comm").read_text().strip() for pid in children}
    return next(pid for pid, name in names.items() if name == "java")


def _sample(looks: list[_Look], ssc: StreamingContext, seconds: int) -> list[dict[str, object]]:
    start_s = time.monotonic()
    times_s: list[float] = []
    values: list[list[float]] = [[] for _ in looks]
    while (at_s := time.monotonic() - start_s) < seconds:
        if at_s > seconds * _SETTLED:
            times_s.append(at_s)
            for column, (_, _, look, _) in zip(values, looks, strict=True):
                column.append(look())
        ssc.awaitTerminationOrTimeout(1)
    return [
        {"name": name, "unit": unit, "times_s": times_s, "values": column, "allowance": allowance}
        for (name, unit, _, allowance), column in zip(looks, values, strict=True)
    ]


if __name__ == "__main__":
    main()
