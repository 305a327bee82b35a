"""One program of the receivers benchmark. Usage: _receivers_program.py RECEIVERS WARMUP_S SECONDS.

The last line of output is JSON: the records of the batches that were counted within SECONDS after
WARMUP_S, the seconds that they took, and the cores that the processes of this session used.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import log_lines, spark_context

from penstock.receivers.threaded import ThreadedReceiver
from penstock.streaming import StreamingContext

_LINES = 2_000

_counted: list[tuple[float, int, float]] = []
"""When each batch was counted (monotonic seconds), its records, and processor time used so far."""


class _Parser(ThreadedReceiver):
    """Parses JSON lines one by one, and stores each list of them durably."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def receive(self) -> None:
        """Take the same lines again and again."""
        while not self.shallEnd():
            self.store([json.loads(line)["text"] for line in self._lines])


def _json_lines() -> list[str]:
    texts = log_lines(_LINES).decode().splitlines()
    return [json.dumps({"number": number, "text": text}) for number, text in enumerate(texts)]


def _cpu_s(session: int) -> float:
    """Return the processor time that the living processes of a session have used."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _count(df: Any, batch_id: int) -> None:
    records = df.count()
    _counted.append((time.monotonic(), records, _cpu_s(os.getsid(0))))


def _steady(since_s: float) -> dict[str, float]:
    """Return what was counted, and used, from the first batch that ended after ``since_s`` on."""
    steady = [entry for entry in _counted if entry[0] >= since_s]
    if len(steady) < 3:
        raise SystemExit(f"only {len(steady)} batches ended after the warm-up: {_counted}")
    (from_s, _, before_s), (to_s, _, after_s) = steady[0], steady[-1]
    return {
        "records": sum(records for _, records, _ in steady[1:]),
        "seconds": to_s - from_s,
        "cores": (after_s - before_s) / (to_s - from_s),
    }


def main() -> None:
    """Run the program for the given time and print what it counted."""
    receivers, warmup_s, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    ssc = StreamingContext(spark_context(f"local[{receivers + 2}]"), 1)
    ssc.checkpoint(tempfile.mkdtemp(prefix="checkpoint-"))
    ssc.receiverStream([_Parser(_json_lines())] * receivers, name="parsed").foreachBatch(_count)
    started_s = time.monotonic()
    ssc.start()
    ssc.awaitTerminationOrTimeout(warmup_s + seconds)
    print(json.dumps(_steady(started_s + warmup_s)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
