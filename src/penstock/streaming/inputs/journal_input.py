"""Inputs over a stream of a journal, read by offset ranges."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import RDD
from pyspark.sql import DataFrame

from penstock.errors import PenstockError, RecoveryMismatchError, StreamingError
from penstock.journal import JournalStream, RecordFormat, ranges_between
from penstock.journal.retention.registration import Consumer
from penstock.journal.scan import StreamScan
from penstock.journal.source import JournalSource, lane_of
from penstock.journal.spark import journal_dataframe, journal_rdd
from penstock.journal.spark_types import spark_schema
from penstock.model import OffsetRange, Offsets
from penstock.rate import Carry, RangeLimits, cut_range
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.inputs.input import InputContext, InputDStream

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program
    from penstock.streaming.inputs.parsing import ParsedDStream
    from penstock.streaming.inputs.refused import BadRecords


class JournalInputDStream(InputDStream):
    """Records of a journal's stream, in batches of the offset ranges between two offset maps.

    Offsets are ``{"<name>": {"<writer>": end}}``. Records are ``str``, ``bytes``, Python objects
    or dicts, after the stream's schema; on the DataFrame path they are the schema's columns.
    """

    kind = "journal"
    takes_limits = True
    is_written_by_executors = True

    def __init__(self, ssc: Program, name: str | None = None) -> None:
        super().__init__(ssc, name)
        self._opened: _Opened | None = None

    @property
    @abstractmethod
    def format(self) -> RecordFormat:
        """How the stream's records are stored."""

    @property
    def journal(self) -> JournalStream:
        """The journal's stream."""
        return self._open.source.stream

    @property
    def scan(self) -> StreamScan | None:
        """The scan of planning the newest batch; None before this run planned one."""
        return self._open.source.scan

    @property
    def consumer_name(self) -> str:
        """The name under which the program is registered as a consumer of the stream."""
        return self._open.source.consumer

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
        spark_schema(stream.format.arrow, stream=stream.name)
        consumer = self.register(stream, context)
        self._opened = _Opened(JournalSource(consumer), context.oldest_start)

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
        """Return the stream of a parser's results for each record; see docs/bad-records.md.

        Args:
            parser: a function of a record that returns a value, or raises when the record is bad.
            bad_records: the handling of a bad record. ``"fail"``: the batch fails and names it.
                ``"drop"``: it is left out, and counted in a warning for each batch.
                ``"dead_letter"``: it is kept in folder ``<name>-dead`` of the journal, from where
                ``penstock journal replay`` feeds it back.

        Raises:
            ConfigError: an argument is wrong.
        """
        from penstock.streaming.inputs.parsing import ParsedDStream  # which imports this

        return ParsedDStream(self, parser, bad_records)

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return the ends of all durable records."""
        return {self.name: self._open.source.latest(self._at(start))}

    def cut(
        self, wanted: SourceRange, limits: RangeLimits, carry: Carry
    ) -> tuple[SourceRange, Carry]:
        """Return as many records as the limits allow; each receiver's records in order."""
        start, end = self._at(wanted.start), self._at(wanted.end)
        cut = cut_range(start, end, limits, carry, lane_of)
        return SourceRange(wanted.start, {self.name: cut.end}), cut.carry

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the records of a range, read from their blocks when the tasks run."""
        return journal_rdd(self.ssc.sparkContext, self.journal, self.ranges(wanted), self.scan)

    def compute_dataframe(self, time_ms: int) -> DataFrame:
        """Return the records of that batch as a DataFrame over their blocks."""
        ranges = self.ranges(self.range_of(time_ms))
        return journal_dataframe(self.session, self.journal, ranges, self.scan)

    def record_count(self, wanted: SourceRange) -> int:
        """Return the number of records in the range."""
        return self._open.source.count(self.ranges(wanted))

    def find_damage(self, wanted: SourceRange, error: str) -> PenstockError | None:
        """Read the blocks of the range that the error names; return their damage."""
        return self._open.source.find_damage(self.ranges(wanted), error)

    def can_read_again(self, wanted: SourceRange) -> bool:
        """Whether the blocks still exist; False if they were retired as no longer needed.

        Raises:
            MissingBlockError: they are missing, and were not released.
        """
        return self._open.source.has_blocks(self.ranges(wanted))

    def on_released(self, done: SourceRange) -> None:
        """Commit in the journal, and retire the blocks that no consumer needs.

        Blocks that the offset log's entries name are kept for reprocessing.
        """
        start, end = self._at(done.start), self._at(done.end)
        self._open.source.commit(start, end, self._retained())

    def ranges(self, wanted: SourceRange) -> list[OffsetRange]:
        """Return the offset ranges of the journal between two offsets of this input."""
        return ranges_between(self._at(wanted.start), self._at(wanted.end))

    def _at(self, place: SourceOffset) -> Offsets:
        """Return the offsets of a place; the beginning is where the consumer began."""
        return self._open.source.begin if place is None else self.partitions(place)

    def _retained(self) -> Offsets:
        """Return from where on blocks stay, so that batches can be processed again."""
        try:
            return self._at(self._open.oldest_start())
        except RecoveryMismatchError:  # of a run whose inputs had other places
            return self._open.source.begin

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_opened": None}


@dataclass(frozen=True, slots=True)
class _Opened:
    """What an input works with while its program runs."""

    source: JournalSource
    oldest_start: Callable[[], SourceOffset]
    """Returns where the oldest batch begins that may be processed again."""
