"""The program that tests recover in fresh processes: counts words of a log by Python functions.

    python recoverable_program.py CHECKPOINT LOG SINK

Writes each batch's counts to SINK/<batch time>, and hangs in a batch with words while there is a
file SINK/hang. Says on standard output what happens.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from operator import add
from pathlib import Path
from typing import Any

from penstock.streaming import StreamingContext
from tests.driver_program import new_context, run_until_told, say


def save(sink: Path) -> Callable[[Any, Any], None]:
    def save_counts(time: Any, rdd: Any) -> None:
        counts = sorted(rdd.collect())
        time_ms = round(time.timestamp() * 1000)
        if counts and (sink / "hang").exists():
            say("hanging", time_ms)
            threading.Event().wait()
        if counts:
            (sink / str(time_ms)).write_text("".join(f"{w} {n}\n" for w, n in counts))

    return save_counts


def create(log: str, sink: str) -> StreamingContext:
    say("created")
    settings = {
        "spark.app.kept": "yes",
        "spark.app.name": "recoverable",
        "spark.driver.extraJavaOptions": "-Dpenstock.kept=yes",
    }
    ssc = new_context(settings=settings)
    words = ssc.tailStream(log, name="log").flatMap(lambda line: line.split())
    ones = words.map(lambda word: (word.lower(), 1))
    ones.reduceByKey(add, 2).foreachRDD(save(Path(sink)))
    return ssc


def main(checkpoint: str, log: str, sink: str) -> None:
    ssc = StreamingContext.getOrCreate(checkpoint, partial(create, log, sink))
    sc = ssc.sparkContext
    assert sc._jvm is not None
    java_option = sc._jvm.java.lang.System.getProperty("penstock.kept")
    conf = sc.getConf()
    say("ready", sc.appName, sc.master, conf.get("spark.app.kept"), java_option)
    run_until_told(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])
