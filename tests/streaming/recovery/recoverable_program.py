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

from pyspark import SparkConf, SparkContext

from penstock.streaming import StreamingContext, StreamingListener
from penstock.streaming.core.events import StreamingListenerBatchCompleted


def say(*words: object) -> None:
    print(*words, flush=True)


class Report(StreamingListener):
    """Says which batches are done."""

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        done = batchCompleted.batchInfo()
        say("committed", done.batch_time_ms, done.num_records)


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
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-Dpenstock.kept=yes",
        "spark.driver.host": "127.0.0.1",
        "spark.streaming.gracefulStopTimeout": "2min",  # its 10 batches are 3 s
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    conf = SparkConf().setMaster("local[2]").setAppName("recoverable").setAll(settings.items())
    ssc = StreamingContext(SparkContext(conf=conf), 0.3)
    words = ssc.tailStream(log, name="log").flatMap(lambda line: line.split())
    ones = words.map(lambda word: (word.lower(), 1))
    ones.reduceByKey(add, 2).foreachRDD(save(Path(sink)))
    return ssc


def main(checkpoint: str, log: str, sink: str) -> None:
    ssc = StreamingContext.getOrCreate(checkpoint, partial(create, log, sink))
    sc = ssc.sparkContext
    sc.setLogLevel("OFF")
    assert sc._jvm is not None
    java_option = sc._jvm.java.lang.System.getProperty("penstock.kept")
    conf = sc.getConf()
    say("ready", sc.appName, sc.master, conf.get("spark.app.kept"), java_option)
    ssc.addStreamingListener(Report())
    ssc.start()
    sys.stdin.readline()
    ssc.stop(stopGraceFully=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
