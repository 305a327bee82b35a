"""One program of the ingest benchmark: a socket's lines, counted batch by batch.

Usage: _ingest_program.py PROGRAM PORT WARMUP_S SECONDS. The last line of
output is JSON: the records of the batches that were counted within SECONDS after WARMUP_S, and the
seconds that they took. It ends without stopping Spark, whose own stop can hang under full load.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from harness.socket_programs import penstock_program, pyspark_program

_counted: list[tuple[float, int]] = []
"""When each batch was counted (monotonic seconds), and its records."""


def _note(count: int) -> None:
    _counted.append((time.monotonic(), count))


def _count_dataframe(lines: Any) -> None:
    lines.foreachBatch(lambda df, batch_id: _note(df.count()))


def _count_python(lines: Any) -> None:
    lines.foreachRDD(lambda rdd: _note(rdd.count()))


def _count_in_jvm(lines: Any) -> None:
    lines.foreachRDD(lambda rdd: _note(rdd._jrdd.count()))


_PROGRAMS: dict[str, Callable[[str, int], Any]] = {
    "ours-dataframe": partial(penstock_program, output=_count_dataframe),
    "ours-python": partial(penstock_program, output=_count_python),
    "peer-jvm": partial(pyspark_program, output=_count_in_jvm),
    "peer-python": partial(pyspark_program, output=_count_python),
}


def _steady(since_s: float) -> dict[str, float]:
    """Return records and seconds from the first batch that ended after ``since_s`` on."""
    steady = [entry for entry in _counted if entry[0] >= since_s]
    if len(steady) < 3:
        raise SystemExit(f"only {len(steady)} batches ended after the warm-up: {_counted}")
    seconds = steady[-1][0] - steady[0][0]
    return {"records": sum(count for _, count in steady[1:]), "seconds": seconds}


def main() -> None:
    """Run the program for the given time and print what it counted."""
    name, port, warmup_s, seconds = sys.argv[1:]
    ssc = _PROGRAMS[name](tempfile.mkdtemp(prefix="checkpoint-"), int(port))
    started_s = time.monotonic()
    ssc.start()
    ssc.awaitTerminationOrTimeout(float(warmup_s) + float(seconds))
    batches = [(round(at - started_s, 2), count) for at, count in _counted]
    print("batches (end in s, records):", batches, file=sys.stderr)
    print(json.dumps(_steady(started_s + float(warmup_s))), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
