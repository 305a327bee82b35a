"""Batches of a topic through one function, against streamz's own from_kafka_batched.

100-byte values in 4 partitions, the same function (the number and bytes of a list of values), the
same size of batches. Ours runs on an embedded Spark and makes a checkpoint of each batch in files;
streamz commits offsets to the broker, in one thread.

And what a checkpoint costs, by itself, over 1 and over 100 partitions: the dirty bit and the logs
as tasks write them, one after the other, and the checkpoint; against 5 and 50 ms.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import partial

from harness import Metric, fresh_process, in_turns, parse_options, report
from harness.kafka_broker import fill_topic, kafka_broker

from penstock.batched.checkpoints import Checkpoints, note_read
from penstock.kafka import KafkaRange
from penstock.storage import attach_storage

_PARTITIONS = 4
_TARGET = 3.0
_CHECKPOINT_MS = {1: 5.0, 100: 50.0}
"""Partitions -> what a checkpoint may take."""


def main() -> None:
    """Run all parts."""
    options = parse_options(__doc__)
    metrics = [_checkpoint(partitions, limit) for partitions, limit in _CHECKPOINT_MS.items()]
    with kafka_broker() as broker:
        if broker is None:
            print("  there are no libraries of a broker (scripts/kafka.sh): no batches measured")
        else:
            records, rounds = (1_000_000, 1) if options.quick else (4_000_000, 3)
            fill_topic(broker, "in", _PARTITIONS, records)
            sides = {
                engine: partial(_records_per_s, engine, broker.address, records)
                for engine in ("penstock", "streamz")
            }
            ours, peer = in_turns(sides, rounds, "records/s").values()
            metrics.append(Metric("batches, to streamz", "records/s", ours, peer, _TARGET))
    report("batched", metrics, as_json=options.json)


def _records_per_s(engine: str, address: str, records: int) -> float:
    found = fresh_process("_batched_program.py", engine, address, "in", records, timeout_s=180)
    return float(found["records_per_s"])


def _checkpoint(partitions: int, limit_ms: float) -> Metric:
    took_ms = []
    with tempfile.TemporaryDirectory() as path:
        checkpoints = Checkpoints(path)
        checkpoints.open(["t"])
        checkpoints.begin_topic("t", {})
        logs = attach_storage(path).without_sync()
        for batch in range(50):
            ranges = [KafkaRange("t", each, batch, batch + 1) for each in range(partitions)]
            begun_s = time.perf_counter()
            checkpoints.begin(ranges)
            for each in ranges:
                note_read(logs, each.topic, each.partition, each.end_offset)
            checkpoints.finish(ranges)
            took_ms.append(1000 * (time.perf_counter() - begun_s))
        checkpoints.close()
    name = f"a checkpoint over {partitions} partition{'s' if partitions > 1 else ''}"
    return Metric(name, "ms", statistics.median(took_ms), limit_ms, 1.0, less_is_better=True)


if __name__ == "__main__":
    main()
