"""DStream programs on penstock against the same on pyspark.streaming.

Word count: lines of 16 words from a socket, made durable, split, counted and reduced by Python
lambdas in batches of 1 s. After a trickle a burst of lines comes as quickly as it is read; the rate
is the burst over the time until all of it is counted. The peer writes its write-ahead log (which is
not fsynced) and graph checkpoints.

Operations: batches of 20,000 pairs, stepped one by one; the ratio of the median batch times.

Checkpoints: our batches with graph checkpoints against those without (``recover="program"``).

Restart: from the start of the process to the first new batch of 1,000 lines, against bare Spark
that counts the words of as many lines; after 10 batches and after 10,000.

--quick has some of the operations, and leaves out graph checkpoints and restarts.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from harness import Metric, fresh_process, in_turns, parse_options, report, text_server

_TRICKLE_LINES_PER_S = 20_000
_FEW_BATCHES = 10
_QUICK_OPERATIONS = ("map", "updateStateByKey")


def main() -> None:
    """Run all parts."""
    options = parse_options(__doc__)
    if options.quick:
        metrics = [_words(6, 400_000, rounds=1), *_operations(5, 1, *_QUICK_OPERATIONS)]
    else:
        metrics = [
            _words(12, 4_000_000, rounds=3),
            *_operations(25, 3),
            *_restarts(many_batches=10_000, rounds=3),
        ]
    report("dstream", metrics, as_json=options.json)


def _words(trickle_s: int, burst: int, rounds: int) -> Metric:
    sides = {name: partial(_lines_per_s, name, trickle_s, burst) for name in ("ours", "peer")}
    rate = in_turns(sides, rounds, "lines/s")
    return Metric("word count, Python lambdas", "lines/s", rate["ours"], rate["peer"], 1.8)


def _lines_per_s(engine: str, trickle_s: int, burst: int) -> float:
    lines = burst + _TRICKLE_LINES_PER_S * trickle_s
    with text_server(_TRICKLE_LINES_PER_S, trickle_s, "words", burst) as server:
        found = fresh_process("_dstream_words.py", engine, server.port, lines, 150, timeout_s=240)
        return burst / float(found["ended_s"] - server.burst_began_s())


def _operations(batches: int, rounds: int, *names: str) -> list[Metric]:
    """Compare operations; all of them also with and without graph checkpoints."""
    engines = ("ours", "peer") if names else ("ours", "ours-program", "peer")
    runs: dict[str, list[dict[str, float]]] = {engine: [] for engine in engines}
    for number in range(rounds):
        for engine, found in runs.items():
            arguments = (engine, batches, *names)
            found.append(fresh_process("_dstream_operations.py", *arguments, timeout_s=600))
            print(f"  {number + 1}/{rounds} operations {engine}", flush=True)
    median = {
        engine: {name: _median(found, name) for name in found[0]} for engine, found in runs.items()
    }
    ours, peer = median["ours"], median["peer"]
    metrics = [
        Metric(f"{name}, a batch", "ms", ours[name], peer[name], 1.0, less_is_better=True)
        for name in ours
    ]
    if names:
        return metrics
    name, without = "all operations with graph checkpoints, to without", median["ours-program"]
    took_ms = (sum(ours.values()), sum(without.values()))
    return [*metrics, Metric(name, "ms", *took_ms, 1 / 1.1, less_is_better=True)]


def _median(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(figures[name] for figures in found)


def _restarts(many_batches: int, rounds: int) -> list[Metric]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as place:
        starts = {"bare": partial(_seconds_until_counted, "bare")}
        for batches in (_FEW_BATCHES, many_batches):
            left = Path(place, str(batches))
            fresh_process("_dstream_restart.py", "prepare", left, batches, timeout_s=900)
            starts[f"after {batches}"] = partial(_restart_s, left)
        took_s = in_turns(starts, rounds, "s")
    bare_s, few_s, many_s = took_s.values()
    return [
        Metric("restart, to bare Spark", "s", few_s, bare_s, 1 / 1.5, less_is_better=True),
        Metric(
            f"restart after {many_batches:,} batches, to after {_FEW_BATCHES}",
            "s",
            many_s,
            few_s,
            1.0,
            less_is_better=True,
        ),
    ]


def _restart_s(left: Path) -> float:
    """Return how long a restart takes, each time from a copy of what the run before left."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as place:
        copy = shutil.copytree(left, Path(place, "checkpoint"))
        return _seconds_until_counted("restart", copy)


def _seconds_until_counted(*arguments: object) -> float:
    """Return the seconds from the start of a process to the end that it prints."""
    started_s = time.monotonic()
    found = fresh_process("_dstream_restart.py", *arguments, timeout_s=180)
    return float(found["ended_s"] - started_s)


if __name__ == "__main__":
    main()
