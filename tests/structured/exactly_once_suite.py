"""Tests of the contract of exactly-once sinks, for sinks of programs as for penstock's own.

    import pytest

    pytest.register_assert_rewrite("tests.structured.exactly_once_suite")
    from tests.structured.exactly_once_suite import ExactlyOnceSinkSuite, SinkUnderTest

    class TestWarehouse(ExactlyOnceSinkSuite):
        @pytest.fixture
        def sink(self):
            table = new_table()
            return SinkUnderTest(Warehouse(table).write, lambda: read(table))

        @pytest.fixture
        def spark(self): ...

``penstock.exactly_once`` has the contract. Each test that runs a program runs one of each front
end. Needs pytest and Spark. What only kills can show, as between the steps of a sink's own
protocol, it does not find.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.tools import plan_rewind
from penstock.errors import CheckpointError, ConfigError, PenstockError
from penstock.model import OutputBatch
from tests.structured.front_ends import DStreamProgram, FrontEnd, StructuredQuery, Write

__all__ = ["ExactlyOnceSinkSuite", "SinkUnderTest"]

_RESTORED = "restored from an older copy"
_UNSAFE = {
    "spark.penstock.onBatchFailure": "continue",
    "spark.streaming.concurrentJobs": "2",
}


@dataclass(frozen=True)
class SinkUnderTest:
    """A sink that holds nothing yet."""

    write: Write
    """Writes a DataFrame with the column ``value``, a text, as a batch."""
    read: Callable[[], Iterable[str]]
    """Returns what a reader finds, in any order."""
    other: Write | None = None
    """As ``write``, by another name of the same target: a link, another URL or host. None if it has
    one name only."""

    @property
    def write_again(self) -> Write:
        """What writes to the sink a second time: by its other name, if it has one."""
        return self.other or self.write

    def holds(self, values: str) -> bool:
        """Whether a reader finds just these, each a character."""
        return Counter(self.read()) == Counter(values)


class ExactlyOnceSinkSuite:
    """A test for each promise.

    A subclass has the fixtures ``sink``, a new one for each test, and ``spark``, the session.
    """

    @pytest.fixture(params=[DStreamProgram, StructuredQuery])
    def program_of(
        self, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
    ) -> Callable[[Write], FrontEnd]:
        """Return a function that makes a program of a front end, which writes by its argument."""
        kind: type[FrontEnd] = request.param
        folder = tmp_path / "program"
        folder.mkdir()
        return lambda write: kind(spark, folder, write)

    @pytest.fixture
    def program(self, program_of: Callable[[Write], FrontEnd], sink: SinkUnderTest) -> FrontEnd:
        """Return a program of a front end that writes to the sink."""
        return program_of(sink.write)

    def test_a_batch_that_runs_again_is_written_once(
        self, spark: SparkSession, sink: SinkUnderTest
    ) -> None:
        first, second = _batches(2)
        sink.write(_rows(spark, "ab"), first)
        sink.write(_rows(spark, "ab"), _again(first))
        assert sink.holds("ab")
        with suppress(Exception):
            sink.write(_failing(spark), second)
        assert sink.holds("ab")
        sink.write(_rows(spark, "c"), second)  # one that failed has not been written
        sink.write(_rows(spark, "c"), _again(second))
        assert sink.holds("abc")

    def test_what_is_not_the_next_batch_is_refused(
        self, spark: SparkSession, sink: SinkUnderTest
    ) -> None:
        first, second = _batches(2)
        sink.write(_rows(spark, "a"), first)
        sink.write(_rows(spark, "b"), second)
        refused = {
            "a second write": second,
            "an overtaken one": _again(first),
            "one planned under an id that the sink has": replace(_again(second), plan="later"),
            "one without a plan": replace(_again(second), batch_id=2, plan=""),
        }
        taken = []
        for what, batch in refused.items():
            with suppress(PenstockError):
                sink.write(_rows(spark, "c"), batch)
                taken.append(what)
        assert taken == []
        assert sink.holds("ab")

    def test_a_second_write_by_another_name_of_the_sink_is_refused(
        self, spark: SparkSession, sink: SinkUnderTest
    ) -> None:
        first, second = _batches(2)
        for batch in (first, _again(first)):  # written, and found there
            sink.write(_rows(spark, "a"), batch)
            with pytest.raises(PenstockError):
                sink.write_again(_rows(spark, "b"), batch)
        sink.write_again(_rows(spark, "c"), replace(second, run="another run"))
        with pytest.raises(PenstockError):
            sink.write(_rows(spark, "d"), replace(second, run="another run"))
        assert sink.holds("ac")

    def test_a_program_that_writes_a_batch_twice(
        self, program_of: Callable[[Write], FrontEnd], sink: SinkUnderTest
    ) -> None:
        def write(df: DataFrame, output: OutputBatch) -> None:
            sink.write(df.where("value < 'b'"), output)
            sink.write_again(df.where("value >= 'b'"), output)

        program = program_of(write)
        program.add("a", "b")
        for _ in range(2):  # also when the batch, written in part, runs again
            with pytest.raises(Exception, match="already"):
                program.run()
        assert sink.holds("a")

    def test_outputs_and_locations_are_apart(
        self, spark: SparkSession, sink: SinkUnderTest
    ) -> None:
        (batch,) = _batches(1)
        sink.write(_rows(spark, "a"), batch)
        sink.write(_rows(spark, "a"), replace(batch, output="other"))
        sink.write(_rows(spark, "a"), replace(batch, location_id=str(uuid4())))
        assert sink.holds("aaa")

    def test_of_two_that_run_at_once_one_counts(
        self, spark: SparkSession, sink: SinkUnderTest
    ) -> None:
        (batch,) = _batches(1)

        def write(run: str) -> None:
            with suppress(Exception):  # another one was quicker
                sink.write(_rows(spark, "abc"), replace(batch, run=run))

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(write, ["one", "two"]))
        sink.write(_rows(spark, "abc"), replace(batch, run="three", may_be_written=True))
        assert sink.holds("abc")

    def test_a_program_that_was_killed(self, program: FrontEnd, sink: SinkUnderTest) -> None:
        program.add("a")
        program.run()
        program.add("b", "c")
        program.run()
        program.uncommit()
        program.add("d")
        program.run()
        assert sink.holds("abcd")

    def test_a_location_that_was_restored(self, program: FrontEnd, sink: SinkUnderTest) -> None:
        program.add("a")
        program.run()
        program.save()
        program.add("b")
        program.run()
        program.restore()
        program.add("c")
        for _ in range(2):
            with pytest.raises(Exception, match=_RESTORED):
                program.run()
        assert sink.holds("ab")

    def test_a_location_that_was_restored_and_has_passed_the_sink(
        self, program: FrontEnd, sink: SinkUnderTest
    ) -> None:
        program.add("a")
        program.run()
        program.save()
        program.add("b")
        program.run()
        program.restore()
        program.add("x")
        program.run(writes=False)
        program.add("b")
        with pytest.raises(Exception, match=_RESTORED):
            program.run()
        assert sink.holds("ab")

    def test_a_program_that_could_pass_a_batch_over(
        self, spark: SparkSession, sink: SinkUnderTest, tmp_path: Path
    ) -> None:
        program = DStreamProgram(spark, tmp_path, sink.write)
        program.add("a")
        for name, value in _UNSAFE.items():
            with program.settings({name: value}), pytest.raises(PenstockError, match=name):
                program.run()
        assert sink.holds("")
        program.run()  # nothing stands in its way
        program.add("b")
        program.run()
        assert sink.holds("ab")
        with pytest.raises(CheckpointError, match="out writes each batch exactly once"):
            plan_rewind(program.location, to_batch=0)

    def test_an_output_under_another_name(
        self, spark: SparkSession, sink: SinkUnderTest, tmp_path: Path
    ) -> None:
        program = DStreamProgram(spark, tmp_path, sink.write)
        program.add("a")
        program.run()
        program.uncommit()
        program.output = "other"
        with pytest.raises(PenstockError, match="give the output that continues name='out'"):
            program.run()
        assert sink.holds("a")
        program.output = "out"
        program.run()
        assert sink.holds("a")

    def test_what_is_no_batch_is_refused(self, spark: SparkSession, sink: SinkUnderTest) -> None:
        with pytest.raises(ConfigError, match=r"batch is given as 0.*query_batch\(df, batch_id\)"):
            sink.write(_rows(spark, "a"), 0)  # type: ignore[arg-type]
        assert sink.holds("")


def _batches(count: int) -> list[OutputBatch]:
    """Return the first batches of a new location, in one run."""
    location_id = str(uuid4())
    return [
        OutputBatch(location_id, "out", batch_id, run="first run", plan=f"first run-{batch_id}")
        for batch_id in range(count)
    ]


def _again(batch: OutputBatch) -> OutputBatch:
    """Return a batch in another run."""
    return replace(batch, run=str(uuid4()), may_be_written=True)


def _rows(spark: SparkSession, values: str) -> DataFrame:
    return spark.sql(f"SELECT explode(split('{values}', '')) AS value").where("value != ''")


def _failing(spark: SparkSession) -> DataFrame:
    return spark.range(0, 100, 1, 1).selectExpr(
        "if(id = 99, cast(raise_error('failed') as string), cast(id as string)) AS value"
    )
