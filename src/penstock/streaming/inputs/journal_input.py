"""Inputs that are a stream of a journal, read by offset ranges, whoever writes it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import (
    MissingBlockError,
    PenstockError,
    RecoveryMismatchError,
    StreamingError,
)
from penstock.journal import (
    JournalStream,
    RecordFormat,
    StreamProgress,
    advance,
    ranges_between,
)
from penstock.journal.layout import parse_writer
from penstock.journal.named_damage import find_named_damage
from penstock.journal.offsets import is_finished
from penstock.journal.reader import readable_ranges, slice_ranges, with_command
from penstock.journal.retention.consumer_files import consumers
from penstock.journal.retention.registration import Consumer
from penstock.journal.retention.retirer import Retirer
from penstock.journal.scan import StreamScan
from penstock.journal.spark import check_spark_schema, journal_dataframe, journal_rdd
from penstock.model import OffsetRange, Offsets
from penstock.rate import Carry, Lane, RangeLimits, cut_range
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.inputs.input import InputContext, InputDStream

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext
    from penstock.streaming.inputs.parsing import BadRecords, ParsedDStream

__all__ = ["JournalInputDStream"]


class JournalInputDStream(InputDStream):
    """Records of a journal's stream, in batches of the offset ranges between two offset maps.

    Offsets are ``{"<name>": {"<writer>": end}}``. Records are ``str``, ``bytes``, Python objects
    or dicts, after the stream's schema; on the DataFrame path they are the schema's columns.
    """

    kind = "journal"
    takes_limits = True
    is_written_by_executors = True

    def __init__(self, ssc: StreamingContext, name: str | None = None) -> None:
        super().__init__(ssc, name)
        self._opened: _Opened | None = None

    @property
    @abstractmethod
    def format(self) -> RecordFormat:
        """How the stream's records are stored."""

    @property
    def journal(self) -> JournalStream:
        """The journal's stream."""
        return self._open.stream

    @property
    def scan(self) -> StreamScan | None:
        """What planning the newest batch has listed; None before this run planned one."""
        return self._open.progress.scan

    @property
    def consumer_name(self) -> str:
        """The name under which the program is registered as a consumer of the stream."""
        return self._open.consumer.name

    @property
    def _open(self) -> _Opened:
        if self._opened is None:
            raise StreamingError(
                "the stream has no journal before the context starts",
                operation="open journal",
                ids={"stream": self.name},
                hint="call start() first",
            )
        return self._opened

    @abstractmethod
    def open_stream(self, context: InputContext) -> JournalStream:
        """Return the journal's stream."""

    @abstractmethod
    def register(self, stream: JournalStream, context: InputContext) -> Consumer:
        """Register as a consumer of the stream."""

    def open(self, context: InputContext) -> None:
        """Open the stream, and register as its consumer.

        Raises:
            ConfigError: it cannot be read so, or the consumer has another owner.
            StorageError: the journal cannot be reached.
        """
        stream = self.open_stream(context)
        check_spark_schema(stream)
        consumer = self.register(stream, context)
        self._opened = _Opened(
            stream, consumer, StreamProgress(stream), Retirer(consumer), context.oldest_start
        )

    def settle_begin(self, context: InputContext, resolve: Callable[[], Offsets]) -> Offsets:
        """Return where the input's first batch begins; see ``register_consumer``."""
        first = context.first_offset(lambda: {self.name: dict(resolve())})
        return resolve() if first is None else self.partitions(first)

    def has_columns(self) -> bool:
        """Pickled objects have no columns; everything else has."""
        return self.format.kind != "pickle"

    def parse(
        self, parser: Callable[[Any], Any], bad_records: BadRecords = "fail"
    ) -> ParsedDStream:
        """Return the stream of what a parser makes of each record; see docs/bad-records.md.

        Args:
            parser: a function of a record that returns a value, or raises when the record is bad.
            bad_records: what becomes of a bad one. ``"fail"``: the batch fails and names it.
                ``"drop"``: it is left out, and counted in a warning for each batch.
                ``"dead_letter"``: it is kept in stream ``<name>-dead`` of the journal, from where
                ``penstock journal replay`` feeds it back.

        Raises:
            ConfigError: an argument is wrong.
        """
        from penstock.streaming.inputs.parsing import ParsedDStream  # which imports this

        return ParsedDStream(self, parser, bad_records)

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return the ends of all that is durable now."""
        committed = self._at(start)
        try:
            return {self.name: advance(committed, self._open.progress.ends(committed))}
        except MissingBlockError as e:
            raise with_command(self.journal, e, restore=str(e.hint)) from None

    def cut(
        self, wanted: SourceRange, limits: RangeLimits, carry: Carry
    ) -> tuple[SourceRange, Carry]:
        """Return as many records as the limits allow; each receiver's in their order."""
        start, end = self._at(wanted.start), self._at(wanted.end)
        cut = cut_range(start, end, limits, carry, _lane)
        return SourceRange(wanted.start, {self.name: cut.end}), cut.carry

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the records of a range, read from their blocks when the tasks run."""
        sc, ranges = self.ssc.sparkContext, self.ranges(wanted)
        return journal_rdd(sc, self.journal, ranges, self.scan)

    def compute_dataframe(self, time_ms: int) -> DataFrame:
        """Return the records of that batch as a DataFrame over their blocks."""
        ranges = self.ranges(self.range_of(time_ms))
        spark = SparkSession.builder.getOrCreate()
        return journal_dataframe(spark, self.journal, ranges, self.scan)

    def record_count(self, wanted: SourceRange) -> int:
        """Return how many records the range holds."""
        ranges = self.ranges(wanted)
        return sum(r.count for r in readable_ranges(self.journal, ranges, self.scan))

    def find_damage(self, wanted: SourceRange, error: str) -> PenstockError | None:
        """Read the blocks of the range that the error names; return what is wrong with them."""
        return find_named_damage(self.journal, self.ranges(wanted), error)

    def can_read_again(self, wanted: SourceRange) -> bool:
        """Whether the blocks are still there; False when they were retired as no longer needed.

        Raises:
            MissingBlockError: they are gone, and were not given free.
        """
        for part in self.ranges(wanted):
            try:
                slice_ranges(self.journal, [part])
            except MissingBlockError:
                if not self._is_given_free(part):
                    raise
                return False
        return True

    def on_released(self, done: SourceRange) -> None:
        """Tell the journal, and retire the blocks that no consumer needs.

        Blocks that the offset log's entries name stay: whoever goes back within it finds the data.
        """
        start, end = self._at(done.start), self._at(done.end)
        # A writer leaves the offsets in the batch after its last one, so look at both ends.
        writers = map(parse_writer, start.keys() | end.keys())
        self._open.retirer.commit(end, filter(None, writers), self._retained())

    def ranges(self, wanted: SourceRange) -> list[OffsetRange]:
        """Return the offset ranges of the journal between two offsets of this input."""
        return ranges_between(self._at(wanted.start), self._at(wanted.end))

    def _at(self, place: SourceOffset) -> Offsets:
        """Return the offsets of a place; the beginning is where the consumer began."""
        return self._open.consumer.begin if place is None else self.partitions(place)

    def _retained(self) -> Offsets:
        """Return from where on blocks stay, so that batches can be processed again."""
        try:
            return self._at(self._open.oldest_start())
        except RecoveryMismatchError:  # of a run whose inputs had other places
            return self._open.consumer.begin

    def _is_given_free(self, part: OffsetRange) -> bool:
        committed = consumers(self.journal).get(self._open.consumer.name, {})
        writer = parse_writer(part.partition)
        finished = writer is not None and is_finished(writer, committed)
        return finished or committed.get(part.partition, 0) > part.start_offset

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_opened": None}


@dataclass(frozen=True, slots=True)
class _Opened:
    """What an input works with while its program runs."""

    stream: JournalStream
    consumer: Consumer
    progress: StreamProgress
    retirer: Retirer
    oldest_start: Callable[[], SourceOffset]
    """Returns where the oldest batch begins that may be processed again."""


def _lane(writer: str) -> Lane:
    """Return the receiver of a writer, whose epochs are read one after the other."""
    parsed = parse_writer(writer)
    return (writer, 0) if parsed is None else (parsed.receiver, parsed.epoch)
