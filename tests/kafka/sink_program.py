"""The program that test_sink_storm.py kills: topics copied to a topic, exactly once.

    python sink_program.py MASTER BROKERS PATTERN TARGET CHECKPOINT [KILLED]

Begins when it is told to, by a line, and prints a line for every batch that was committed. Records
with the value "junk" are left out. At the value "kill" its driver is killed, unless the file KILLED
exists.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.driver_program import new_context, run

if TYPE_CHECKING:
    from penstock.kafka import KafkaRecord


def main(
    master: str, brokers: str, pattern: str, target: str, checkpoint: str, killed: str = ""
) -> None:
    ssc = new_context(master, 0.3)
    ssc.sparkContext.range(2, numSlices=2).count()  # executors are there, and their workers
    sys.stdin.readline()
    ssc.checkpoint(checkpoint)
    conf = {"bootstrap.servers": brokers}
    numbers = ssc.kafkaStream(re.compile(pattern), conf, "earliest", name="numbers")

    def is_number(record: KafkaRecord) -> bool:
        return bool(record.value != b"junk")

    def value(record: KafkaRecord) -> bytes:
        if record.value == b"kill" and not Path(killed).exists():
            Path(killed).touch()
            os.killpg(os.getsid(0), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)  # a worker, which would write on
        return record.value

    numbers.filter(is_number).to_kafka(
        target,
        conf,
        key=lambda record: record.key,
        value=value,
        delivery="exactly_once",
        name="copy",
    )
    run(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])
