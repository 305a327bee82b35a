"""``format("penstock")``: the data source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import ConfigError, PenstockError
from penstock.journal.existing import open_existing
from penstock.journal.schema import pickles_refused
from penstock.journal.spark_types import spark_schema
from penstock.journal.stream import JournalStream
from penstock.structured.journal.bounds import batch_slices
from penstock.structured.journal.options import JOURNAL_OPTIONS, NAME, JournalOptions
from penstock.structured.journal.planner import JournalPlanner, check_owner
from penstock.structured.journal.ranges import RangeReader, range_schema
from penstock.structured.journal.read import BlockReader, tasks_of
from penstock.structured.options import check_kind
from penstock.structured.session import QueryFacts, Session
from penstock.structured.stream_reader import PlannedStreamReader, RefusedReader

# -- ``spark.read.format("penstock")``: any range of a stream, once --


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


class JournalDataSource(DataSource):
    """The records of one stream of a journal.

    Raises:
        ConfigError: an option is wrong, there is no such stream, or Spark cannot read it.
    """

    session: Session
    """Set by ``bound_to``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = JournalOptions.parse(options)
        self._stream = open_existing(self._options.journal, self._options.stream, False)
        if self._stream.format.kind == "pickle":
            raise pickles_refused(
                path=self._stream.storage.uri(self._stream.name), ids={"stream": self._stream.name}
            )

        if self._options.consumer is not None:
            check_owner(self._stream, self._options.consumer)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> StructType:
        """Return the stream's columns."""
        if self._options.ranges:
            return range_schema(self._stream)
        stream = self._stream
        return from_arrow_schema(spark_schema(stream.format.arrow, stream=stream.name))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's)
        """Return the reader of a query."""
        try:
            return self._stream_reader(schema)
        except PenstockError as error:
            return RefusedReader(error)

    def _stream_reader(self, schema: StructType) -> JournalStreamReader:
        check_kind(NAME, JOURNAL_OPTIONS, self.options, "stream")
        consumer = self._options.consumer
        if consumer is None:
            raise ConfigError(
                "readStream.format(\"penstock\") needs option 'consumer'",
                operation="read options",
                ids={"option": "consumer"},
                hint='add .option("consumer", "my-query"): a name of the query that lasts; the '
                "journal keeps what it has not committed",
            )
        read = (
            RangeReader()
            if self._options.ranges
            else BlockReader(self._stream, arrow_columns(self._stream, schema))
        )
        return JournalStreamReader(self._stream, consumer, self._options, self.session, read)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a range."""
        check_kind(NAME, JOURNAL_OPTIONS, self.options, "batch")
        read = BlockReader(self._stream, arrow_columns(self._stream, schema))
        return JournalBatchReader(self._stream, self._options, self.session, read)


class JournalStreamReader(PlannedStreamReader):
    """Plans and reads the batches of a query."""

    def __init__(
        self,
        stream: JournalStream,
        consumer: str,
        options: JournalOptions,
        session: Session,
        read: Callable[[InputPartition], Iterator[pa.RecordBatch]],
    ) -> None:
        reads = (options.journal, options.stream, consumer)
        super().__init__(stream.name, options.given, session, reads)
        self._stream = stream
        self._consumer = consumer
        self._parsed = options
        self._read = read

    def open_planner(self, query: QueryFacts | None) -> JournalPlanner:
        """Register the consumer."""
        return JournalPlanner(self._stream, self._consumer, self._parsed, self._session, query)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        return self._read(partition)


def arrow_columns(stream: JournalStream, schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the columns that Spark asks for.

    Raises:
        ConfigError: the stream has no such columns.
    """
    held = {
        field.name: field.dataType for field in from_arrow_schema(spark_schema(stream.format.arrow))
    }
    for field in schema:
        if held.get(field.name) != field.dataType:
            raise ConfigError(
                f"the query reads column {field.name!r} as {field.dataType.simpleString()}, and "
                f"the stream holds {stream.format!r}",
                operation="read stream",
                path=stream.storage.uri(stream.name),
                ids={"stream": stream.name, "column": field.name},
                hint="leave out .schema(...), or name columns of the stream with their types",
            )
    return to_arrow_schema(schema, timezone="UTC")
