"""Starts of a program. Usage: _dstream_restart.py bare | prepare DIR BATCHES | restart DIR.

``prepare`` runs a word count for that many batches and leaves it with records that no batch took.
``restart`` goes on with it until its first new batch has counted them; ``bare`` starts Spark and
counts as many words by a job. Both end with JSON: when that was, in monotonic seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from operator import add
from typing import Any

from harness import spark_context
from harness.counted import count, wait_counted
from harness.lines import word_lines
from pyspark import SparkContext

from penstock.clock import Clock
from penstock.journal import JournalWriter
from penstock.receivers import Receiver
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper

_LINES = 1_000
_INTERVAL_S = 0.1
_START_S = 90.0


class _Idle(Receiver):
    """Receives nothing: the records are written beside it."""

    def onStart(self) -> None:
        """Do nothing."""

    def onStop(self) -> None:
        """Do nothing."""


def _count_words(lines: Any) -> Any:
    """Return the word count of a stream or an RDD of lines."""
    return lines.flatMap(lambda line: line.split(" ")).map(lambda word: (word, 1)).reduceByKey(add)


def _create(directory: str, sc: SparkContext, clock: Clock | None = None) -> StreamingContext:
    ssc = StreamingContext(sc, _INTERVAL_S, clock=clock)
    ssc.checkpoint(directory)
    _count_words(ssc.receiverStream(_Idle(), name="lines")).foreachRDD(count)
    return ssc


def _prepare(directory: str, batches: int) -> None:
    started_ms = round(time.time() * 1000 - (batches + 100) * _INTERVAL_S * 1000)
    clock = ManualClock(started_ms)
    ssc = _create(directory, spark_context("local[3]"), clock)
    stepper = Stepper(ssc, clock)
    ssc.start()
    writer = JournalWriter(ssc.graph.inputs[0].journal, "bench")
    for number in range(batches):
        if number == batches - 1:
            _write(writer)
        stepper.step()
    _write(writer)
    print(json.dumps({"batches": batches}), flush=True)


def _write(writer: JournalWriter) -> None:
    for line in word_lines(_LINES).decode().splitlines():
        writer.append(line)
    writer.flush()


def _restart(directory: str) -> None:
    sc = spark_context("local[3]")
    ssc = StreamingContext.getOrCreate(directory, partial(_create, directory, sc))
    ssc.start()
    wait_counted(_START_S)
    _print_end()


def _bare() -> None:
    sc = spark_context("local[3]")
    count(_count_words(sc.parallelize(word_lines(_LINES).decode().splitlines(), 3)))
    _print_end()


def _print_end() -> None:
    print(json.dumps({"ended_s": time.monotonic()}), flush=True)


def main() -> None:
    """Do what the command line says."""
    what, *arguments = sys.argv[1:]
    if what == "prepare":
        _prepare(arguments[0], int(arguments[1]))
    elif what == "restart":
        _restart(arguments[0])
    else:
        _bare()
    os._exit(0)


if __name__ == "__main__":
    main()
