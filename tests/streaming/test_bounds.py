"""A Spark program whose stream is bounded: receiving goes on exactly as far as batches do."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame

from penstock.errors import ConfigError
from tests.streaming.received import Numbers
from tests.streaming.runs import Runs
from tests.streaming.settings import spark_settings
from tests.waiting import eventually

pytestmark = pytest.mark.spark

NUMBERS = [str(n) for n in range(60)]


def test_the_lag_limit_holds_receivers_to_what_batches_commit(sc: SparkContext, runs: Runs) -> None:
    rows: list[Any] = []
    lags: list[int] = []

    def collect(df: DataFrame, batch_id: int) -> None:
        taken = [row.value for row in df.collect()]
        lags.append(len(taken))
        rows.extend(taken)

    with (
        spark_settings(sc, {"spark.penstock.journal.maxLag": "10"}),
        runs.running_program(
            lambda ssc: ssc.receiverStream(Numbers(NUMBERS), name="numbers").foreachBatch(collect)
        ) as stepper,
    ):
        assert eventually(lambda: bool(stepper.step()) and len(rows) == len(NUMBERS))
    assert sorted(rows, key=int) == NUMBERS
    assert max(lags) <= 10


def test_bounds_that_cannot_work_stop_the_start(sc: SparkContext, runs: Runs) -> None:
    with spark_settings(sc, {"spark.penstock.journal.maxBytes": "1m"}):
        ssc = runs.create()
        ssc.receiverStream(Numbers(NUMBERS), name="numbers").foreachBatch(lambda df, batch_id: None)
        with pytest.raises(ConfigError, match="bytes is 1048576"):
            ssc.start()
