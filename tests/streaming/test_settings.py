"""Settings of Spark's that change what a program does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from pyspark import RDD, SparkContext

from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper

pytestmark = pytest.mark.spark


@pytest.fixture
def make(sc: SparkContext) -> Iterator[Callable[[str, str], StreamingContext]]:
    """Make a program with a setting."""
    made: list[StreamingContext] = []
    names: list[str] = []

    def make_with(name: str, value: str) -> StreamingContext:
        names.append(name)
        sc._conf.set(name, value)
        made.append(StreamingContext(sc, 1, clock=ManualClock()))
        return made[-1]

    yield make_with
    for ssc in made:
        ssc.stop(stopSparkContext=False)
    for name in names:
        sc._conf._jconf.remove(name)


@pytest.mark.parametrize(("unpersist", "cached"), [("true", False), ("false", True)])
def test_unpersist(
    make: Callable[[str, str], StreamingContext], unpersist: str, cached: bool
) -> None:
    ssc = make("spark.streaming.unpersist", unpersist)
    seen: list[RDD[int]] = []
    ssc.queueStream([[1]]).map(str).cache().foreachRDD(seen.append)
    assert isinstance(ssc.clock, ManualClock)
    stepper = Stepper(ssc, ssc.clock)
    ssc.start()
    stepper.step(3)
    assert seen[0].is_cached is cached
    ssc.stop(stopSparkContext=False)
    for rdd in seen:
        rdd.unpersist()


GRACEFUL = "spark.streaming.stopGracefullyOnShutdown"


def test_sigterm_is_handled_while_the_program_runs(
    make: Callable[[str, str], StreamingContext],
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    ssc = make(GRACEFUL, "true")
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    ssc.start()
    assert signal.getsignal(signal.SIGTERM) != before
    ssc.stop(stopSparkContext=False)
    assert signal.getsignal(signal.SIGTERM) == before


def test_sigterm_cannot_be_handled_from_other_threads(
    make: Callable[[str, str], StreamingContext], caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    ssc = make(GRACEFUL, "true")
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    thread = threading.Thread(target=ssc.start)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == before
    assert "SIGTERM will not stop the program gracefully" in caplog.text


def test_sigterm_is_left_alone_by_default(make: Callable[[str, str], StreamingContext]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    ssc = make(GRACEFUL, "false")
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    ssc.start()
    assert signal.getsignal(signal.SIGTERM) == before
