"""``format("penstock-kafka")``: the data source. Imports the Kafka client when it is used."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from penstock.errors import ConfigError, PenstockError
from penstock.kafka.client_conf import check_kafka_client
from penstock.kafka.records import SOURCE_COLUMNS
from penstock.structured.kafka.options import KAFKA_OPTIONS, NAME, KafkaOptions, split_settings
from penstock.structured.options import check_kind
from penstock.structured.session import Session, read_by
from penstock.structured.stream_reader import PlannedStreamReader, RefusedReader
from penstock.workers import freeze_imports

if TYPE_CHECKING:
    from penstock.structured.kafka.planner import KafkaPlanner

_ONCE = "read"
"""Stands for the place in a query, of what ``spark.read`` notes."""


class KafkaDataSource(DataSource):
    """The records of topics, with the options and columns of Spark's Kafka source.

    Raises:
        ConfigError: an option is wrong, or confluent-kafka is not installed.
    """

    session: Session
    """Set by ``bound_to``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_kafka_client(f'format("{NAME}")')
        from penstock.kafka.reader import check_settings

        self._parsed = KafkaOptions.parse(options)
        check_settings(self._parsed.settings)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source."""
        return from_arrow_schema(_columns(self._parsed))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's)
        """Return the reader of a query."""
        try:
            self._check("stream", schema)
        except PenstockError as error:
            return RefusedReader(error)
        return KafkaStreamReader(self._parsed, self.session, _arrow(schema), self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of ranges."""
        self._check("batch", schema)
        return KafkaBatchReader(self._parsed, _arrow(schema))

    def _check(self, kind: Any, schema: StructType) -> None:
        check_kind(NAME, KAFKA_OPTIONS, split_settings(self.options)[1], kind)
        if schema != self.schema():
            raise ConfigError(
                f"the columns are given as {schema.simpleString()}",
                operation="read topics",
                hint=f"leave out .schema(...): they are {self.schema().simpleString()}",
            )


class KafkaStreamReader(PlannedStreamReader):
    """Plans and reads the batches of a query."""

    def __init__(
        self,
        options: KafkaOptions,
        session: Session,
        columns: pa.Schema,
        given: Mapping[str, str],
    ) -> None:
        super().__init__("0", options.given, session)
        self._parsed = options
        self._columns = columns
        self._read_by = read_by(given)
        self._batch_s: float | None = None

    def open_planner(self) -> KafkaPlanner:
        """Ask the brokers for the topics."""
        from penstock.structured.kafka.planner import KafkaPlanner

        query = self._session.query_of(*self._read_by)
        if query is None:
            return KafkaPlanner(self._parsed, self._name)
        self._name = query.place
        return KafkaPlanner(self._parsed, query.place, query)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; also one that only records where partitions begin."""
        from penstock.structured.kafka.planner import FIRST

        planner = cast("KafkaPlanner", self._planner)
        planner.takes_all = isinstance(limit, ReadAllAvailable)
        planner.has_begun = bool(start)
        end = super().latestOffset(start, limit)
        if not start:
            end = {FIRST: {}, **planner.recorded()}
        elif end in (start, {}):  # nothing, as where it began: there was no topic then
            end = planner.recorded() or start
        elif self._waits(planner, limit):
            return start
        if end != start:
            self._batch_s = time.monotonic()
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        from penstock.structured.kafka.planner import check_first

        check_first(start, end)
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        return _read(self._parsed, self._columns, partition)

    def _waits(self, planner: KafkaPlanner, limit: ReadLimit) -> bool:
        """Return whether there is too little for a batch yet (``minOffsetsPerTrigger``)."""
        least = self._parsed.values["minOffsetsPerTrigger"]
        if least is None or isinstance(limit, ReadAllAvailable) or planner.ends_by_itself:
            return False
        if self._batch_s is None or planner.count >= least:
            return False
        delay_ms = (time.monotonic() - self._batch_s) * 1000
        return bool(delay_ms < self._parsed.values["maxTriggerDelay"])


class KafkaBatchReader(DataSourceReader):
    """Reads what is between two bounds."""

    def __init__(self, options: KafkaOptions, columns: pa.Schema) -> None:
        self._parsed = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks; raises ConfigError or KafkaError if there are no such ranges."""
        from penstock.kafka.offsets import split_ranges
        from penstock.structured.kafka.bounds import batch_ranges
        from penstock.structured.kafka.planner import KafkaPartition
        from penstock.structured.kafka.topics import QueryTopics

        topics = QueryTopics(self._parsed)
        ranges = batch_ranges(self._parsed, topics.scan(), topics.at_time)
        least = self._parsed.values["minPartitions"]
        split = split_ranges(ranges, least_tasks=least)
        return [KafkaPartition(each, _ONCE) for each in split]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task; Spark makes an empty one where there is none."""
        if partition.value is None:
            return iter(())
        return _read(self._parsed, self._columns, partition)


def _read(
    options: KafkaOptions, columns: pa.Schema, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    from penstock.kafka.reader import read_batches
    from penstock.structured.kafka.planner import KafkaPartition, pass_over_of

    freeze_imports()
    assert isinstance(partition, KafkaPartition)
    settings, passes = options.settings, pass_over_of(options, partition.place)
    for batch in read_batches(settings, [partition.value], columns.names, passes):
        yield batch.cast(columns)


def _columns(options: KafkaOptions) -> pa.Schema:
    with_headers = options.values["includeHeaders"] == "true"
    return pa.schema(
        [item for item in SOURCE_COLUMNS.items() if with_headers or item[0] != "headers"]
    )


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")
