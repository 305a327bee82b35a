"""The program of test_speculation.py: a topic copied exactly once, partition 0 by two at a time.

python speculation_program.py MASTER BROKERS COPIES CHECKPOINT

Each copy of the task of partition 0 leaves a file in the folder COPIES, named by its number, when
it has begun its transaction and sent records. The one that comes first goes on when the other is
there, which has fenced it then, and takes longer.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

from tests.driver_program import new_context, run
from tests.waiting import eventually

if TYPE_CHECKING:
    from penstock.kafka import KafkaRecord

SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1",
    "spark.speculation.minTaskRuntime": "1s",
}
SENT = 1000
"""So many records are made at once: the one after them is made when these are sent."""
LONGER_S = 10
"""So long the first one waits for what the other one writes."""
PATIENT = {"transaction.timeout.ms": 240_000}
"""Spark starts the second copy when it has seen others end."""


def main(master: str, brokers: str, copies: str, checkpoint: str) -> None:
    ssc = new_context(master, 1, settings=SETTINGS)
    ssc.checkpoint(checkpoint)
    conf = {"bootstrap.servers": brokers}

    def in_two_copies(record: KafkaRecord) -> bytes:
        if (record.partition, record.offset) == (0, SENT):
            task = TaskContext.get()
            assert task is not None
            Path(copies, str(task.attemptNumber())).touch()
            if len(os.listdir(copies)) == 1:
                assert eventually(lambda: len(os.listdir(copies)) > 1)
            else:
                time.sleep(LONGER_S)
        return record.value

    numbers = ssc.kafkaStream(["in"], conf, "earliest", name="numbers")
    numbers.to_kafka(
        "out", {**conf, **PATIENT}, value=in_two_copies, delivery="exactly_once", name="copy"
    )
    run(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])
