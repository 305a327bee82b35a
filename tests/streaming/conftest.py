"""Programs stepped by a manual clock."""

from collections.abc import Callable, Iterator

import pytest
from pyspark import SparkContext

from penstock.streaming import StreamingContext
from penstock.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def ssc(sc: SparkContext, clock: ManualClock) -> Iterator[StreamingContext]:
    ssc = StreamingContext(sc, 1, clock=clock)
    yield ssc
    ssc.stop(stopSparkContext=False)


@pytest.fixture
def continuing(sc: SparkContext) -> Iterator[None]:
    """Has the programs of the test continue past failed batches."""
    name = "spark.penstock.onBatchFailure"
    conf = sc._jsc.sc().conf()
    conf.set(name, "continue")
    yield
    conf.remove(name)


@pytest.fixture
def retain(sc: SparkContext) -> Iterator[Callable[[int], None]]:
    """Sets how many batches the logs of the programs that follow keep."""
    name = "spark.sql.streaming.minBatchesToRetain"
    conf = sc._jsc.sc().conf()
    yield lambda batches: conf.set(name, str(batches))
    conf.remove(name)
