"""The program of test_speculation.py: a topic copied exactly once, some records slowly.

python speculation_program.py MASTER BROKERS SLOW_S COPIES CHECKPOINT

The records of partition 0 take ``SLOW_S`` together, in each copy of their task, which leaves a file
in the folder COPIES.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

from tests.driver_program import new_context, run

if TYPE_CHECKING:
    from penstock.kafka import KafkaRecord

SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
}


def main(master: str, brokers: str, slow_s: str, copies: str, checkpoint: str) -> None:
    ssc = new_context(master, 1, settings=SETTINGS)
    ssc.checkpoint(checkpoint)
    conf = {"bootstrap.servers": brokers}

    def slowly(record: KafkaRecord) -> bytes:
        if record.partition == 0:
            task = TaskContext.get()
            assert task is not None
            Path(copies, str(task.taskAttemptId())).touch()
            time.sleep(float(slow_s) / 10)
        return record.value

    numbers = ssc.kafkaStream(["in"], conf, "earliest", name="numbers")
    numbers.to_kafka("out", conf, value=slowly, delivery="exactly_once", name="copy")
    run(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])
