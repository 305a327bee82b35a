"""The program that test_shutdown.py ends: lines of a socket, in batches that are far away.

    python shutdown_program.py HOW CHECKPOINT PORT SINK

HOW is what its main thread does when it is started: wait for the program's end ("await"), or end
when standard input does ("exit").
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.streaming import StreamingContext
from tests.driver_program import new_spark, say


def main(how: str, checkpoint: str, port: str, sink: str) -> None:
    graceful = {"spark.streaming.stopGracefullyOnShutdown": "true"}
    ssc = StreamingContext(new_spark(settings=graceful), 100_000)
    ssc.checkpoint(checkpoint)
    lines = ssc.socketTextStream("127.0.0.1", int(port), name="lines")
    lines.foreachRDD(lambda rdd: Path(sink).write_text("\n".join(rdd.collect())))
    ssc.start()
    say("started")
    try:
        if how == "await":
            ssc.awaitTermination()
        else:
            sys.stdin.read()
    finally:
        say("finally")


if __name__ == "__main__":
    main(*sys.argv[1:])
