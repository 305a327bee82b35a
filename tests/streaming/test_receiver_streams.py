"""Receivers' streams end to end on Spark: both paths, restarts, stops, damage, placement."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import RDD, SparkContext

from penstock.errors import (
    BatchFailedError,
    DamagedBlockError,
    MissingBlockError,
    UnsharedPathError,
)
from penstock.receivers import read_status
from penstock.streaming import DStream, StreamingContext
from penstock.streaming.engine import engine
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.background import background
from tests.streaming.received import Numbers, Program
from tests.streaming.settings import spark_silent
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark


@pytest.fixture
def program(sc: SparkContext, tmp_path: Path) -> Program:
    return Program(sc, tmp_path / "checkpoint")


ARROW = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.mark.parametrize(
    ("schema", "records", "columns"),
    [
        ("string", ["a", "ä\n", ""], [("a",), ("ä\n",), ("",)]),
        ("binary", [b"\x00", b"x"], [(bytearray(b"\x00"),), (bytearray(b"x"),)]),
        (ARROW, [{"n": 1, "text": "x"}, {"n": 2, "text": None}], [(1, "x"), (2, None)]),
    ],
    ids=["string", "binary", "arrow"],
)
def test_records_as_dataframe(
    program: Program, schema: str | pa.Schema, records: list[Any], columns: list[Any]
) -> None:
    with program.running(Numbers(records, schema)) as stepper:
        program.wait_durable(len(records))
        stepper.step()
    assert [tuple(row) for row in program.rows] == columns


@pytest.mark.parametrize("schema", ["string", "binary", "pickle", ARROW])
def test_records_as_python_values(program: Program, schema: str | pa.Schema) -> None:
    records = {
        "string": ["a", "b"],
        "binary": [b"a", b"b"],
        "pickle": [(1, 2), None],
    }.get(schema if isinstance(schema, str) else "", [{"n": 1, "text": "x"}])
    seen: list[Any] = []

    def define(stream: DStream) -> None:
        stream.foreachRDD(lambda rdd: seen.extend(rdd.collect()))

    program.define = define  # type: ignore[method-assign]
    with program.running(Numbers(records, schema)) as stepper:
        program.wait_durable(len(records))
        stepper.step()
    assert seen == records


def test_graceful_stop_processes_all_that_was_received(program: Program) -> None:
    with program.running(Numbers(["a", "b", "c"]), stopGraceFully=True):
        program.wait_durable(3)
    assert [row.value for row in program.rows] == ["a", "b", "c"]


def test_stop_without_grace_leaves_the_rest_for_the_next_run(program: Program) -> None:
    with program.running(Numbers(["a", "b"])):
        program.wait_durable(2)
    assert program.rows == []
    with program.running(Numbers(["a", "b", "c"])) as stepper:
        program.wait_durable(3)
        stepper.step()
    assert [row.value for row in program.rows] == ["a", "b", "c"]


class Stuck(Numbers):
    """Does not end when it is told to."""

    def onStop(self) -> None:
        time.sleep(600)


def test_a_receiver_that_does_not_stop_is_ended_by_force_and_told_on_one_line(
    program: Program, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "_RECEIVER_STOP_S", 0.5)
    with program.running(Stuck(["a"])):
        program.wait_durable(1)
    (told,) = [r for r in caplog.records if "stopped by force" in r.getMessage()]
    assert "did not stop within 0.5 s" in told.getMessage()
    assert "\n" not in told.getMessage()
    assert told.exc_info is None


def test_many_restarts_keep_the_offsets_small(program: Program) -> None:
    for count in range(1, 6):
        with program.running(Numbers([str(n) for n in range(count)])) as stepper:
            program.wait_durable(count)
            stepper.step()
    assert [row.value for row in program.rows] == ["0", "1", "2", "3", "4"]
    newest = max((program.location / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert newest.read_text().count("r0-") <= 2  # the running writer, and the one before it
    assert len(program.journal().writers()) == 5


def test_consumed_blocks_are_retired(program: Program, retain: Callable[[int], None]) -> None:
    retain(1)
    with program.running(Numbers(["a"])) as stepper:
        program.wait_durable(1)
        stepper.step(4)
    with program.running(Numbers(["a", "b"])) as stepper:
        program.wait_durable(2)
        stepper.step(4)
    journal = program.journal()
    first, second = journal.writers()
    assert len(journal.blocks(first)) == 1  # the seal
    assert len(journal.blocks(second)) == 1  # the same: a stop releases after writers are sealed


def _first_block(program: Program) -> Path:
    journal = program.journal()
    writer = journal.writers()[0]
    start = journal.blocks(writer)[0].start_offset
    return program.location / "journal" / "numbers" / str(writer) / f"{start:020d}.parquet"


def test_a_damaged_block_fails_the_batch_and_is_named(program: Program) -> None:
    with program.running(Numbers(["a" * 1000])) as stepper:
        program.wait_durable(1)
        block = _first_block(program)
        damaged = bytearray(block.read_bytes())
        damaged[500] ^= 1
        block.write_bytes(damaged)
        with pytest.raises(BatchFailedError) as caught:
            stepper.step()
    assert isinstance(caught.value.cause, DamagedBlockError)
    assert block.name in str(caught.value.cause)
    assert "penstock journal verify" in str(caught.value.cause)
    assert program.rows == []


def test_a_missing_block_fails_the_batch_and_is_named(program: Program) -> None:
    with program.running(Numbers(["a"])) as stepper:
        program.wait_durable(1)
    with program.running(Numbers(["a", "b"])) as stepper:
        program.wait_durable(2)
        _first_block(program).unlink()
        with pytest.raises(BatchFailedError) as caught:
            stepper.step()
    assert isinstance(caught.value.cause, MissingBlockError)
    assert "numbers" in str(caught.value.cause)
    assert program.rows == []


def test_a_journal_that_executors_do_not_see(sc: SparkContext) -> None:
    ssc = StreamingContext(sc, 1, clock=ManualClock())
    ssc.checkpoint("memory://unshared/checkpoint")  # every process has a memory of its own
    ssc.receiverStream(Numbers(["a"])).pprint()
    ssc.start()
    with pytest.raises(UnsharedPathError, match="executors do not see"):
        ssc.awaitTermination(WAIT_S)
    ssc.stop(stopSparkContext=False)


class Failing(Numbers):
    """Ends its worker process at the first start in it."""

    def onStart(self) -> None:
        if self.lastPosition() is None:
            self.store(["first"], position=0)
            import os

            os._exit(17)
        super().onStart()


def test_a_receiver_whose_process_dies_is_started_again(program: Program) -> None:
    with spark_silent(program.sc), program.running(Failing(["second"])) as stepper:
        program.wait_durable(2)
        stepper.step()
        status = read_status(program.journal(), "r0")
    assert sorted(row.value for row in program.rows) == ["first", "second"]
    assert status is not None
    assert status.writer == "r0-00000001"


@pytest.mark.parametrize("hurt", [Path.unlink, lambda path: path.write_bytes(b"{")])
def test_a_receiver_whose_command_is_lost_is_started_again(
    program: Program, hurt: Callable[[Path], object]
) -> None:
    with spark_silent(program.sc), program.running(Numbers(["a"])) as stepper:
        program.wait_durable(1)
        (command,) = (program.location / "journal" / "numbers" / "control").glob(
            "r0.*.command.json"
        )
        hurt(command)
        assert eventually(lambda: len(program.journal().writers()) == 2)
        stepper.step()
    assert [row.value for row in program.rows] == ["a"]


def test_socket_text_stream_over_a_union(sc: SparkContext) -> None:
    def serve(end: threading.Event) -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"one two\nthree\n")
            end.wait(WAIT_S)

    server = socket.create_server(("127.0.0.1", 0))
    clock = ManualClock(1_000_000)
    ssc = StreamingContext(sc, 1, clock=clock)
    seen: list[Any] = []
    lines = ssc.socketTextStream("127.0.0.1", server.getsockname()[1])
    words = ssc.union(lines, ssc.queueStream([["zero"]])).flatMap(str.split)

    def collect(rdd: RDD[str]) -> None:
        seen.extend(rdd.collect())

    words.foreachRDD(collect)
    stepper = Stepper(ssc, clock)
    with server, background(serve):
        ssc.start()
        try:
            while len(seen) < 4:
                stepper.step()
        finally:
            ssc.stop(stopSparkContext=False)
    assert sorted(seen) == ["one", "three", "two", "zero"]
