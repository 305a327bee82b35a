"""An input with the same RDD in every batch.

Invariant: a graph checkpoint that can be read back finds the RDD in the checkpoint location. It is
written there once, at the start of the program that made it, before the first graph checkpoint, and
every later run reads that copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import RDD

from penstock.errors import ConfigError, NotFoundError, StreamingError
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.inputs.input import InputDStream

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program
    from penstock.streaming.core.rdd_checkpoints import RddCheckpoints

_TIME_MS = 0
"""The time in the mark: the RDD is that of every batch."""


class ConstantInputDStream(InputDStream):
    """The same RDD in every batch: for tests, or a table that is joined with each batch.

    A program whose graph is read back from graph checkpoints has its RDD written to the checkpoint
    location, once, when it starts; so has one that calls ``checkpoint``, whatever the interval.

    Source: ``org.apache.spark.streaming.dstream.ConstantInputDStream``.

    Raises:
        ConfigError: the argument is not an RDD.
    """

    kind = "constant"
    reports_input = False  # as in Spark
    merges_ticks = False  # one RDD a tick, as in Spark

    def __init__(self, ssc: Program, rdd: RDD[Any], name: str | None = None) -> None:
        if not isinstance(rdd, RDD):
            raise ConfigError(
                f"{rdd!r} is not an RDD",
                operation="ConstantInputDStream",
                hint="give an RDD, e.g. sc.parallelize([...])",
            )
        super().__init__(ssc, name)
        self._rdd: RDD[Any] | None = rdd
        self._operator = ssc.graph.operators.unnamed(self.kind)
        self._place: RddCheckpoints | None = None

    @property
    def writes_rdds(self) -> bool:
        """Whether the RDD is written to the checkpoint location."""
        return super().writes_rdds or self.ssc.graph.is_kept

    def checkpoint(self, interval: float) -> ConstantInputDStream:
        """Write the RDD to the checkpoint location, once; see ``DStream.checkpoint``."""
        super().checkpoint(interval)
        self.checkpoint_data = None  # there is nothing to write anew in each interval
        return self

    def open_rdd_checkpoints(self, place: RddCheckpoints) -> None:
        """Set the location of RDD checkpoints."""
        self._place = place

    def restore_checkpoint_data(self, done_ms: int, planned_ms: int) -> None:
        """Write the program's RDD, or read the one that its first run wrote.

        Raises:
            CheckpointError: it cannot be read.
            StorageError: it cannot be written.
        """
        if self._place is None or not self.writes_rdds:
            return
        marks, name = self._place.marks, self._operator.name
        if self._rdd is None:
            try:
                self._rdd = self._place.load(marks.get(name, _TIME_MS))
            except NotFoundError:
                return  # batches report that it is gone
        else:
            written = self._own(self._rdd)
            written.checkpoint()
            marks.add(name, _TIME_MS, self._place.write(written, self.kind, {}))
            self._rdd = written

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return None: it has no offsets."""
        return None

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the RDD.

        Raises:
            StreamingError: the stream was read from a graph checkpoint, and its RDD is not in the
                checkpoint location.
        """
        if self._rdd is None:
            raise StreamingError(
                "the RDD of a ConstantInputDStream was lost with its process: it is not"
                " in the checkpoint location",
                operation="recover batch",
                ids={"stream": self.name},
                hint="restore rdds/ of the checkpoint location from a backup, or let the program "
                "build the graph: getOrCreate(dir, create, recover='program')",
            )
        return self._rdd

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_rdd": None, "_place": None}
