"""The direct input over Kafka topics: offset ranges, with no second copy of the records."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.errors import ConfigError, KafkaError
from penstock.kafka import COLUMNS, ClientConf, KafkaRange
from penstock.kafka.group import Group
from penstock.kafka.offsets import from_json, ranges_between, to_json
from penstock.kafka.reader import Decode, check_settings, read_batches, read_records
from penstock.kafka.topics import Subscription, Topics, advance
from penstock.rate import Carry, RangeLimits, cut_range
from penstock.storage.patience import Patience
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.inputs.input import InputContext, InputDStream

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext

__all__ = ["KafkaInputDStream", "Starting"]

Starting = Literal["latest", "earliest"] | datetime | Mapping[str, Mapping[int, int]]
"""Where the first batch begins: at the topics' end or beginning, at a time, or at these offsets."""

_log = logging.getLogger(__name__)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LEAST_PER_TASK = 10_000
"""A task's start costs about as much as reading so many records."""


class KafkaInputDStream(InputDStream):
    """The records of topics, in batches of the offset ranges between two offset maps.

    Offsets are ``{"<topic>": {"<partition>": end}}``, as those of Spark's Kafka source.

    Source: ``org.apache.spark.streaming.kafka010.DirectKafkaInputDStream``.
    """

    kind = "kafka"
    takes_limits = True

    def __init__(
        self,
        ssc: StreamingContext,
        topics: Subscription,
        conf: Mapping[str, Any],
        *,
        starting: Starting,
        decoders: tuple[Decode, Decode] = (None, None),
        columns: Sequence[str] = tuple(COLUMNS),
        name: str | None = None,
    ) -> None:
        _check_arguments(topics, starting, columns)
        self.topics = topics
        self.conf = ClientConf(conf)
        check_settings(self.conf.settings())
        self.starting = starting
        self.columns = tuple(columns)
        self._decoders = decoders
        self._client: Topics | None = None
        self._group: Group | None = None
        self._patience = _patience()
        super().__init__(ssc, name)

    def has_columns(self) -> bool:
        """Keys and values are bytes, unless they are decoded to Python objects."""
        return self._decoders == (None, None)

    def open(self, context: InputContext) -> None:
        """Connect to the brokers.

        Raises:
            KafkaError: they do not answer, or a topic is unknown.
        """
        self._client = Topics(self.conf.settings(), self.topics)
        if not self._client.partitions():
            _log.warning("Stream %s: no topic matches %s yet", self.name, self.topics)
        self._group = Group(self.conf.settings(), f"penstock-{self.name}-{context.location_id}")

    def initial_offset(self) -> SourceOffset:
        """Return where the first batch begins in each partition that exists."""
        begins, ends = self._brokers.begins_and_ends()
        if isinstance(self.starting, datetime):
            return to_json(self._brokers.at_time(round(self.starting.timestamp() * 1000)))
        if self.starting == "earliest":
            return to_json(begins)
        if self.starting == "latest":
            return to_json(ends)
        given = {
            f"{topic}/{partition}": offset
            for topic, offsets in self.starting.items()
            for partition, offset in offsets.items()
        }
        unknown = given.keys() - ends.keys()
        if unknown:
            raise ConfigError(
                f"starting= names {', '.join(sorted(unknown))}, which does not exist",
                operation="kafkaStream",
                ids={"stream": self.name},
                hint=f"the partitions are {', '.join(sorted(ends))}",
            )
        return to_json({**begins, **given})

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return the ends of the topics' partitions.

        While the brokers do not answer, the offset does not change, and a warning is logged once.

        Raises:
            KafkaError: they have not answered for a minute.
            KafkaDataLossError: records after ``start`` are gone.
        """
        try:
            begins, ends = self._brokers.begins_and_ends()
        except KafkaError as error:
            self._patience.bear(error)
            return start
        self._patience.recovered()
        return to_json(advance(from_json(start), begins, ends))

    def cut(
        self, wanted: SourceRange, limits: RangeLimits, carry: Carry
    ) -> tuple[SourceRange, Carry]:
        """Return as many records as the limits allow, of each partition by its lag."""
        start, end = from_json(wanted.start), from_json(wanted.end)
        # A partition that is new has no records yet: it is recorded with where it begins.
        cut = cut_range({**end, **start}, end, limits, carry)
        return SourceRange(wanted.start, to_json(cut.end)), cut.carry

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the records of a range (``KafkaRecord``), read when the tasks run."""
        tasks = self._tasks(wanted)
        if not tasks:
            return self.ssc.sparkContext.emptyRDD()
        read = _ReadRecords(self.conf.settings(), self._decoders)
        return self.ssc.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(read)

    def compute_dataframe(self, time_ms: int) -> DataFrame:
        """Return the records of that batch as a DataFrame with the columns asked for."""
        tasks = self._tasks(self.range_of(time_ms))
        schema = pa.schema([pa.field(name, COLUMNS[name]) for name in self.columns])
        struct, spark = from_arrow_schema(schema), SparkSession.builder.getOrCreate()
        if not tasks:
            return spark.createDataFrame(schema.empty_table(), struct)
        read = _ReadArrow(self.conf.settings(), tasks, self.columns)
        return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, struct)

    def ranges(self, wanted: SourceRange) -> list[KafkaRange]:
        """Return the ranges of the topics' partitions between two offsets of this input."""
        return ranges_between(from_json(wanted.start), from_json(wanted.end))

    def record_count(self, wanted: SourceRange) -> int:
        """Return the most records that the range can hold."""
        return sum(part.count for part in self.ranges(wanted))

    def has_records(self, planned: SourceRange) -> bool:
        """Whether a partition's offsets differ; one that was only recorded has no records."""
        return bool(self.ranges(planned))

    def metadata(self, wanted: SourceRange) -> dict[str, Any]:
        """Return the ranges, as listeners and Spark's own tab have them."""
        ranges = self.ranges(wanted)
        lines = (
            f"topic: {part.topic}\tpartition: {part.partition}\t"
            f"offsets: {part.start_offset} to {part.end_offset}"
            for part in ranges
        )
        return {"offsets": ranges, "Description": "\n".join(lines)}

    def check_offset(self, offset: SourceOffset) -> None:
        """Refuse an offset that is not one of topics; see ``InputDStream.check_offset``."""
        from_json(offset)

    def on_committed(self, done: SourceRange) -> None:
        """Commit the group's offsets, by which tools tell the lag; nothing here reads them."""
        if self._group is not None:
            self._group.commit(from_json(done.end))

    @property
    def _brokers(self) -> Topics:
        assert self._client is not None, "open() comes first"
        return self._client

    def _tasks(self, wanted: SourceRange) -> list[KafkaRange]:
        """Return what each task reads: a partition that lags is shared by several."""
        ranges = self.ranges(wanted)
        slots = self.ssc.sparkContext.defaultParallelism
        share = -(-sum(part.count for part in ranges) // slots)
        return [part for whole in ranges for part in whole.split(max(_LEAST_PER_TASK, share))]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_client": None, "_group": None, "_patience": _patience()}


class _ReadRecords:
    """Task: ranges to records. A class, so that it pickles by name."""

    def __init__(self, settings: Mapping[str, Any], decoders: tuple[Decode, Decode]) -> None:
        self._settings = settings
        self._decoders = decoders

    def __call__(self, ranges: Iterable[KafkaRange]) -> Iterator[Any]:
        return read_records(self._settings, ranges, *self._decoders)


class _ReadArrow:
    """Task: its number to the Arrow batches of its range."""

    def __init__(
        self, settings: Mapping[str, Any], tasks: Sequence[KafkaRange], columns: Sequence[str]
    ) -> None:
        self._settings = settings
        self._tasks = tasks
        self._columns = columns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in batches:
            mine = [self._tasks[number] for number in numbers.column(0).to_pylist()]
            yield from read_batches(self._settings, mine, self._columns)


def _patience() -> Patience:
    return Patience("No new Kafka records are planned until the brokers answer")


def _check_arguments(topics: Subscription, starting: Any, columns: Sequence[str]) -> None:
    if not isinstance(topics, re.Pattern) and (
        isinstance(topics, str) or not topics or not all(isinstance(t, str) for t in topics)
    ):
        raise _wrong(
            f"topics {topics!r}", "give a list of names, or a pattern: re.compile('logs-.*')"
        )
    if not isinstance(topics, re.Pattern) and not all(map(_TOPIC.fullmatch, topics)):
        raise _wrong(
            f"topics {list(topics)!r}",
            "names have letters, digits, '.', '_' and '-'; a pattern is re.compile('logs-.*')",
        )
    is_known = starting in ("latest", "earliest") if isinstance(starting, str) else True
    if not is_known or not isinstance(starting, (str, datetime, Mapping)):
        raise _wrong(
            f"starting={starting!r}",
            "give 'latest', 'earliest', a datetime, or {topic: {0: offset}}",
        )
    if isinstance(columns, str) or not columns or not set(columns) <= COLUMNS.keys():
        raise _wrong(f"columns={columns!r}", f"choose among {', '.join(COLUMNS)}")


def _wrong(what: str, hint: str) -> ConfigError:
    return ConfigError(f"{what} is not possible", operation="kafkaStream", hint=hint)
