"""start_receivers: what is pushed reaches a query; receivers are supervised, fenced and drained."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import ConfigError, FencedError
from penstock.journal import JournalStream
from penstock.journal.description import stream_names
from penstock.receivers import HttpReceiver, Receiver, TailReceiver
from penstock.storage import open_storage
from penstock.streaming import StreamingContext
from penstock.structured import RunningReceivers, start_receivers
from tests.background import background
from tests.faults.driver import Driver
from tests.journal.helpers import read_all
from tests.structured.queries import Query
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark

TEXT = {"content-type": "text/plain"}


class Place:
    """A stream, and who receives into it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.journal = folder / "journal"
        self.log = folder / "app.log"
        self.log.touch()
        self.lines = 0
        self.started: list[RunningReceivers] = []

    def start(self, *receivers: Receiver) -> RunningReceivers:
        """Start receivers, by default of the log's lines."""
        given = receivers or [TailReceiver(str(self.log))]
        self.started.append(start_receivers(self.spark, given, self.journal, "clicks"))
        return self.started[-1]

    @property
    def stream(self) -> JournalStream:
        return JournalStream.open(open_storage(self.journal), "clicks")

    def stored(self) -> list[str]:
        return sorted(read_all(self.stream))

    def receives(self) -> bool:
        """Append lines to the log until each of it is stored, once."""
        with self.log.open("a") as file:
            file.writelines(f"line {self.lines + each:06}\n" for each in range(3))
        self.lines += 3
        expected = [f"line {number:06}" for number in range(self.lines)]
        return eventually(lambda: self.stored() == expected)


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    place = Place(spark, tmp_path)
    yield place
    for receivers in place.started:
        receivers.stop(WAIT_S)


def url_of(receivers: RunningReceivers) -> str:
    assert eventually(lambda: receivers.status()[0].listening_at is not None)
    return receivers.status()[0].listening_at or ""


def test_what_is_acked_until_they_are_stopped_reaches_the_query(
    place: Place, tmp_path: Path
) -> None:
    """Clients post all the time; first the receivers are stopped, then the query."""
    receivers = place.start(HttpReceiver(port=0))
    assert [each.state for each in receivers.status()] in (["starting"], ["started"])
    query = Query(place.spark, place.stream, tmp_path / "checkpoint")
    started = query.start("0 seconds")
    url, acked = url_of(receivers), list[str]()

    def post(end: threading.Event) -> None:
        while not end.is_set():
            with suppress(httpx.TransportError):
                line = f"line {len(acked)}"
                posted = httpx.post(url, content=line, headers=TEXT, timeout=WAIT_S)
                if posted.status_code == 200:
                    acked.append(line)

    with background(post):
        assert eventually(lambda: len(query.seen) > 2)
        receivers.stop(WAIT_S)
        stored = place.stored()
        started.processAllAvailable()
        started.stop()
    assert stored == sorted(acked)
    assert [each.state for each in receivers.status()] == ["stopped"]
    query.drain()
    assert sorted(line for batch in query.seen for line in batch) == stored
    assert query.ids == sorted(set(query.ids))


def test_one_that_is_killed_is_started_again_and_continues(place: Place) -> None:
    receivers = place.start()
    assert place.receives()
    (before,) = receivers.status()
    assert before.process_id is not None
    os.kill(before.process_id, signal.SIGKILL)
    assert place.receives()
    (after,) = receivers.status()
    assert (after.name, after.state) == ("r0", "started")
    assert after.process_id != before.process_id
    assert receivers.error is None


def test_a_later_driver_takes_them_over_and_the_earlier_one_leaves_them_alone(
    place: Place,
) -> None:
    first = place.start()
    assert place.receives()
    second = place.start()
    assert place.receives()
    assert eventually(lambda: first.error is not None)
    assert isinstance(first.error, FencedError)
    assert eventually(lambda: first.status()[0].state == "stopped")
    first.stop()
    assert place.receives()
    assert second.error is None
    assert second.status()[0].state == "started"


def test_they_take_over_from_a_dstream_program_that_is_alive(
    sc: SparkContext, place: Place, tmp_path: Path
) -> None:
    """Its journal, its stream, and the position of its receiver."""
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(str(tmp_path))
    ssc.receiverStream(TailReceiver(str(place.log)), name="clicks").foreachRDD(lambda rdd: None)
    ssc.start()
    try:
        assert place.receives()
        receivers = place.start()
        assert place.receives()
        with pytest.raises(FencedError):
            ssc.awaitTermination(WAIT_S)
    finally:
        ssc.stop(stopSparkContext=False)
    assert place.receives()
    assert receivers.error is None


def test_they_end_with_the_session(tmp_path: Path) -> None:
    program = Path(__file__).with_name("stopped_session_program.py")
    places = [str(tmp_path / "journal"), str(tmp_path / "app.log")]
    with Driver(program, places, tmp_path / "stderr.txt") as driver:
        assert driver.wait_line("stopped") == "stopped None"
        assert driver.process.wait() == 0, driver.log()
        assert "Traceback" not in driver.log()


class Failing(Receiver):
    """Cannot start."""

    def onStart(self) -> None:
        raise ValueError("no such source")

    def onStop(self) -> None:
        pass


def test_the_status_tells_why_one_does_not_run(place: Place) -> None:
    receivers = place.start(Failing())
    assert eventually(lambda: "no such source" in (receivers.status()[0].last_error or ""))
    assert receivers.status()[0].state == "restarting"


@pytest.mark.parametrize(
    ("receivers", "told"),
    [
        ([], "no receivers"),
        (["http"], "is not a receiver"),
        ([HttpReceiver(port=0), HttpReceiver(port=0, schema="binary")], "of one schema"),
        ([HttpReceiver(port=0)] * 4, "take all 4 task slot"),
    ],
)
def test_what_cannot_work_is_refused(
    spark: SparkSession, tmp_path: Path, receivers: Any, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        start_receivers(spark, receivers, tmp_path / "journal", "clicks")
    assert stream_names(open_storage(tmp_path / "journal")) == []


def test_receivers_of_several_streams_share_the_slots(place: Place) -> None:
    place.start(*[TailReceiver(str(place.log))] * 2)
    with pytest.raises(ConfigError, match="take all 4 task slot"):
        start_receivers(place.spark, [HttpReceiver(port=0)] * 2, place.journal, "views")


def test_receivers_of_pickles_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    pickling = Failing()
    pickling.schema = "pickle"
    with pytest.raises(ConfigError, match="no query reads"):
        start_receivers(spark, pickling, tmp_path / "journal", "clicks")
