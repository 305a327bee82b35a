"""The program that test_random_kills.py kills: numbered records of a topic to another one.

python batched_program.py BROKERS TOPIC OUT CHECKPOINTS

Begins when it is told to, by a line.
"""

from __future__ import annotations

import sys

from penstock.batched import from_kafka_batched
from tests.driver_program import new_spark

MOST = 1000
"""The most records of a partition in a batch."""


def main(brokers: str, topic: str, out: str, path: str) -> None:
    sc = new_spark("local[2,20]")  # a worker that is killed fails its task, which is tried again
    sc.range(2, numSlices=2).count()  # its workers have started
    sys.stdin.readline()
    conf = {"bootstrap.servers": brokers, "auto.offset.reset": "earliest"}
    stream = from_kafka_batched(
        [topic], conf, checkpoint_path=path, poll_interval=0.05, max_batch_size=MOST
    )
    stream.flatten().to_kafka(out, {"bootstrap.servers": brokers})
    stream.start()
    stream.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
