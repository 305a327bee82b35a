"""A Spark program whose stream is bounded: receiving goes on exactly as far as batches do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame

from penstock.errors import ConfigError
from penstock.receivers import Receiver
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.waiting import eventually

pytestmark = pytest.mark.spark

COUNT = 60


class Numbers(Receiver):
    """Stores numbers one by one."""

    def onStart(self) -> None:
        threading.Thread(target=self._store, daemon=True).start()

    def onStop(self) -> None:
        pass

    def _store(self) -> None:
        for n in range(self.lastPosition() or 0, COUNT):
            self.store(str(n), position=n + 1)


@contextmanager
def settings(sc: SparkContext, **values: str) -> Iterator[None]:
    names = {f"spark.penstock.journal.{name}": value for name, value in values.items()}
    for name, value in names.items():
        sc._conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            sc._conf._jconf.remove(name)


def program(sc: SparkContext, folder: Path, clock: ManualClock) -> StreamingContext:
    def create() -> StreamingContext:
        return StreamingContext(sc, 1, clock=clock)

    return StreamingContext.getOrCreate(str(folder / "checkpoint"), create, recover="program")


def test_the_lag_limit_holds_receivers_to_what_batches_commit(
    sc: SparkContext, tmp_path: Path
) -> None:
    rows: list[Any] = []
    lags: list[int] = []
    clock = ManualClock(1_000_000)
    with settings(sc, maxLag="10"):
        ssc = program(sc, tmp_path, clock)
        stream = ssc.receiverStream(Numbers(), name="numbers")

        def collect(df: DataFrame, batch_id: int) -> None:
            taken = [row.value for row in df.collect()]
            lags.append(len(taken))
            rows.extend(taken)

        stream.foreachBatch(collect)
        stepper = Stepper(ssc, clock)
        ssc.start()
        try:

            def all_done() -> bool:
                stepper.step()
                return len(rows) == COUNT

            assert eventually(all_done)
        finally:
            ssc.stop(stopSparkContext=False)
    assert sorted(map(int, rows)) == list(range(COUNT))
    assert max(lags) <= 10


def test_bounds_that_cannot_work_stop_the_start(sc: SparkContext, tmp_path: Path) -> None:
    with settings(sc, maxBytes="1m"):
        ssc = program(sc, tmp_path, ManualClock(1_000_000))
        ssc.receiverStream(Numbers(), name="numbers").foreachBatch(lambda df, batch_id: None)
        with pytest.raises(ConfigError, match="bytes is 1048576"):
            ssc.start()
        ssc.stop(stopSparkContext=False)
