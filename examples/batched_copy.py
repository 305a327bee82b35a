"""Copies the records of a topic to another one, in upper case, and survives kill -9.

    pip install 'penstock-spark[kafka]'        # kafka_exactly_once.py says how to start a broker
    python examples/batched_copy.py localhost:9092 lines upper /tmp/copy

Stop it in any way, and start it again: it continues after its newest checkpoint. No record is
skipped; those of the batch that was running are written again.
"""

from __future__ import annotations

import sys

from penstock.batched import Stream, from_kafka_batched


def upper(values: list[bytes]) -> list[bytes]:
    """Process one partition's records of a batch; runs where they are read."""
    return [value.upper() for value in values]


def build(brokers: str, source: str, target: str, checkpoints: str) -> Stream:
    """Return the pipeline."""
    conf = {"bootstrap.servers": brokers, "auto.offset.reset": "earliest"}
    stream = from_kafka_batched([source], conf, checkpoint_path=checkpoints, poll_interval="0.3s")
    return stream.map(upper).flatten().to_kafka(target, {"bootstrap.servers": brokers})


if __name__ == "__main__":
    stream = build(*sys.argv[1:])
    stream.start()
    stream.awaitTermination()
