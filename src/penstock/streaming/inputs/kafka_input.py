"""The direct input over Kafka topics: offset ranges, with no second copy of the records."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from penstock.bounded_call import returns_in_time
from penstock.errors import ConfigError, KafkaDataLossError, KafkaError
from penstock.journal.spark import arrow_dataframe
from penstock.kafka import COLUMNS, ClientConf, KafkaRange
from penstock.kafka.advance import OnDataLoss
from penstock.kafka.decoding import CELL, Decoding, OnRefusedRecords, fail
from penstock.kafka.group import END_S, Group
from penstock.kafka.offsets import (
    TOPIC_NAME,
    at_given,
    from_json,
    ids_in,
    ranges_between,
    split_ranges,
    to_json,
)
from penstock.kafka.planner import Planner
from penstock.kafka.reader import Decode, check_settings
from penstock.kafka.tasks import ReadColumns, ReadRecords
from penstock.kafka.topics import Subscription, Topics
from penstock.model import Offsets, shown
from penstock.patience import Patience
from penstock.rate import Carry, RangeLimits, cut_range
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.inputs.input import InputContext, InputDStream
from penstock.streaming.inputs.refused import BadRecords, RefusedRecords

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program

Starting = Literal["latest", "earliest"] | datetime | Mapping[str, Mapping[int, int]]
"""Where the first batch begins: at the topics' end or beginning, at a time, or at these offsets."""

_log = logging.getLogger(__name__)


class KafkaInputDStream(InputDStream):
    """The records of topics, in batches of the offset ranges between two offset maps.

    Offsets are ``{"<topic>": {"<partition>": end}}``, as those of Spark's Kafka source.

    Source: ``org.apache.spark.streaming.kafka010.DirectKafkaInputDStream``.
    """

    kind = "kafka"
    takes_limits = True
    continues_in_source = True

    def __init__(
        self,
        ssc: Program,
        topics: str | Subscription,
        conf: Mapping[str, Any],
        *,
        starting: Starting,
        on_data_loss: OnDataLoss = "fail",
        bad_records: BadRecords = "fail",
        decoders: tuple[Decode, Decode] = (None, None),
        columns: Sequence[str] = tuple(COLUMNS),
        name: str | None = None,
    ) -> None:
        topics = [topics] if isinstance(topics, str) else topics
        _check_arguments(topics, starting, columns, on_data_loss)
        _check_decoders(*decoders)
        self.topics = topics
        self.conf = ClientConf(conf)
        check_settings(self.conf.settings())
        self.starting = starting
        self.columns = tuple(columns)
        self.on_data_loss: OnDataLoss = on_data_loss
        # Tasks note there what they find lost, and what decoders refuse.
        self.is_written_by_executors = on_data_loss != "fail" or bad_records == "dead_letter"
        self._decoders = decoders
        self._planner: Planner | None = None
        self._group: Group | None = None
        self._context: InputContext | None = None
        self._done: Offsets = {}
        self._patience = _patience()
        super().__init__(ssc, name)
        self._refused = RefusedRecords("kafkaStream", self.name, bad_records)

    def has_columns(self) -> bool:
        """Keys and values are bytes, unless Python objects are made of them."""
        return self._decoders == (None, None)

    def no_columns(self) -> ConfigError:
        """See BaseDStream."""
        return ConfigError(
            f"stream {self.name!r} has decoders, so it has no DataFrame",
            operation="foreachBatch",
            hint="leave out keyDecoder and valueDecoder, or use foreachRDD",
        )

    def open(self, context: InputContext) -> None:
        """Connect to the brokers.

        Raises:
            KafkaError: they do not answer, or a topic is unknown.
            CheckpointError, StorageError: what earlier runs noted of the topics cannot be read.
        """
        self._context = context
        topics = Topics(self.conf.settings(), self.topics)
        self._planner = Planner(topics, context.storage, self.name, self.on_data_loss)
        if not self._planner.scan().ends:
            _log.warning("Stream %s: no topic matches %s yet", self.name, self.topics)
        self._group = Group(self.conf.settings(), f"penstock-{self.name}-{context.location_id}")

    def initial_offset(self) -> SourceOffset:
        """Return where the first batch begins in each partition that exists."""
        facts = self._plans.scan()
        if isinstance(self.starting, datetime):
            time_ms = round(self.starting.timestamp() * 1000)
            return to_json(self._plans.at_time(time_ms, facts), facts.ids)
        if self.starting == "earliest":
            return to_json(facts.begins, facts.ids)
        if self.starting == "latest":
            return to_json(facts.ends, facts.ids)
        found = at_given(self.starting, facts.begins, facts.ends, "kafkaStream")
        return to_json(found, facts.ids)

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return the ends of the topics' partitions.

        While the brokers do not answer, the offset does not change, and a warning is logged once.

        Raises:
            KafkaError: they have not answered for a minute.
            KafkaDataLossError: records after ``start`` are gone, and ``on_data_loss`` is "fail"; or
                a topic was deleted and created again.
        """
        try:
            ends = self._plans.latest(from_json(start), ids_in(start), self._done)
        except KafkaDataLossError:
            raise
        except KafkaError as error:
            self._patience.bear(error)
            return start
        self._patience.recovered()
        return to_json(ends, self._plans.ids)

    def cut(
        self, wanted: SourceRange, limits: RangeLimits, carry: Carry
    ) -> tuple[SourceRange, Carry]:
        """Return as many records as the limits allow, of each partition by its lag."""
        start, end = from_json(wanted.start), from_json(wanted.end)
        cut = cut_range(self._plans.starts(start, end), end, limits, carry)
        return SourceRange(wanted.start, to_json(cut.end, ids_in(wanted.end))), cut.carry

    def unreadable_records(self) -> int:
        """Return how many records are behind open transactions, as of some seconds ago."""
        return sum(self._plans.unreadable.values())

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the records of a range (``KafkaRecord``), read when the tasks run."""
        decoding = None if self._decoders == (None, None) else self._decoding()
        read = ReadRecords(self.conf.settings(), decoding, self._plans.pass_over)
        sc = self.ssc.sparkContext
        if not (tasks := self._tasks(wanted)):
            return sc.emptyRDD()
        return sc.parallelize(tasks, len(tasks)).mapPartitions(read)

    def compute_dataframe(self, time_ms: int) -> DataFrame:
        """Return the records of that batch as a DataFrame with the columns asked for."""
        schema = pa.schema([pa.field(name, COLUMNS[name]) for name in self.columns])
        read = ReadColumns(self.conf.settings(), self.columns, self._plans.pass_over)
        tasks = self._tasks(self.range_of(time_ms))
        return arrow_dataframe(SparkSession.builder.getOrCreate(), schema, tasks, read)

    def ranges(self, wanted: SourceRange) -> list[KafkaRange]:
        """Return the ranges of the topics' partitions between two offsets that are not lost."""
        return [part for each in self._planned(wanted) for part in each.held()]

    def record_count(self, wanted: SourceRange) -> int:
        """Return the most records that the range can hold."""
        return sum(part.count for part in self.ranges(wanted))

    def has_records(self, planned: SourceRange) -> bool:
        """Whether a partition's offsets differ; one that was only recorded has no records."""
        return bool(ranges_between(from_json(planned.start), from_json(planned.end)))

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
        self._done = from_json(done.end)
        if self._group is not None:
            self._group.commit(self._done)

    def initialize(self, zero_ms: int) -> None:
        """Begin; see BaseDStream.

        Raises:
            ConfigError: a stream has the name of the folder of dead letters.
        """
        super().initialize(zero_ms)
        self._refused.begin(self.ssc.sparkContext, self._opened.journal)

    def clear_metadata(self, ended_ms: int, needed_after_ms: int) -> None:
        """See BaseDStream. Also logs refused records."""
        super().clear_metadata(ended_ms, needed_after_ms)
        self._refused.end_batch(ended_ms)

    def _decoding(self) -> Decoding:
        on_refused: OnRefusedRecords = fail
        if (handle := self._refused.on_refused(self._opened.location_id)) is not None:
            on_refused = partial(handle, None)
        return Decoding(*self._decoders, on_refused)

    def close(self) -> None:
        """Close the connections; see ``InputDStream.close``."""
        if self._group is not None:
            self._group.close()
        dropped = [self._planner]
        self._planner = self._group = self._context = None
        if not returns_in_time(dropped.clear, END_S):
            _log.warning("The Kafka client of %s did not end within %g s", self.name, END_S)

    @property
    def _opened(self) -> InputContext:
        assert self._context is not None, "open() comes first"
        return self._context

    @property
    def _plans(self) -> Planner:
        assert self._planner is not None, "open() comes first"
        return self._planner

    def _tasks(self, wanted: SourceRange) -> list[KafkaRange]:
        self._plans.check_topics(ids_in(wanted.end))
        return split_ranges(self._planned(wanted), cell=CELL)

    def _planned(self, wanted: SourceRange) -> list[KafkaRange]:
        return self._plans.ranges(from_json(wanted.start), from_json(wanted.end))

    def __getstate__(self) -> dict[str, Any]:
        closed = dict.fromkeys(["_planner", "_group", "_context"])
        return {**super().__getstate__(), **closed, "_done": {}, "_patience": _patience()}


def _patience() -> Patience:
    return Patience("No new Kafka records are planned until the brokers answer")


def _check_arguments(
    topics: Subscription, starting: Any, columns: Sequence[str], on_data_loss: Any
) -> None:
    if on_data_loss not in get_args(OnDataLoss):
        choices = ", ".join(get_args(OnDataLoss))
        raise _wrong(f"on_data_loss={shown(on_data_loss)}", f"choose among {choices}")
    if not isinstance(topics, re.Pattern) and (
        not topics or not all(isinstance(t, str) for t in topics)
    ):
        raise _wrong(
            f"topics {shown(topics)}", "give a list of names, or a pattern: re.compile('logs-.*')"
        )
    if not isinstance(topics, re.Pattern) and not all(map(TOPIC_NAME.fullmatch, topics)):
        raise _wrong(
            f"topics {shown(list(topics))}",
            "names have letters, digits, '.', '_' and '-'; a pattern is re.compile('logs-.*')",
        )
    is_known = starting in ("latest", "earliest") if isinstance(starting, str) else True
    if not is_known or not isinstance(starting, (str, datetime, Mapping)):
        raise _wrong(
            f"starting={shown(starting)}",
            "give 'latest', 'earliest', a datetime, or {topic: {0: offset}}",
        )
    if isinstance(columns, str) or not columns or not set(columns) <= COLUMNS.keys():
        raise _wrong(f"columns={shown(columns)}", f"choose among {', '.join(COLUMNS)}")


def _check_decoders(key: Decode, value: Decode) -> None:
    for name, decode in (("keyDecoder", key), ("valueDecoder", value)):
        if decode is not None and not callable(decode):
            raise _wrong(
                f"{name}={shown(decode)}", f"give a function of bytes: {name}=bytes.decode"
            )


def _wrong(what: str, hint: str) -> ConfigError:
    return ConfigError(f"{what} is not possible", operation="kafkaStream", hint=hint)
