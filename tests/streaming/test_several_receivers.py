"""Several receivers of one stream: one offset map, one rate, restarts each on its own, spread."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD, SparkContext

from penstock.driver.spark import ReceiverPlacement
from penstock.errors import ConfigError, FencedError
from penstock.journal import JournalWriter
from penstock.journal.layout import WriterId
from penstock.receivers import Command, Receiver, claim_run, read_status
from penstock.streaming import StreamingContext, StreamingListener
from penstock.streaming.core.events import StreamingListenerReceiverStarted
from penstock.testing.stepper import Stepper
from tests.faults.driver import Driver
from tests.receivers.supervised import newest_command
from tests.streaming.received import Numbers
from tests.streaming.runs import Runs
from tests.streaming.settings import spark_settings, spark_silent
from tests.waiting import eventually

pytestmark = pytest.mark.spark


class Some(Numbers):
    """Numbers, as arguments."""

    def __init__(self, *records: str, schema: str = "string") -> None:
        super().__init__(list(records), schema)


class Names(StreamingListener):
    """Notes which receivers started."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()

    def onReceiverStarted(self, receiverStarted: StreamingListenerReceiverStarted) -> None:
        self.started[receiverStarted.receiverInfo().name()] += 1


class Program(Runs):
    """A program of one stream, whose runs have different receivers."""

    def __init__(self, sc: SparkContext, location: Path) -> None:
        super().__init__(sc, location, stream="clicks")
        self.names = Names()
        self.seen: list[list[str]] = []

    @contextmanager
    def running(
        self, *receivers: Receiver, settings: Mapping[str, str] | None = None
    ) -> Iterator[Stepper]:
        def define(ssc: StreamingContext) -> None:
            self.define(ssc, receivers)
            ssc.addStreamingListener(self.names)

        with (
            spark_settings(self.sc, settings or {}),
            self.running_program(define) as stepper,
        ):
            yield stepper

    def define(self, ssc: StreamingContext, receivers: Sequence[Receiver]) -> None:
        ssc.receiverStream(receivers, name="clicks").foreachRDD(self._collect)

    def _collect(self, rdd: RDD[str]) -> None:
        self.seen.append(sorted(rdd.collect()))


@pytest.fixture
def program(sc: SparkContext, tmp_path: Path) -> Program:
    return Program(sc, tmp_path / "checkpoint")


def test_they_share_a_stream_and_an_offset_map(program: Program) -> None:
    with program.running(Some("a", "b"), Some("c"), Some()) as stepper:
        program.wait_durable(3)
        assert eventually(lambda: len(program.journal().writers()) == 3)  # r2 has no record
        stepper.step()
        assert eventually(lambda: len(program.names.started) == 3)
    assert program.seen == [["a", "b", "c"]]
    assert program.offsets(0) == [
        {"clicks": {"r0-00000000": 2, "r1-00000000": 1, "r2-00000000": 0}}
    ]
    assert set(program.names.started) == {"Some-0-r0", "Some-0-r1", "Some-0-r2"}


def test_each_has_the_bound_of_its_own(program: Program) -> None:
    settings = {"spark.penstock.journal.maxLag": "4"}
    names = [[f"{which}{n}" for n in range(10)] for which in "abc"]
    with program.running(*(Some(*each) for each in names), settings=settings):
        program.wait_durable(12)
        said = read_status(program.journal(), "r0")
        assert said is not None
        assert said.max_lag_records == 4
    with program.running(*(Some(*each) for each in names[:2]), settings=settings) as stepper:
        assert eventually(lambda: bool(stepper.step()) and sum(map(len, program.seen)) == 24)
    assert len(program.seen[0]) == 12
    assert max(map(len, program.seen)) <= 12
    seen = [record for batch in program.seen for record in batch]
    assert sorted(seen) == sorted([*names[0], *names[1], *names[2][:4]])


def test_fewer_and_more_of_them_in_the_next_run(program: Program) -> None:
    """Writers that are left over are sealed, and what they wrote is read."""
    with program.running(Some("a"), Some("b"), Some("c")):
        program.wait_durable(3)
    journal = program.journal()
    killed = JournalWriter(journal, "r2")  # as one that outlived its driver
    killed.append("d")
    killed.flush()
    claim_run(journal, "r2", "b" * 32, Command())
    with program.running(Some("a")) as stepper:
        stepper.step()
        assert newest_command(journal, "r2").stop
    killed.append("too late")
    with pytest.raises(FencedError):
        killed.flush()
    killed.abandon()
    with program.running(Some("a"), Some("b", "e")) as stepper:
        program.wait_durable(5)
        stepper.step(2)
    assert program.seen == [["a", "b", "c", "d"], ["e"], []]
    ends = (journal.newest(writer) for writer in journal.writers())
    assert all(end is not None and end.sealed for end in ends)


def test_other_writers_of_the_stream_are_left_alone(program: Program) -> None:
    with program.running(Some("a")):
        program.wait_durable(1)
    writer = JournalWriter(program.journal(), "ingest")
    writer.append("b")
    writer.flush()
    with program.running(Some("a")) as stepper:
        stepper.step()
        writer.append("c")
        writer.flush()
        stepper.step()
    writer.close()
    assert program.seen == [["a", "b"], ["c"]]


def test_each_is_started_again_on_its_own(program: Program) -> None:
    with spark_silent(program.sc), program.running(Some("a", "b"), Some("c")) as stepper:
        program.wait_durable(3)
        assert eventually(lambda: program.names.started.total() == 2)
        status = read_status(program.journal(), "r1")
        assert status is not None
        os.kill(status.pid, signal.SIGKILL)
        assert eventually(lambda: len(program.journal().writers()) == 3)
        stepper.step()
        assert eventually(lambda: program.names.started["Some-0-r1"] == 2)
    assert program.journal().writers() == [
        WriterId("r0", 0),
        WriterId("r1", 0),
        WriterId("r1", 1),
    ]
    assert program.seen == [["a", "b", "c"]]
    assert program.names.started["Some-0-r0"] == 1


def test_they_share_the_rate_of_the_stream(program: Program) -> None:
    settings = {"spark.streaming.receiver.maxRate": "9"}
    with program.running(Some(), Some(), settings=settings):
        rates = [newest_command(program.journal(), name).rate for name in ("r0", "r1")]
    assert rates == [4.5, 4.5]


def test_a_limit_holds_for_all_of_them_together(program: Program) -> None:
    many = [str(number) for number in range(100)]
    settings = {"spark.streaming.receiver.maxRate": "5"}
    with program.running(Some(*many), Some(*many), settings=settings) as stepper:
        program.wait_durable(6)
        batches = stepper.step(2)
    assert batches[0].num_records == 5
    assert batches[1].num_records <= 5


@pytest.mark.parametrize(
    ("receivers", "message"),
    [
        ([], "no receivers"),
        ([Some(), Some(schema="binary")], "one schema"),
        ([Some(), "b"], "is not a receiver"),
    ],
)
def test_what_cannot_share_a_stream(
    ssc: StreamingContext, receivers: list[Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ssc.receiverStream(receivers)


def test_a_union_of_two_streams_has_both_in_its_offsets(program: Program) -> None:
    def define(ssc: StreamingContext, receivers: Sequence[Receiver]) -> None:
        streams = [ssc.receiverStream(r, name=n) for r, n in zip(receivers, "ab", strict=True)]
        ssc.union(*streams).foreachRDD(program._collect)

    program.define = define  # type: ignore[method-assign]
    with program.running(Some("x"), Some("y", "z")) as stepper:
        program.wait_durable(1, "a")
        program.wait_durable(2, "b")
        stepper.step()
    assert program.seen == [["x", "y", "z"]]
    assert program.offsets(0) == [{"a": {"r0-00000000": 1}}, {"b": {"r0-00000000": 2}}]
    assert set(program.names.started) == {"Some-0", "Some-1"}  # alone in their streams


# -- placement --


def test_each_is_placed_where_the_fewest_are() -> None:
    live = ["e0", "e1", "e2"]
    placement = ReceiverPlacement(lambda: live, expected=0)
    stop = threading.Event()
    assert [placement.choose(f"r{n}", stop) for n in range(5)] == ["e0", "e1", "e2", "e0", "e1"]
    live.remove("e0")
    assert placement.choose("r0", stop) == "e2"
    assert placement.choose("r3", stop) == "e1"
    live.append("e3")
    assert placement.choose("r1", stop) == "e3"
    live.clear()
    assert placement.choose("r1", stop) is None


def test_placement_waits_for_executors_that_are_to_come() -> None:
    live: list[str] = ["e0"]
    looks: list[int] = []

    def look() -> list[str]:
        looks.append(len(live))
        if len(looks) == 3:
            live.append("e1")
        return live

    placement = ReceiverPlacement(look, expected=2)
    stop = threading.Event()
    assert placement.choose("r0", stop) == "e0"
    assert looks == [1, 1, 1]  # it did not look again once the second was there
    live.remove("e1")
    stop.set()
    assert placement.choose("r1", stop) == "e0"  # does not wait when it shall stop


def test_placement_waits_for_the_first_executor_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    live: list[str] = []

    def look() -> list[str]:
        nonlocal now_s
        now_s += 1.0 if live else 30.0  # the machine is slow
        if now_s > 60.0:
            live.append(f"e{len(live)}")
        return live

    placement = ReceiverPlacement(look, expected=3)
    assert placement.choose("r0", threading.Event()) == "e0"
    assert live == ["e0", "e1", "e2"]


CLUSTER_PROGRAM = Path(__file__).with_name("several_receivers_program.py")


@pytest.mark.slow
def test_they_are_spread_over_the_executors_of_a_cluster(tmp_path: Path) -> None:
    args = [str(tmp_path / "checkpoint")]
    with Driver(CLUSTER_PROGRAM, args, tmp_path / "errors", own_pythons=True) as driver:
        line = driver.wait_line("executors")
        driver.finish()
    executors = json.loads(line.removeprefix("executors"))
    assert sorted(Counter(executors.values()).values()) == [2, 2]
