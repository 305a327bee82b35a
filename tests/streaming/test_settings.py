"""Settings of Spark's that change what a program does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark import RDD, SparkContext

from penstock.errors import ConfigError
from penstock.receivers import Receiver
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.streaming.settings import spark_settings
from tests.waiting import eventually

pytestmark = pytest.mark.spark


@pytest.fixture
def make(sc: SparkContext) -> Iterator[Callable[[str, str], StreamingContext]]:
    """Make a program with a setting."""
    with ExitStack() as stack:

        def make_with(name: str, value: str) -> StreamingContext:
            stack.enter_context(spark_settings(sc, {name: value}))
            ssc = StreamingContext(sc, 1, clock=ManualClock())
            stack.callback(ssc.stop, stopSparkContext=False)
            return ssc

        yield make_with


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


WRITE_AHEAD_LOG = "spark.streaming.receiver.writeAheadLog.enable"


class Counting(Receiver):
    """Stores a record, and then how often that was fsynced in its process."""

    def onStart(self) -> None:
        synced: list[int] = []
        self.usual = os.fsync

        def fsync(fd: int) -> None:
            synced.append(fd)
            self.usual(fd)

        os.fsync = fsync
        self.store(["a record"])
        self.store([str(len(synced))])

    def onStop(self) -> None:
        os.fsync = self.usual


@pytest.mark.parametrize(
    ("setting", "checkpoint", "synced"),
    [(None, True, True), ("true", True, True), ("false", True, False), (None, False, False)],
)
def test_the_write_ahead_log_decides_whether_received_blocks_are_fsynced(
    make: Callable[[str, str], StreamingContext],
    tmp_path: Path,
    setting: str | None,
    checkpoint: bool,
    synced: bool,
) -> None:
    ssc = make(*((WRITE_AHEAD_LOG, setting) if setting else ("spark.penstock.unused", "")))
    if checkpoint:
        ssc = StreamingContext.getOrCreate(str(tmp_path / "c"), lambda: ssc, recover="program")
    seen: list[str] = []
    ssc.receiverStream(Counting()).foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    assert isinstance(ssc.clock, ManualClock)
    stepper = Stepper(ssc, ssc.clock)
    ssc.start()
    assert eventually(lambda: bool(stepper.step()) and len(seen) == 2)
    assert (int(seen[1]) > 0) is synced


def test_a_write_ahead_log_wants_a_checkpoint_location(
    make: Callable[[str, str], StreamingContext],
) -> None:
    ssc = make(WRITE_AHEAD_LOG, "true")
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    with pytest.raises(ConfigError, match="no checkpoint location"):
        ssc.start()


def test_settings_of_sparks_own_logs_are_warned_of(
    make: Callable[[str, str], StreamingContext], caplog: pytest.LogCaptureFixture
) -> None:
    make("spark.streaming.receiver.writeAheadLog.rollingIntervalSecs", "60")
    assert "writeAheadLog.rollingIntervalSecs has no effect" in caplog.text


def test_the_setting_that_was_meant_is_named(
    make: Callable[[str, str], StreamingContext], caplog: pytest.LogCaptureFixture
) -> None:
    make("spark.streaming.backpressure.enable", "true")
    assert "enable has no effect: did you mean spark.streaming.backpressure.enabled?" in caplog.text


def test_the_checkpoint_location_may_be_a_setting(
    make: Callable[[str, str], StreamingContext], tmp_path: Path
) -> None:
    ssc = make("spark.streaming.checkpoint.directory", str(tmp_path / "c"))
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    ssc.start()
    assert (tmp_path / "c" / "metadata").exists()
