"""The program that test_recovery_sequence kills: records of an AckingSource into a folder.

    python acking_program.py CHECKPOINT PORT SINK

Writes each batch's records to SINK/<batch time>. While there is a file SINK/hang, it hangs in a
batch with records, and its receiver keeps those that begin with "late" without storing them.
Says on standard output what happens.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.receivers.threaded import ThreadedReceiver
from penstock.streaming import StreamingContext, StreamingListener
from penstock.streaming.core.events import StreamingListenerBatchCompleted


def say(*words: object) -> None:
    print(*words, flush=True)


class AckingReceiver(ThreadedReceiver):
    """Answers each line of the source once it is durable."""

    def __init__(self, port: int, hang: Path) -> None:
        self.port = port
        self.hang = hang

    def receive(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            server.settimeout(0.1)
            rest = b""
            while not self.shallEnd():
                try:
                    data = server.recv(65536)
                except TimeoutError:
                    continue
                if not data:
                    raise ConnectionError("the source hung up")
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if not (line.startswith(b"late") and self.hang.exists()):
                        self.store(line.decode(), ack=partial(server.sendall, line + b"\n"))


class Report(StreamingListener):
    """Says which batches are done."""

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        done = batchCompleted.batchInfo()
        if done.num_records:
            say("committed", done.batch_time_ms, done.num_records)


def save(sink: Path) -> Callable[[Any, Any], None]:
    def save_records(time: Any, rdd: Any) -> None:
        records = rdd.collect()
        time_ms = round(time.timestamp() * 1000)
        if records and (sink / "hang").exists():
            say("hanging", time_ms)
            threading.Event().wait()
        if records:
            (sink / str(time_ms)).write_text("".join(f"{record}\n" for record in records))

    return save_records


def create(port: int, sink: Path) -> StreamingContext:
    say("created")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.streaming.gracefulStopTimeout": "2min",  # its 10 batches are 3 s
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    conf = SparkConf().setMaster("local[2]").setAppName("acking").setAll(settings.items())
    ssc = StreamingContext(SparkContext(conf=conf), 0.3)
    receiver = AckingReceiver(port, sink / "hang")
    ssc.receiverStream(receiver, name="orders").foreachRDD(save(sink))
    return ssc


def main(checkpoint: str, port: str, sink: str) -> None:
    ssc = StreamingContext.getOrCreate(checkpoint, partial(create, int(port), Path(sink)))
    ssc.sparkContext.setLogLevel("OFF")
    ssc.addStreamingListener(Report())
    ssc.start()
    say("started")
    sys.stdin.readline()
    ssc.stop(stopGraceFully=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
