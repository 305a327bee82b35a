"""The input behind every receiver: a stream of the journal, read by offset ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import MissingBlockError, PenstockError, StreamingError
from penstock.journal import (
    JournalStream,
    RecordFormat,
    StreamProgress,
    advance,
    commit_consumer,
    ranges_between,
    read_batches,
    retire,
)
from penstock.journal.layout import parse_writer
from penstock.journal.offsets import is_finished
from penstock.journal.reader import readable_ranges, slice_ranges
from penstock.journal.retention import consumers
from penstock.journal.spark import check_spark_schema, journal_dataframe, journal_rdd
from penstock.model import OffsetRange
from penstock.rate import Carry, Lane, RangeLimits, cut_range
from penstock.receivers import Receiver
from penstock.storage import Storage
from penstock.streaming.batch import SourceOffset, SourceRange
from penstock.streaming.inputs import InputDStream

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext
    from penstock.streaming.parsing import BadRecords, ParsedDStream

__all__ = ["ReceiverInputDStream"]

_CONSUMER = "streaming"


class ReceiverInputDStream(InputDStream):
    """Records that a receiver pushes into the journal.

    Offsets are ``{"<stream>": {"<writer>": end}}``. Records are ``str``, ``bytes``, Python objects
    or dicts, after the receiver's schema; on the DataFrame path they are the schema's columns.
    """

    kind = "receiver"
    takes_limits = True

    def __init__(self, ssc: StreamingContext, receiver: Receiver, name: str | None = None) -> None:
        self.format = RecordFormat(receiver.schema)
        super().__init__(ssc, name)
        self.receiver = receiver
        self._journal: JournalStream | None = None
        self._progress: StreamProgress | None = None
        self._swept = False

    @property
    def journal(self) -> JournalStream:
        """The journal stream that the receiver writes."""
        if self._journal is None:
            raise StreamingError(
                "the stream has no journal before the context starts",
                operation="open journal",
                ids={"stream": self.name},
                hint="call start() first",
            )
        return self._journal

    def open_journal(self, storage: Storage) -> None:
        """Open this input's stream under the journal's root; register as its consumer."""
        self._journal = JournalStream.create(storage, self.name, self.format)
        check_spark_schema(self._journal)
        self._progress = StreamProgress(self._journal)

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
        from penstock.streaming.parsing import ParsedDStream  # which imports this

        return ParsedDStream(self, parser, bad_records)

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return the ends of all that is durable now."""
        if self._progress is None:
            return start
        committed = self.partitions(start)
        return {self.name: advance(committed, self._progress.ends(committed))}

    def cut(
        self, wanted: SourceRange, limits: RangeLimits, carry: Carry
    ) -> tuple[SourceRange, Carry]:
        """Return as many records as the limits allow; each receiver's in their order."""
        start, end = self.partitions(wanted.start), self.partitions(wanted.end)
        cut = cut_range(start, end, limits, carry, _lane)
        return SourceRange(wanted.start, {self.name: cut.end}), cut.carry

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the records of a range, read from their blocks when the tasks run."""
        return journal_rdd(self.ssc.sparkContext, self.journal, self.ranges(wanted))

    def compute_dataframe(self, time_ms: int) -> DataFrame:
        """Return the records of that batch as a DataFrame over their blocks."""
        ranges = self.ranges(self.range_of(time_ms))
        return journal_dataframe(SparkSession.builder.getOrCreate(), self.journal, ranges)

    def record_count(self, wanted: SourceRange) -> int:
        """Return how many records the range holds."""
        return sum(r.count for r in readable_ranges(self.journal, self.ranges(wanted)))

    def find_damage(self, wanted: SourceRange) -> PenstockError | None:
        """Read the range's blocks, and return the error of the first one that is damaged."""
        try:
            for _ in read_batches(self.journal, self.ranges(wanted)):
                pass
        except PenstockError as damage:
            return damage
        return None

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

    def on_committed(self, done: SourceRange) -> None:
        """Tell the journal, and retire the blocks that no consumer needs."""
        commit_consumer(self.journal, _CONSUMER, self.partitions(done.end))
        if self._swept:
            # A writer leaves the offsets in the batch after its last one, so look at both ends.
            names = self.partitions(done.start).keys() | self.partitions(done.end).keys()
            retire(self.journal, [w for name in names if (w := parse_writer(name))])
        else:
            retire(self.journal)  # also what an earlier run was killed before it could retire
            self._swept = True

    def ranges(self, wanted: SourceRange) -> list[OffsetRange]:
        """Return the offset ranges of the journal between two offsets of this input."""
        return ranges_between(self.partitions(wanted.start), self.partitions(wanted.end))

    def _is_given_free(self, part: OffsetRange) -> bool:
        committed = consumers(self.journal).get(_CONSUMER, {})
        writer = parse_writer(part.partition)
        finished = writer is not None and is_finished(writer, committed)
        return finished or committed.get(part.partition, 0) > part.start_offset

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_journal": None, "_progress": None, "_swept": False}


def _lane(writer: str) -> Lane:
    """Return the receiver of a writer, whose epochs are read one after the other."""
    parsed = parse_writer(writer)
    return (writer, 0) if parsed is None else (parsed.receiver, parsed.epoch)
