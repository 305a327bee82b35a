"""The program that state tests kill: state, windows and joins of numbered lines.

    python state_program.py CHECKPOINT LOG_GLOB SINK [MOMENT]

Line ``key number`` is a pair. Each batch writes SINK/<stream>-<time in ms>.json with its sorted
records; a batch that comes out otherwise when it runs again leaves SINK/differs. At the MOMENT
(tests.crash_steps) the process is killed, without a chance to tidy up.
"""

from __future__ import annotations

import json
import operator
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.streaming import DStream
from tests.crash_steps import killed_at
from tests.driver_program import new_context, run

INTERVAL_S = 0.5
WINDOW_S = 2.5


def total(values: list[int], state: int | None) -> int:
    return sum(values) + (state or 0)


def to_pair(line: str) -> tuple[str, int]:
    key, number = line.split()
    return key, int(number)


class Sink:
    """Writes a stream's batches, each once, and sees when one comes again and differs."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name

    def __call__(self, time: datetime, rdd: Any) -> None:
        text = json.dumps(sorted(rdd.collect()))
        target = self._folder / f"{self._name}-{round(time.timestamp() * 1000)}.json"
        if target.exists() and target.read_text() != text:
            (self._folder / "differs").write_text(f"{target}: {text}")
        temporary = target.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(target)


def define(lines: DStream, sink: Path) -> None:
    pairs = lines.map(to_pair)
    pairs.foreachRDD(Sink(sink, "pairs"))
    totals = pairs.updateStateByKey(total, 1, name="totals").checkpoint(2 * INTERVAL_S)
    sums = pairs.reduceByKeyAndWindow(
        operator.add, operator.sub, WINDOW_S, INTERVAL_S, 1, name="sums"
    ).checkpoint(2 * INTERVAL_S)
    totals.join(sums, 1).foreachRDD(Sink(sink, "state"))
    pairs.join(totals, 1).foreachRDD(Sink(sink, "joined"))


def main(checkpoint: str, log_glob: str, sink: str, moment: str | None = None) -> None:
    with killed_at(moment):
        ssc = new_context("local[3]", INTERVAL_S, retain=1)
        ssc.checkpoint(checkpoint)
        define(ssc.tailStream(log_glob, name="lines"), Path(sink))
        run(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])
