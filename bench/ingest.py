"""Lines from a socket, made durable, counted per batch of 1 s: penstock against pyspark.streaming.

The sender is a process of its own on the same cores and sends as fast as it is read, after some
seconds of a trickle in which both sides warm up. Each run is a fresh process (a JVM of its own,
local[3]); rates are the records of the batches that ended after the warm-up.

The peer is ``pyspark.streaming`` with a checkpoint directory and its write-ahead log, and counts
with ``rdd.count()``, the way to count that its public interface has. What it would do if PySpark
let a program count within the JVM (``rdd._jrdd``, private) is shown, too. Its write-ahead log is
not fsynced: a power cut loses what it took.

--quick compares the DataFrame with the peer alone.
"""

from __future__ import annotations

from functools import partial

from harness import Metric, fresh_process, in_turns, parse_options, report, text_server

_TRICKLE_LINES_PER_S = 20_000
_NAMES = ("ours-dataframe", "peer-python", "ours-python", "peer-jvm")
_SETTLE_S = 4
"""Seconds at full speed before the measurement: the first batches drain what had piled up."""


def main() -> None:
    """Run all programs in turns."""
    options = parse_options(__doc__)
    trickle_s, seconds, rounds = (6, 6, 1) if options.quick else (15, 15, 3)
    names = _NAMES[:2] if options.quick else _NAMES
    sides = {name: partial(_records_per_s, name, trickle_s, seconds) for name in names}
    rate = in_turns(sides, rounds, "records/s")
    peer, ours = rate["peer-python"], rate["ours-dataframe"]
    metrics = [Metric("socket to count, DataFrame", "records/s", ours, peer, 10.0)]
    if not options.quick:
        metrics += [
            Metric("socket to count, Python", "records/s", rate["ours-python"], peer, 6.0),
            Metric("DataFrame, peer in its JVM", "records/s", ours, rate["peer-jvm"], 4.0),
        ]
    report("ingest", metrics, as_json=options.json)


def _records_per_s(program: str, trickle_s: int, seconds: int) -> float:
    warmup_s = trickle_s + _SETTLE_S
    with text_server(_TRICKLE_LINES_PER_S, trickle_s) as server:
        found = fresh_process(
            "_ingest_program.py",
            program,
            server.port,
            warmup_s,
            seconds,
            timeout_s=warmup_s + seconds + 90,
        )
    return float(found["records"] / found["seconds"])


if __name__ == "__main__":
    main()
