"""The program that test_shutdown.py ends: lines of a socket, in batches that are far away.

    python shutdown_program.py HOW CHECKPOINT PORT SINK

HOW is what its main thread does when it is started: wait for the program's end ("await"), or end
when standard input does ("exit").
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext

from penstock.streaming import StreamingContext


def main(how: str, checkpoint: str, port: str, sink: str) -> None:
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.streaming.stopGracefullyOnShutdown": "true",
        "spark.ui.enabled": "false",
    }
    conf = SparkConf().setMaster("local[2]").setAppName("shutdown").setAll(settings.items())
    sc = SparkContext(conf=conf)
    sc.setLogLevel("OFF")
    ssc = StreamingContext(sc, 100_000)
    ssc.checkpoint(checkpoint)
    lines = ssc.socketTextStream("127.0.0.1", int(port), name="lines")
    lines.foreachRDD(lambda rdd: Path(sink).write_text("\n".join(rdd.collect())))
    ssc.start()
    print("started", flush=True)
    try:
        if how == "await":
            ssc.awaitTermination()
        else:
            sys.stdin.read()
    finally:
        print("finally", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
