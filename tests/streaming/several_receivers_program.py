"""Four receivers on a cluster of two executors; says which executor each of them runs in.

python several_receivers_program.py CHECKPOINT
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from penstock.driver.spark import live_executors
from penstock.receivers import Receiver
from penstock.streaming import StreamingContext
from tests.driver_program import new_spark, say

COUNT = 4
EXECUTORS = 2


class Placed(Receiver):
    """Stores the number of the executor's process that it runs in."""

    def onStart(self) -> None:
        worker_daemon = os.getppid()
        fields = Path(f"/proc/{worker_daemon}/stat").read_text().rpartition(")")[2].split()
        self.store([fields[1]])  # the daemon's parent: the executor

    def onStop(self) -> None:
        pass


def main(checkpoint: str) -> None:
    # A slot that is offered late is still the preferred one.
    sc = new_spark(f"local-cluster[{EXECUTORS},3,512]", {"spark.locality.wait": "300s"})
    while len(live_executors(sc)) < EXECUTORS:  # longer than a program waits, on a busy machine
        time.sleep(0.1)
    ssc = StreamingContext.getOrCreate(
        checkpoint, lambda: StreamingContext(sc, 0.3), recover="program"
    )
    executors: dict[str, Any] = {}

    def collect(rdd: Any) -> None:
        for place, executor in enumerate(rdd.collect(), start=len(executors)):
            executors[str(place)] = executor
        if len(executors) == COUNT:
            say("executors", json.dumps(executors))
            executors["said"] = ""

    ssc.receiverStream([Placed()] * COUNT, name="placed").foreachRDD(collect)
    ssc.start()
    sys.stdin.readline()
    ssc.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
