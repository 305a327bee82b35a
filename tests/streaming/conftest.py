"""Programs stepped by a manual clock."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark import SparkContext

from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from tests.streaming.runs import Runs
from tests.streaming.settings import spark_settings


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def ssc(sc: SparkContext, clock: ManualClock) -> Iterator[StreamingContext]:
    ssc = StreamingContext(sc, 1, clock=clock)
    yield ssc
    ssc.stop(stopSparkContext=False)


@pytest.fixture
def runs(sc: SparkContext, clock: ManualClock, tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(sc, tmp_path / "checkpoint", clock)
    yield runs
    runs.stop()


@pytest.fixture
def continuing(sc: SparkContext) -> Iterator[None]:
    """Has the programs of the test continue past failed batches."""
    with spark_settings(sc, {"spark.penstock.onBatchFailure": "continue"}):
        yield


@pytest.fixture
def retain(sc: SparkContext) -> Iterator[Callable[[int], None]]:
    """Sets how many batches the logs of the programs that follow keep."""
    name = "spark.sql.streaming.minBatchesToRetain"
    with ExitStack() as stack:
        yield lambda n: stack.enter_context(spark_settings(sc, {name: str(n)}))
