"""A program of each front end that writes lines by a function, to be stopped and started again.

Both read lines that ``add`` gives, and have the same calls: what a sink is tried with does not
depend on the front end. Needs Spark.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from penstock.model import OutputBatch
from penstock.streaming import InputDStream, StreamingContext
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.structured.sinks import query_batch
from penstock.testing.manual_clock import ManualClock
from penstock.testing.stepper import Stepper

__all__ = ["DStreamProgram", "FrontEnd", "StructuredQuery", "Write"]

Write = Callable[[DataFrame, OutputBatch], None]
"""Writes the DataFrame of a batch: a column ``value`` of text."""


class FrontEnd(ABC):
    """A program.

    Args:
        spark: where its batches run.
        folder: an empty folder of its own.
        write: called with each batch that has lines.
    """

    def __init__(self, spark: SparkSession, folder: Path, write: Write) -> None:
        self._spark = spark
        self._folder = folder
        self._write = write
        self.location = folder / "checkpoint"

    @abstractmethod
    def add(self, *lines: str) -> None:
        """Give it lines, which a later ``run`` processes."""

    @abstractmethod
    def run(self, *, writes: bool = True) -> None:
        """Start it, let it process all lines, and stop it; raises what ended it.

        Args:
            writes: whether its function writes; one that does not leaves the batches' ids out.
        """

    def uncommit(self) -> int:
        """Leave what a kill before the commit of the newest batch with lines would have left."""
        for batch_id in sorted(map(int, self._names("commits")), reverse=True):
            for name in (f"{batch_id}", f".{batch_id}.crc"):
                (self.location / "commits" / name).unlink(missing_ok=True)
            if self._has_lines(batch_id):
                return batch_id
        raise AssertionError("no batch has lines")

    def save(self) -> None:
        """Copy the location."""
        shutil.rmtree(self._folder / "saved", ignore_errors=True)
        shutil.copytree(self.location, self._folder / "saved", symlinks=True)

    def restore(self) -> None:
        """Put the copy in its place."""
        shutil.rmtree(self.location)
        shutil.copytree(self._folder / "saved", self.location, symlinks=True)

    def _names(self, log: str) -> Iterator[str]:
        return (each.name for each in (self.location / log).glob("*") if each.name.isdigit())

    def _has_lines(self, batch_id: int) -> bool:
        ends = [self.location / "offsets" / str(each) for each in (batch_id - 1, batch_id)]
        lines = [e.read_text().splitlines()[2:] if e.exists() else [] for e in ends]
        return lines[0] != lines[1]


class DStreamProgram(FrontEnd):
    """A program with StreamingContext."""

    output = "out"
    """What its output is called; a program may be changed between two runs."""

    def __init__(self, spark: SparkSession, folder: Path, write: Write) -> None:
        super().__init__(spark, folder, write)
        self._clock = ManualClock(1_000_000)
        (folder / "lines").touch()

    def add(self, *lines: str) -> None:
        """See FrontEnd."""
        with (self._folder / "lines").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def run(self, *, writes: bool = True) -> None:
        """See FrontEnd."""
        context = self._spark.sparkContext
        ssc = StreamingContext.getOrCreate(
            str(self.location),
            lambda: StreamingContext(context, 1, clock=self._clock),
            recover="program",
        )
        each = self._each if writes else _nothing
        _Lines(ssc, str(self._folder / "lines")).foreachRDD(each, name=self.output)
        stepper = Stepper(ssc, self._clock)
        waiting = len({*self._names("offsets")}.difference(self._names("commits")))
        ssc.start()
        try:
            stepper.wait_completed(waiting)
            stepper.step()
        finally:
            ssc.stop(stopSparkContext=False)

    @contextmanager
    def settings(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Have Spark's configuration hold settings for the block."""
        conf: Any = self._spark.sparkContext._jsc.sc().conf()
        before = {name: conf.get(name) for name in settings if conf.contains(name)}
        for name, value in settings.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name in settings:
                conf.set(name, before[name]) if name in before else conf.remove(name)

    def _each(self, time: Any, rdd: RDD[str], output: OutputBatch) -> None:
        if not rdd.isEmpty():
            rows = rdd.map(lambda line: (line,))
            self._write(self._spark.createDataFrame(rows, "value string"), output)


class StructuredQuery(FrontEnd):
    """A query of Structured Streaming, with a batch for each ``add``."""

    def __init__(self, spark: SparkSession, folder: Path, write: Write) -> None:
        super().__init__(spark, folder, write)
        (folder / "lines").mkdir()

    def add(self, *lines: str) -> None:
        """See FrontEnd."""
        name = str(len(list((self._folder / "lines").iterdir())))
        (self._folder / name).write_text("\n".join(lines))
        (self._folder / name).rename(self._folder / "lines" / name)

    def run(self, *, writes: bool = True) -> None:
        """See FrontEnd."""
        lines = self._spark.readStream.option("maxFilesPerTrigger", "1")
        query = (
            lines.text(str(self._folder / "lines"))
            .writeStream.foreachBatch(self._each if writes else _nothing)
            .option("checkpointLocation", str(self.location))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _each(self, df: DataFrame, batch_id: int) -> None:
        self._write(df, query_batch(df, batch_id, "out"))


def _nothing(*_: Any) -> None:
    """Write no batch."""


class _Lines(InputDStream):
    """The lines of a file that grows."""

    kind = "lines"

    def __init__(self, ssc: StreamingContext, path: str) -> None:
        super().__init__(ssc, "lines")
        self._path = path

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """See InputDStream."""
        return {self.name: {"lines": len(Path(self._path).read_text().splitlines())}}

    def compute_range(self, wanted: SourceRange) -> RDD[str]:
        """See InputDStream."""
        first, last = (self.partitions(end).get("lines", 0) for end in (wanted.start, wanted.end))
        lines = Path(self._path).read_text().splitlines()
        return self.ssc.sparkContext.parallelize(list(islice(lines, first, last)), 2)
