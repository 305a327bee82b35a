"""An input that is the same RDD in every batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import RDD

from penstock.errors import ConfigError, StreamingError
from penstock.streaming.batch import SourceOffset, SourceRange
from penstock.streaming.inputs import InputDStream

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext

__all__ = ["ConstantInputDStream"]


class ConstantInputDStream(InputDStream):
    """The same RDD in every batch: for tests, or a table that is joined with each batch.

    Source: ``org.apache.spark.streaming.dstream.ConstantInputDStream``.

    Raises:
        ConfigError: it is given no RDD.
    """

    kind = "constant"

    def __init__(self, ssc: StreamingContext, rdd: RDD[Any], name: str | None = None) -> None:
        if not isinstance(rdd, RDD):
            raise ConfigError(
                f"{rdd!r} is no RDD",
                operation="ConstantInputDStream",
                hint="give an RDD, e.g. sc.parallelize([...])",
            )
        super().__init__(ssc, name)
        self._rdd: RDD[Any] | None = rdd

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return None: it has no offsets."""
        return None

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the RDD.

        Raises:
            StreamingError: the stream was read from a graph checkpoint, which holds no RDDs.
        """
        if self._rdd is None:
            raise StreamingError(
                "the RDD of a ConstantInputDStream is gone with the process that made it",
                operation="recover batch",
                ids={"stream": self.name},
                hint="have the graph made by the program at each start, not read from a checkpoint",
            )
        return self._rdd

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_rdd": None}
