"""``spark.read.format("penstock")``: any range of a stream, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.journal.stream import JournalStream
from penstock.structured.journal.bounds import batch_slices
from penstock.structured.journal.options import JournalOptions
from penstock.structured.journal.read import BlockReader, tasks_of
from penstock.structured.session import Session


class JournalBatchReader(DataSourceReader):
    """Reads what is between two bounds. It is not a consumer, so nothing is kept for it.

    Filters are not taken: Spark refuses a source that takes them while its setting
    ``spark.sql.python.filterPushdown.enabled`` is off, which it is by default.
    """

    def __init__(
        self, stream: JournalStream, options: JournalOptions, session: Session, read: BlockReader
    ) -> None:
        self._stream = stream
        self._options = options
        self._session = session
        self._read = read

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks; raises ConfigError if records between the bounds are gone."""
        slices = batch_slices(self._stream, self._options)
        return list(tasks_of(self._stream, slices, self._session.slots))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task; Spark makes an empty one where there is none."""
        return self._read(partition)
