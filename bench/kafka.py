"""Topics of a real broker on the same cores, read and written, against what Spark users have today.

Reading: the records of a topic (8-byte keys, 100-byte values, 4 partitions) in batches, as an RDD
of bytes, counted, and as DataFrames written to Spark's noop sink. Ours is the whole batch, from the
tick to its commit; the peer is a batch read of the same ranges by Spark's own connector, which
runs within the JVM, and plans and commits nothing.

Idle: a batch that finds nothing new in 100 partitions, against an empty one and 20 ms.

Writing: values to a topic from Spark's Python workers, against confluent-kafka's producer alone in
the same workers; and exactly once against at least once, in batches of about a second.

--quick counts records, and reads no other columns; it leaves idle batches out.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from harness import Metric, fresh_process, in_turns, parse_options, report
from harness.kafka_broker import connector_jars, fill_topic, kafka_broker

_PARTITIONS = 4
_TARGETS = {"rdd": 6.0, "count": 1.2, "key and value": 1.0, "all columns": 0.7}
_RDD_SHARE = 2
"""The peer's RDDs are so slow that their batches are smaller by this."""
_IDLE_PARTITIONS = 100
_IDLE_MS = 20.0
_TIMEOUT_S = 180.0


def main() -> None:
    """Run all parts."""
    options = parse_options(__doc__)
    with kafka_broker() as broker:
        if broker is None:
            print("  there are no libraries of a broker (scripts/kafka.sh): nothing was measured")
            report("kafka", [], as_json=options.json)
            return
        batch, batches, rounds = (200_000, 3, 1) if options.quick else (1_000_000, 4, 3)
        fill_topic(broker, "in", _PARTITIONS, batch * batches)
        broker.create_topic("idle", partitions=_IDLE_PARTITIONS)
        broker.create_topic("out", partitions=_PARTITIONS)
        parts = ("count",) if options.quick else _TARGETS
        metrics = _reading(broker.address, parts, batch, batches, rounds)
        if not options.quick:
            metrics.append(_idle(broker.address, 100, rounds))
        metrics += _writing(broker.address, batch // 2, batches, rounds)
    report("kafka", metrics, as_json=options.json)


def _reading(
    address: str, parts: Iterable[str], batch: int, batches: int, rounds: int
) -> list[Metric]:
    engines = ["penstock", "connector"] if connector_jars() else ["penstock"]
    metrics = []
    for part in parts:
        records = batch // _RDD_SHARE if part == "rdd" else batch
        sides = {
            f"{part}, {engine}": partial(_read_rate, engine, part, address, records, batches)
            for engine in engines
        }
        ours, *peer = in_turns(sides, rounds, "records/s").values()
        name = f"{part}, to Spark's connector"
        metrics.append(Metric(name, "records/s", ours, peer[0] if peer else None, _TARGETS[part]))
    return metrics


def _read_rate(engine: str, part: str, address: str, records: int, batches: int) -> float:
    arguments = ("read", engine, part, address, "in", records // _PARTITIONS, batches)
    found = fresh_process("_kafka_program.py", *arguments, timeout_s=_TIMEOUT_S)
    return records / float(found["seconds"])


def _idle(address: str, batches: int, rounds: int) -> Metric:
    def batch_ms(kind: str) -> float:
        arguments = ("idle", kind, address, "idle", batches)
        found = fresh_process("_kafka_program.py", *arguments, timeout_s=_TIMEOUT_S)
        return float(found["ms"])

    kinds = ("kafka", "empty")
    ours, empty = in_turns({kind: partial(batch_ms, kind) for kind in kinds}, rounds, "ms").values()
    name = f"idle batch over {_IDLE_PARTITIONS} partitions, to empty + {_IDLE_MS:g} ms"
    return Metric(name, "ms", ours, empty + _IDLE_MS, 1.0, less_is_better=True)


def _writing(address: str, records: int, batches: int, rounds: int) -> list[Metric]:
    kinds = ("at_least_once", "bare", "exactly_once")
    sides = {kind: partial(_write_rate, kind, address, records, batches) for kind in kinds}
    at_least, bare, exactly = in_turns(sides, rounds, "records/s").values()
    unit = "records/s"
    return [
        Metric("written at least once, to the bare producer", unit, at_least, bare, 0.9),
        Metric("written exactly once, to at least once", unit, exactly, at_least, 1 / 1.25),
    ]


def _write_rate(kind: str, address: str, records: int, batches: int) -> float:
    arguments = ("sink", kind, address, "out", records // 2, batches)
    found = fresh_process("_kafka_program.py", *arguments, timeout_s=_TIMEOUT_S)
    return records / float(found["seconds"])


if __name__ == "__main__":
    main()
