"""Rate limits in the engine, on Spark: cut batches, receive limits, kept and overridden rates."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark import SparkContext
from typer.testing import CliRunner

from penstock.checkpoint import CheckpointLocation
from penstock.cli.main import app
from penstock.errors import BatchFailedError, ConfigError, LogFormatError, StreamingError
from penstock.rate import (
    RATES_KEY,
    RateController,
    RateEstimator,
    RateOverride,
    RateOverrides,
    decode_rates,
)
from penstock.receivers import Command, Receiver, SocketReceiver, TailReceiver
from penstock.storage import open_storage
from penstock.streaming import BatchInfo, StreamingContext
from penstock.streaming.inputs.receiver_input import ReceiverInputDStream
from penstock.testing.stepper import Stepper
from tests.receivers.supervised import newest_command
from tests.streaming.runs import Runs
from tests.streaming.settings import spark_settings
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark

BACKPRESSURE = {
    "spark.streaming.backpressure.enabled": "true",
    "spark.streaming.backpressure.rateEstimator": f"{__name__}.Scripted",
    "spark.streaming.backpressure.pid.minRate": "1",
}


class Scripted(RateEstimator):
    """Answers from a list that a test fills, whatever came in, and notes what came in."""

    answers: ClassVar[list[float | None]] = []
    seen: ClassVar[list[tuple[int, int, int, int]]] = []

    def __init__(self, conf: Mapping[str, str], batch_interval_ms: int) -> None:
        assert batch_interval_ms == 1000

    def compute(
        self, time_ms: int, num_elements: int, processing_delay_ms: int, scheduling_delay_ms: int
    ) -> float | None:
        self.seen.append((time_ms, num_elements, processing_delay_ms, scheduling_delay_ms))
        answer = self.answers.pop(0) if self.answers else None
        if answer == 0:
            raise ZeroDivisionError("an estimator of a user's own")
        return answer

    def explain(self) -> str:
        return "as told"


@pytest.fixture(autouse=True)
def script() -> type[Scripted]:
    Scripted.answers, Scripted.seen = [], []
    return Scripted


class Program(Runs):
    """A program over one growing file, whose runs have different settings."""

    def __init__(self, sc: SparkContext, root: Path) -> None:
        super().__init__(sc, root / "checkpoint")
        self.log = root / "numbers.log"
        self.log.touch()
        self.records: list[str] = []
        self.during: Callable[[], None] = lambda: None

    def make(self, settings: Mapping[str, str]) -> None:
        with spark_settings(self.sc, settings):
            self.create()
            self.define()

    def define(self) -> None:
        self.ssc.tailStream(str(self.log), name="numbers").foreachRDD(self.collect)

    def collect(self, rdd: Any) -> None:
        self.records += rdd.collect()
        self.during()

    @contextmanager
    def running(self, settings: Mapping[str, str], **stop: bool) -> Iterator[Stepper]:
        with (
            spark_settings(self.sc, settings),
            self.running_program(lambda ssc: self.define(), **stop) as stepper,
        ):
            yield stepper

    def write(self, count: int, start: int = 0) -> list[str]:
        """Append so many records to the followed file."""
        lines = [str(number) for number in range(start, start + count)]
        with self.log.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))
        return lines

    def receiver_command(self) -> Command:
        return newest_command(self.journal(), "r0")

    def kept(self) -> dict[str, Any]:
        """What the newest entry of the offset log keeps of the rates."""
        newest = CheckpointLocation(self.location).offsets.latest()
        assert newest is not None
        return dict(decode_rates(newest[1].conf[RATES_KEY]))


@pytest.fixture
def program(sc: SparkContext, tmp_path: Path) -> Program:
    return Program(sc, tmp_path)


def sizes(infos: list[BatchInfo]) -> list[int]:
    return [info.num_records for info in infos]


def test_a_batch_never_exceeds_its_limit_with_a_backlog(program: Program) -> None:
    written = program.write(1000)
    with program.running({}):
        program.wait_durable(1000)
    with program.running({"spark.streaming.receiver.maxRate": "2.5"}) as stepper:
        infos = stepper.step(6)
    assert sizes(infos) == [2, 3, 2, 3, 2, 3]  # fractions are carried, and never saved up
    assert {info.limits["numbers"].records for info in infos} == {2.5}
    left = [info.limits["numbers"].waiting_records for info in infos]
    assert left == [998, 995, 993, 990, 988, 985]
    assert program.records == written[:15]


def test_back_pressure_bounds_the_first_batch_and_follows_the_estimates(
    program: Program, script: type[Scripted]
) -> None:
    written = program.write(5000)
    with program.running({}):
        program.wait_durable(5000)
    script.answers = [20.0, None, 0.0, 7.5]
    with program.running(BACKPRESSURE) as stepper:
        infos = stepper.step(5)
    assert sizes(infos) == [1000, 20, 20, 20, 7]  # 0 stands for an estimator that raises
    assert [info.limits["numbers"].reason for info in infos] == ["", *["as told"] * 4]
    assert program.records == written[:1067]
    assert [records for _, records, _, _ in script.seen] == [1000, 20, 20, 20, 7]


def test_the_rate_comes_back_after_a_restart(program: Program, script: type[Scripted]) -> None:
    program.write(5000)
    script.answers = [30.0]
    settings = BACKPRESSURE | {"spark.streaming.backpressure.initialRate": "400"}
    with program.running(settings) as stepper:
        program.wait_durable(400)
        assert stepper.step(2)[1].limits["numbers"].records == 30.0
    with program.running(settings) as stepper:
        assert program.receiver_command().rate == pytest.approx(33.0)  # a tenth faster at first
        assert sizes(stepper.step(1)) == [30]
        assert json.loads(program.kept()["numbers"].controller)["rate"] == 30.0


def test_kept_rates_that_cannot_be_read_are_named_and_started_anew(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    location = CheckpointLocation(program.location)
    with program.running(BACKPRESSURE) as stepper:
        stepper.step(1)
    newest = location.offsets.latest()
    assert newest is not None
    assert RATES_KEY in newest[1].conf
    entry = program.location / "offsets/0"
    damaged = entry.read_text().replace(r"\\\"version\\\": 1", r"\\\"version\\\": 9")
    assert damaged != entry.read_text()
    entry.write_text(damaged)
    (program.location / "offsets/.0.crc").unlink()
    with program.running(BACKPRESSURE) as stepper:
        assert stepper.step(1)[0].limits["numbers"].records == 1000.0
    assert "starts at its initial rate" in caplog.text


def test_history_is_kept_with_the_batches(program: Program, script: type[Scripted]) -> None:
    program.write(100)
    script.answers = [50.0, 60.0]
    with program.running(BACKPRESSURE) as stepper:
        program.wait_durable(100)
        stepper.step(3)
        offsets = CheckpointLocation(program.location).offsets
        entries = [offsets.get(batch) for batch in range(3)]
    kept = [decode_rates(entry.conf[RATES_KEY])["numbers"] for entry in entries if entry]
    assert [[ended.batch_id for ended in each.batches] for each in kept] == [[], [0], [1]]
    (first,) = kept[1].batches
    assert (first.limit, first.decision.num_elements, first.decision.rate) == (1000.0, 100, 50.0)
    assert first.decision.why == "as told"


def test_a_batch_that_failed_teaches_nothing(program: Program, script: type[Scripted]) -> None:
    def fail() -> None:
        raise ValueError("a job's own")

    program.during = fail
    program.write(10)
    with program.running(BACKPRESSURE) as stepper:
        program.wait_durable(10)
        with pytest.raises(BatchFailedError):
            stepper.step(1)
        assert stepper.completed[0].failed
    assert script.seen == []


def test_merged_ticks_count_as_delay_and_leave_the_limit_that_of_one_interval(
    program: Program, script: type[Scripted]
) -> None:
    script.answers = [50.0, 50.0]
    program.write(300)
    began, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        assert go_on.wait(WAIT_S)

    program.during = wait
    with program.running(BACKPRESSURE | {"spark.streaming.receiver.maxRate": "100"}) as stepper:
        program.wait_durable(300)
        program.clock.advance(1000)
        assert began.wait(WAIT_S)
        for _ in range(3):  # one tick after the other, while the first batch runs
            program.clock.advance(1000)
        go_on.set()
        stepper.wait_completed(2)
    (_, first, took_ms, late_ms), (_, second, _, late2_ms) = script.seen
    assert (first, took_ms, late_ms) == (100, 3000, 0)
    assert (second, late2_ms) == (50, 2000)  # the first of the merged ticks was due 2 s before


@pytest.mark.parametrize(("by_ms", "late_ms"), [(31_536_000_000, 0), (-31_536_000_000, 7)])
def test_a_clock_that_is_set_while_batches_run_is_no_delay(
    program: Program, script: type[Scripted], by_ms: int, late_ms: int
) -> None:
    script.answers = [50.0, 50.0]
    program.write(300)

    def set_clock() -> None:
        program.clock.set_wall(by_ms)
        program.clock.advance(7)

    program.during = set_clock
    with program.running(BACKPRESSURE | {"spark.streaming.receiver.maxRate": "100"}) as stepper:
        program.wait_durable(300)
        stepper.step(2)
    (first_ms, *first), (second_ms, *second) = script.seen
    assert (first, second) == ([100, 7, 0], [50, 7, late_ms])
    assert second_ms - first_ms == 1007


def test_a_rate_set_before_the_start_is_that_inputs_own(program: Program) -> None:
    program.write(10)
    with program.running({}):
        program.wait_durable(10)
    define = program.define

    def define_with_rate() -> None:
        define()
        program.ssc.setMaxRate("numbers", 3)

    program.define = define_with_rate  # type: ignore[method-assign]
    with program.running({"spark.streaming.receiver.maxRate": "5"}) as stepper:
        assert sizes(stepper.step(2)) == [3, 3]
    assert RateOverrides(open_storage(program.location)).get("numbers") == RateOverride()


def test_overrides_while_it_runs_act_at_once_and_survive_a_restart(program: Program) -> None:
    written = program.write(100)
    with program.running({}) as stepper:
        program.wait_durable(100)
        stream = program.ssc.graph.inputs[0]
        program.ssc.setMaxRate(stream, 4)
        assert sizes(stepper.step(1)) == [4]
        program.ssc.pause(stream)
        assert sizes(stepper.step(1)) == [0]
        assert eventually(lambda: program.receiver_command().paused)
    with program.running({}) as stepper:
        assert program.receiver_command().paused  # from the receiver's start on
        assert sizes(stepper.step(1)) == [0]
        program.ssc.resume("numbers")
        assert sizes(stepper.step(1)) == [4]
        program.ssc.setMaxRate("numbers", None)
        assert sizes(stepper.step(1)) == [92]
        assert eventually(lambda: not program.receiver_command().paused)
    assert program.records == written


def test_overrides_from_outside_act_within_a_poll(program: Program) -> None:
    def command(*arguments: str) -> str:
        place = ["--checkpoint", str(program.location)]
        done = CliRunner().invoke(app, ["rate", *arguments, *place], env={"COLUMNS": "120"})
        assert done.exception is None, done.exception
        return done.output

    program.write(100)
    with program.running(BACKPRESSURE) as stepper:
        program.wait_durable(100)
        command("set", "6")
        assert eventually(lambda: program.receiver_command().rate == 6.0)
        assert sizes(stepper.step(1)) == [6]
        command("pause")
        assert eventually(lambda: program.receiver_command().paused)
        assert sizes(stepper.step(1)) == [0]
        assert "as told" in command()


def test_an_override_that_is_damaged_stops_a_start_and_not_a_run(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    program.write(10)
    damaged = program.location / "rate/numbers.json"
    with program.running({"spark.streaming.receiver.maxRate": "2"}) as stepper:
        program.wait_durable(2)
        damaged.parent.mkdir()
        damaged.write_text('{"version": 1, "maxRate": -5, "paused": false}')
        assert eventually(lambda: "cannot be brought up to date" in caplog.text)
        assert sizes(stepper.step(1)) == [2]
    with pytest.raises(LogFormatError, match=r"numbers\.json"), program.running({}):
        pass
    assert StreamingContext.getActive() is None


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_wrong_rates_are_refused(program: Program, rate: float) -> None:
    program.make({})
    with pytest.raises(ConfigError, match="finite number above 0"):
        program.ssc.setMaxRate("numbers", rate)


def test_limits_for_what_takes_none_are_refused(program: Program) -> None:
    program.make({})
    queue = program.ssc.queueStream([[1]])
    with pytest.raises(StreamingError, match="supports a rate limit"):
        program.ssc.setMaxRate(queue, 5)  # type: ignore[arg-type]
    with pytest.raises(StreamingError, match="'other' is not an input"):
        program.ssc.setMaxRate("other", 5)
    with pytest.raises(StreamingError, match="is not running"):
        program.ssc.pause("numbers")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.streaming.receiver.maxRate", "0"),
        ("spark.streaming.backpressure.initialRate", "nan"),
        ("spark.streaming.backpressure.pid.minRate", "-1"),
        ("spark.streaming.kafka.maxRatePerPartition", "many"),
        ("spark.streaming.backpressure.rateEstimator", "no.such.Estimator"),
    ],
)
def test_wrong_settings_are_refused_at_construction(
    program: Program, setting: str, value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        program.make({"spark.streaming.backpressure.enabled": "true", setting: value})
    assert setting in str(caught.value)
    assert repr(value) in str(caught.value)


def test_a_graceful_stop_goes_on_batch_by_batch_under_the_limit(program: Program) -> None:
    written = program.write(10)
    with program.running({}):
        program.wait_durable(10)
    with program.running({"spark.streaming.receiver.maxRate": "4"}, stopGraceFully=True) as stepper:
        pass
    assert sizes(stepper.completed)[:3] == [4, 4, 2]  # one more may let go of the sealed writer
    assert program.records == written


def test_a_queue_is_paused_but_not_cut(program: Program) -> None:
    def define() -> None:
        program.ssc.queueStream([[1, 2, 3]] * 3).foreachRDD(program.collect)

    program.define = define  # type: ignore[method-assign]
    with program.running({"spark.streaming.receiver.maxRate": "1"}) as stepper:
        stepper.step(1)
        program.ssc.pause("queue-0")
        stepper.step(1)
        program.ssc.resume("queue-0")
        stepper.step(1)
        with pytest.raises(StreamingError, match="supports a rate limit"):
            program.ssc.setMaxRate("queue-0", 5)
    assert program.records == [1, 2, 3, 1, 2, 3]


class Elsewhere(RateController):
    """Brings the rate elsewhere, as users may."""

    published: ClassVar[list[float]] = []

    def publish(self, rate_records_per_s: float) -> None:
        self.published.append(rate_records_per_s)


class WithController(ReceiverInputDStream):
    """An input with a receiver and a controller of its own, as they are written for Spark."""

    def __init__(self, ssc: StreamingContext, path: str) -> None:
        super().__init__(ssc, name="numbers")
        self.path = path

    def getReceiver(self) -> Receiver:
        return TailReceiver(self.path)

    def rateController(self, estimator: RateEstimator, **limits: Any) -> RateController | None:
        if not RateController.isBackPressureEnabled(self.ssc.conf):
            return None
        usual = RateEstimator.create(self.ssc.conf, self.ssc.graph.batch_interval_ms)
        assert type(usual) is type(estimator)
        return Elsewhere(self.name, usual, **limits)


def test_a_receiver_and_a_controller_of_ones_own(program: Program, script: type[Scripted]) -> None:
    def define() -> None:
        stream = WithController(program.ssc, str(program.log))
        assert stream.has_columns()
        stream.foreachRDD(program.collect)

    Elsewhere.published = []
    script.answers = [70.0, 80.0]
    program.define = define  # type: ignore[method-assign]
    with program.running(BACKPRESSURE) as stepper:
        stepper.step(2)
    assert Elsewhere.published == [70.0, 80.0]


class Uncontrolled(WithController):
    def rateController(self, estimator: RateEstimator, **limits: Any) -> None:
        return None


def test_an_input_without_a_controller_keeps_its_highest_rate(program: Program) -> None:
    def define() -> None:
        Uncontrolled(program.ssc, str(program.log)).foreachRDD(program.collect)

    program.define = define  # type: ignore[method-assign]
    program.write(20)
    with program.running({**BACKPRESSURE, "spark.streaming.receiver.maxRate": "5"}) as stepper:
        assert eventually(lambda: bool(stepper.step()) and len(program.records) == 20)
        assert max(info.num_records for info in stepper.completed) == 5


def test_trace_logging_shows_what_pid_saw(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("TRACE", "penstock.rate.pid")
    with program.running({"spark.streaming.backpressure.enabled": "true"}) as stepper:
        stepper.step(1)
    assert "# records = 0" in caplog.text
    assert "Rate estimation skipped" in caplog.text
    assert caplog.records[0].levelno < logging.DEBUG


class Sender(threading.Thread):
    """A TCP server that sends numbered lines as fast as they are read, and counts them."""

    def __init__(self, lines: int) -> None:
        super().__init__(daemon=True)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._lines = lines
        self.sent = 0
        self.close_now = threading.Event()

    def run(self) -> None:
        connection, _ = self._server.accept()
        with connection, self._server:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            for number in range(self._lines):
                connection.sendall(b"%099d\n" % number)
                self.sent = number + 1
            self.close_now.wait(WAIT_S)


def test_a_tcp_sender_is_slowed_down_and_nothing_is_lost(program: Program) -> None:
    sender = Sender(200_000)  # 20 MB: more than all buffers on the way hold
    sender.start()

    def define() -> None:
        receiver = SocketReceiver("127.0.0.1", sender.port)
        program.ssc.receiverStream(receiver, "numbers").foreachRDD(program.collect)

    program.define = define  # type: ignore[method-assign]
    with program.running({"spark.streaming.receiver.maxRate": "1000"}) as stepper:
        program.wait_durable(200)
        assert sizes(stepper.step(1)) <= [1000]
        assert not eventually(lambda: sender.sent >= 200_000, within_s=1)
        program.ssc.setMaxRate("numbers", 1e7)
        assert eventually(lambda: sender.sent == 200_000)
        program.wait_durable(200_000)
        stepper.step(1)
    sender.close_now.set()
    sender.join()
    assert program.records == [f"{number:099d}" for number in range(200_000)]
