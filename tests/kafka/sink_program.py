"""The program that test_sink_storm.py kills: topics copied to a topic, exactly once.

    python sink_program.py MASTER BROKERS PATTERN TARGET CHECKPOINT

Prints a line for every batch that was committed. Records with the value "junk" are left out.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from tests.faults.program import new_context, run

if TYPE_CHECKING:
    from penstock.kafka import KafkaRecord


def main(master: str, brokers: str, pattern: str, target: str, checkpoint: str) -> None:
    ssc = new_context(master, 0.3)
    ssc.checkpoint(checkpoint)
    conf = {"bootstrap.servers": brokers}
    numbers = ssc.kafkaStream(re.compile(pattern), conf, "earliest", name="numbers")

    def is_number(record: KafkaRecord) -> bool:
        return bool(record.value != b"junk")

    numbers.filter(is_number).to_kafka(
        target,
        conf,
        key=lambda record: record.key,
        value=lambda record: record.value,
        delivery="exactly_once",
        name="copy",
    )
    run(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])
