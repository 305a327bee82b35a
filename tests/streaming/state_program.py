"""A mapWithState program that kills itself where it is told to: PLACE OUT BATCHES [POINT TIME_MS].

Each batch writes a file of what it gave and of all state. Batch times are the same in every run, so
what a run with kills leaves can be compared with a model. Tasks are killed, too: ``KilledOnce``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark import RDD, TaskContext

from penstock.checkpoint import CheckpointLocation
from penstock.state import PartitionVersion, UpdateTask, Version, VersionLog
from penstock.streaming import StreamingContext
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.inputs.input import InputDStream
from penstock.streaming.state import map_with_state
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.driver_program import new_spark, say
from tests.state.helpers import add_up

START_MS = 1_000_000
TIMEOUT_S = 3


def records_of(number: int) -> list[tuple[str, int]]:
    """Return what arrives in a batch."""
    chance = random.Random(number)
    return [(f"k{chance.randrange(9)}", chance.randrange(-1, 4)) for _ in range(6)]


class Counted(InputDStream):
    """Batch n takes ``records_of(n)``, in every run."""

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        return {self.name: {"n": self.partitions(start).get("n", 0) + 1}}

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        records = records_of(self.partitions(wanted.start).get("n", 0))
        return self.ssc.sparkContext.parallelize(records, 1)


class KilledOnce(UpdateTask):
    """Kills its worker in some batches, when its delta is there and Spark does not know it yet."""

    def __call__(self, number: int, records: Iterable[Any]) -> Iterator[PartitionVersion]:
        done = list(super().__call__(number, records))
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and self.time_ms // 1000 % 3 == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return iter(done)


def kill_at(point: str, time_ms: int) -> None:
    """Have this process killed before or after it publishes the version of that time."""
    publish = VersionLog.publish

    def published(log: VersionLog, version: Version) -> None:
        if point == "before" and version.time_ms == time_ms:
            os.kill(os.getpid(), signal.SIGKILL)
        publish(log, version)
        if point == "after" and version.time_ms == time_ms:
            os.kill(os.getpid(), signal.SIGKILL)

    VersionLog.publish = published  # type: ignore[method-assign]


def main() -> None:
    place, out, batches = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    point, time_ms = (sys.argv[4], int(sys.argv[5])) if len(sys.argv) > 4 else ("", 0)
    kill_at(point, time_ms)
    map_with_state.UpdateTask = KilledOnce  # type: ignore[misc]
    planned = CheckpointLocation(place).offsets
    ids = planned.batch_ids()
    last_ms = planned.require(ids[-1]).batch_timestamp_ms if ids else START_MS

    clock = ManualClock(last_ms)
    ssc = StreamingContext(new_spark("local[2,4]"), 1, clock=clock)
    ssc.checkpoint(place)
    mapped = Counted(ssc, "counted").mapWithState(add_up, timeout=TIMEOUT_S, numPartitions=2)

    def write(kind: str, time: Any, rdd: Any) -> None:
        at_ms = round(time.timestamp() * 1000)
        if point == "output" and at_ms == time_ms:
            os.kill(os.getpid(), signal.SIGKILL)
        (out / f"{at_ms}.{kind}").write_text(json.dumps(rdd.collect()))

    mapped.foreachRDD(lambda time, rdd: write("out", time, rdd))
    mapped.stateSnapshots().foreachRDD(lambda time, rdd: write("state", time, rdd))
    stepper = Stepper(ssc, clock)
    ssc.start()
    while not (out / f"{START_MS + 1000 * batches}.state").exists():
        stepper.step()
    ssc.stop()
    say("done")


if __name__ == "__main__":
    main()
