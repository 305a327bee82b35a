"""A stream as a source of batches: one consumer plans, reads, commits and retires. Without Spark.

    register -> (latest -> ranges -> read, any number of times -> commit)*

Offsets are maps ``{writer: end}``; a batch takes the records between two of them. The caller keeps
track of batches; the source makes the committed offsets durable.

Invariants:

1. Blocks from the committed offsets on are kept, and those from the retained offsets on
   (``retention``). So a planned range can be read until it is committed, any number of times.
2. A batch is read from the scan that planned it, or a later one (``scan``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.errors import MissingBlockError, PenstockError
from penstock.journal.layout import parse_writer
from penstock.journal.losses.way_out import with_command
from penstock.journal.offsets import advance, is_finished
from penstock.journal.progress import StreamProgress
from penstock.journal.reader import read_slices, readable_ranges, slice_ranges
from penstock.journal.retention.consumer_files import consumers
from penstock.journal.retention.recent_ends import RecentEnds
from penstock.journal.retention.registration import Consumer
from penstock.journal.retention.retirer import Retirer
from penstock.journal.scan import StreamScan
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange, Offsets

# -- examines the blocks that the error of a failed job names --
#
# Bounded: only blocks that the error names are read, and only a few of them. A job fails for many
# reasons, and its batch may be as large as a backlog.

_MOST_BLOCKS = 4


def find_named_damage(
    stream: JournalStream, ranges: Iterable[OffsetRange], text: str
) -> PenstockError | None:
    """Return the damage of blocks of the ranges that ``text`` names, if any.

    A block is named by its path, or by the ids in errors of the journal.
    """
    name = re.escape(stream.name)
    named = re.compile(
        rf"/{name}/(?P<writer>[^/\s]+)/(?P<start>[0-9]{{20}})\.parquet"
        rf"|stream={name} writer=(?P<writer_id>\S+) start=(?P<start_id>[0-9]+)"
    )
    blocks = dict.fromkeys(
        (found["writer"] or found["writer_id"], int(found["start"] or found["start_id"]))
        for found in named.finditer(text)
    )
    starts: dict[str, list[int]] = {}
    for writer, start in itertools.islice(blocks, _MOST_BLOCKS):
        starts.setdefault(writer, []).append(start)
    if not starts:
        return None
    try:
        # A missing block shows in the previous one, which extends further according to the listing.
        slices = slice_ranges(stream, (part for part in ranges if part.partition in starts))
        for part in slices:
            end = part.end_offset if part.block_end is None else part.block_end
            writer = part.path.split("/")[1]
            if any(part.block_start <= start < end for start in starts[writer]):
                for _ in read_slices(stream, [part]):
                    pass
    except PenstockError as damage:
        return damage
    return None


class JournalSource:
    """Reads a stream for a registered consumer.

    ``latest`` and ``commit`` are each called from one thread at a time; all else from any.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._progress = StreamProgress(consumer.stream)
        self._retirer = Retirer(consumer)

    @property
    def stream(self) -> JournalStream:
        """The stream."""
        return self._consumer.stream

    @property
    def consumer(self) -> str:
        """The consumer's name."""
        return self._consumer.name

    @property
    def begin(self) -> Offsets:
        """The start offsets of the consumer's first batch."""
        return self._consumer.begin

    @property
    def scan(self) -> StreamScan | None:
        """The scan of the last call of ``latest``; None before the first one."""
        return self._progress.scan

    def latest(self, start: Offsets) -> dict[str, int]:
        """Return the ends of all durable records, for a batch that begins at ``start``.

        Raises:
            MissingBlockError: the journal ends before ``start``.
            DamagedBlockError: a writer's newest block is damaged, so its end is unknown.
            StorageError: the journal cannot be read.
        """
        try:
            return advance(start, self._progress.ends(start))
        except MissingBlockError as e:
            raise with_command(self.stream, e, restore=str(e.hint)) from None

    def count(self, ranges: Iterable[OffsetRange]) -> int:
        """Return the number of records in the ranges, without skipped ones."""
        return sum(part.count for part in readable_ranges(self.stream, ranges, self.scan))

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the ranges, in order. Raises as ``reader.read_batches``."""
        return read_slices(self.stream, slice_ranges(self.stream, ranges, self.scan))

    def has_blocks(self, ranges: Iterable[OffsetRange]) -> bool:
        """Return whether the blocks of the ranges exist; False if some were retired after a commit.

        Raises:
            MissingBlockError: some are missing that this consumer has not committed.
        """
        for part in ranges:
            try:
                slice_ranges(self.stream, [part])
            except MissingBlockError:
                if not self._is_committed(part):
                    raise
                return False
        return True

    def find_damage(self, ranges: Iterable[OffsetRange], error: str) -> PenstockError | None:
        """Read the blocks of the ranges that an error's text names; return their damage."""
        return find_named_damage(self.stream, ranges, error)

    def commit(
        self,
        start: Offsets,
        end: Offsets,
        retained: Offsets | None = None,
        recent: RecentEnds | None = None,
    ) -> None:
        """Record that no batch needs records before ``end``; retire what no consumer needs.

        Args:
            start: the start of the batch that ends at ``end``.
            end: the consumer's committed offsets.
            retained: the offsets from which blocks are kept for reprocessing; None for ``end``.
            recent: the ends of recent batches, if ``retained`` follows from them.

        Raises:
            LogFormatError: a consumer's file is damaged.
            StorageError: a file could not be read, written or deleted; the next call continues.
        """
        # A writer leaves the offsets in the batch after its last one, so both maps count.
        writers = map(parse_writer, start.keys() | end.keys())
        self._retirer.commit(end, filter(None, writers), retained, recent)

    def _is_committed(self, part: OffsetRange) -> bool:
        committed = consumers(self.stream).get(self.consumer, {})
        writer = parse_writer(part.partition)
        finished = writer is not None and is_finished(writer, committed)
        return finished or committed.get(part.partition, 0) > part.start_offset


def lane_of(writer: str) -> tuple[str, int]:
    """Return the receiver of a writer and its epoch: epochs are read one after the other."""
    parsed = parse_writer(writer)
    return (writer, 0) if parsed is None else (parsed.receiver, parsed.epoch)
