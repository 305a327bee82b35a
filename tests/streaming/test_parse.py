"""``parse`` end to end on Spark: what becomes of records that a parser refuses."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import RDD, SparkContext

from penstock.errors import BatchFailedError, ConfigError
from penstock.journal.bad_records.dead_letters import DeadLetterFolder
from penstock.journal.bad_records.raw_records import from_raw
from penstock.streaming import DStream, StreamingContext
from penstock.testing.stepper import Stepper
from tests.journal.helpers import read_all
from tests.streaming.received import Numbers
from tests.streaming.runs import Runs
from tests.streaming.settings import spark_silent
from tests.waiting import eventually

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("n", pa.int64()), ("t", pa.string())])
RECORDS = ["1", "x", "3", "", "5"]


class Program(Runs):
    """Parses what a receiver stores."""

    def __init__(self, sc: SparkContext, location: Path) -> None:
        super().__init__(sc, location)
        self.values: list[Any] = []
        self.fail = False

    @contextmanager
    def running(
        self,
        records: list[Any],
        parser: Callable[[Any], Any],
        bad_records: Any,
        schema: str | pa.Schema = "string",
        outputs: Callable[[DStream], None] | None = None,
    ) -> Iterator[Stepper]:
        def define(ssc: StreamingContext) -> None:
            source = ssc.receiverStream(Numbers(records, schema), name="numbers")
            (outputs or self.define)(source.parse(parser, bad_records))

        with self.running_program(define) as stepper:
            journal = self.journal()
            assert eventually(lambda: len(read_all(journal)) == len(records))
            yield stepper

    def define(self, values: DStream) -> None:
        values.foreachRDD(self.collect)

    def collect(self, rdd: RDD[Any]) -> None:
        found = rdd.collect()
        if self.fail:
            raise RuntimeError("the output fails after its jobs")
        self.values += found

    def dead_letters(self) -> list[dict[str, Any]]:
        dead = DeadLetterFolder(self.journal().storage, "numbers")
        return [letter for file in dead.waiting() for letter in dead.read(file).to_pylist()]


@pytest.fixture
def program(sc: SparkContext, tmp_path: Path) -> Program:
    return Program(sc, tmp_path / "checkpoint")


def test_a_batch_with_a_bad_record_fails_and_names_it(program: Program) -> None:
    with (
        program.running(["1", 'bad\n\x1b"'], json.loads, "fail") as stepper,
        pytest.raises(BatchFailedError) as failure,
    ):
        stepper.step()
    said = str(failure.value)
    for part in ("stream=numbers", "r0-00000000", "offset=1", "JSONDecodeError", r"bad\n\x1b"):
        assert part in said
    assert "\n" not in said  # nothing of the JVM's hundred lines


def test_dropped_records_are_counted(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    with (
        program.running(RECORDS, int, "drop") as stepper,
        caplog.at_level(logging.WARNING, "penstock.streaming.inputs.refused"),
    ):
        stepper.step()
    assert program.values == [1, 3, 5]
    (line,) = [
        r.getMessage() for r in caplog.records if r.name == "penstock.streaming.inputs.refused"
    ]
    assert "refused 2 records of stream numbers, which were dropped" in line
    assert "record 1 of writer r0-00000000: ValueError" in line


def test_dead_letters_say_all_of_a_bad_record(program: Program) -> None:
    with program.running(RECORDS, int, "dead_letter") as stepper:
        stepper.step()
        assert program.values == [1, 3, 5]
    first, second = program.dead_letters()
    assert (first["raw"], second["raw"]) == (b"x", b"")
    assert first["error_type"] == "ValueError"
    assert "invalid literal" in first["error"]
    assert [(d["writer"], d["offset"]) for d in (first, second)] == [
        ("r0-00000000", 1),
        ("r0-00000000", 3),
    ]


def test_two_outputs_and_a_window_leave_one_dead_letter_for_each(program: Program) -> None:
    def outputs(values: DStream) -> None:
        values.foreachRDD(program.collect)
        values.foreachRDD(lambda rdd: rdd.take(1) and None)
        values.window(3, 1).foreachRDD(lambda rdd: rdd.count() and None)

    with program.running(RECORDS, int, "dead_letter", outputs=outputs) as stepper:
        for _ in range(4):
            stepper.step()
    assert len(program.dead_letters()) == 2


def test_a_batch_that_runs_again_leaves_one_dead_letter_for_each(program: Program) -> None:
    program.fail = True
    with (
        program.running(RECORDS, int, "dead_letter") as stepper,
        pytest.raises(BatchFailedError),
    ):
        stepper.step()
    program.fail = False
    with program.running(RECORDS, int, "dead_letter") as stepper:
        stepper.step()
    assert program.values == [1, 3, 5]
    assert [d["offset"] for d in program.dead_letters()] == [1, 3]


def test_a_batch_whose_dead_letters_cannot_be_written_fails(program: Program) -> None:
    folder = program.location / "journal" / "numbers-dead"
    with spark_silent(program.sc), program.running(RECORDS, int, "dead_letter") as stepper:
        folder.write_text("in the way of a folder")
        with pytest.raises(BatchFailedError):
            stepper.step()
    assert program.values == []
    folder.unlink()
    with program.running(RECORDS, int, "dead_letter") as stepper:
        stepper.step()
    assert program.values == [1, 3, 5]
    assert [d["offset"] for d in program.dead_letters()] == [1, 3]


@pytest.mark.parametrize(
    ("schema", "records"),
    [
        ("string", ["ok", "ä\n"]),
        ("binary", [b"ok", b"\x00\xff"]),
        ("pickle", ["ok", {"a": (1, None)}]),
        (
            pa.schema([("n", pa.int64()), ("t", pa.string())]),
            [{"n": 1, "t": "ok"}, {"n": None, "t": "ü"}],
        ),
    ],
    ids=["string", "binary", "pickle", "arrow"],
)
def test_every_kind_of_record_comes_back_from_its_raw_bytes(
    program: Program, schema: Any, records: list[Any]
) -> None:
    with program.running(records, refuse_all, "dead_letter", schema=schema) as stepper:
        stepper.step()
    assert program.values == []
    source = program.journal("numbers")
    raws = [letter["raw"] for letter in program.dead_letters()]
    table = from_raw(source.format, raws)
    (batch,) = table.combine_chunks().to_batches()
    assert list(source.format.to_python(batch)) == records


def refuse_all(record: Any) -> Any:
    raise StopIteration


def test_wrong_arguments_fail_at_construction(ssc: StreamingContext) -> None:
    source = ssc.receiverStream(Numbers([]), name="numbers")
    with pytest.raises(ConfigError, match="bad_records is 'skip'"):
        source.parse(int, "skip")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not a function"):
        source.parse(None)  # type: ignore[arg-type]
    long = ssc.receiverStream(Numbers([]), name="n" * 125)
    with pytest.raises(ConfigError, match="stream name"):
        long.parse(int, "dead_letter")
    long.parse(int, "drop")
