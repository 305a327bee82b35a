"""Parsing records in tasks: each to a value, and what becomes of those that a parser refuses.

A task parses its records cell by cell. A cell is some hundred records or more: it is parsed whole
before the first of its values is given on, so what was refused in it does not depend on how far the
values are read (``take`` stops early). Where cells begin depends on nothing but the batch's planned
range, so it is the same whenever, wherever and in however many tasks the range is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import chain, groupby
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import BadRecordError, UnreadableRecordError
from penstock.journal.bad_records.dead_letters import DeadLetter, DeadLetterFolder
from penstock.journal.bad_records.raw_records import to_raw
from penstock.journal.reader import slice_ranges
from penstock.journal.record_reader import numbered_pieces
from penstock.journal.scan import StreamScan
from penstock.journal.slices import BlockSlice, task_count
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange

_LEAST_CELL_RECORDS = 256
_MOST_CELLS = 64
"""Of one writer in one batch: the most files of dead letters."""
_EXCERPT_BYTES = 80
_ERROR_CHARS = 1000

Parser = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ParsePart:
    """Records of one writer that one task parses."""

    records: OffsetRange
    """Begins where a cell begins."""
    cell_records: int
    slices: tuple[BlockSlice, ...]

    def cell_of(self, offset: int) -> int:
        """Return the number of the cell, within this part, that has a record."""
        return (offset - self.records.start_offset) // self.cell_records

    def cell(self, number: int) -> OffsetRange:
        """Return the records of a cell."""
        start = self.records.start_offset + number * self.cell_records
        end = min(start + self.cell_records, self.records.end_offset)
        return OffsetRange(self.records.partition, start, end)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One record that the parser raised for, or that cannot be made a Python value."""

    offset: int
    error: Exception
    raw: bytes

    @property
    def error_type(self) -> str:
        """The error's class, with its module if it is not a built-in one."""
        kind = type(self.error)
        place = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        return f"{place}{kind.__qualname__}"

    @property
    def error_text(self) -> str:
        """What the error says, in valid text of bounded length."""
        try:
            text = str(self.error)
        except Exception as e:  # the error is the user's, too
            text = f"(its text is not available: {type(e).__name__})"
        return text[:_ERROR_CHARS].encode("utf-8", "backslashreplace").decode()

    @property
    def excerpt(self) -> str:
        """The begin of the record, with all but printable ASCII escaped."""
        more = f"... ({len(self.raw)} bytes)" if len(self.raw) > _EXCERPT_BYTES else ""
        return f"{self.raw[:_EXCERPT_BYTES]!r}{more}"

    def __str__(self) -> str:
        return f"{self.error_type}: {self.error_text.encode('unicode_escape').decode()}"


@dataclass(frozen=True, slots=True)
class Refusals:
    """How many records of a cell were refused, and the first of them in words."""

    count: int
    first: str


class Tally(Protocol):
    """Counts what was refused, by cell, so that a cell that is parsed again counts once."""

    def add(self, term: dict[OffsetRange, Refusals]) -> None:
        """Take the refusals of cells."""


class AddRefusals:
    """How a Spark accumulator that is a tally adds up; an AccumulatorParam, but for the import."""

    def zero(self, value: object) -> dict[OffsetRange, Refusals]:
        """Return what it begins with, in each task."""
        return {}

    def addInPlace(  # noqa: N802 (PySpark's name for it)
        self, found: dict[OffsetRange, Refusals], more: dict[OffsetRange, Refusals]
    ) -> dict[OffsetRange, Refusals]:
        """Add the refusals of more cells."""
        found.update(more)
        return found


OnRefused = Callable[[JournalStream, OffsetRange, Sequence[Refusal]], None]
"""Is called with the stream, a cell, and what was refused in it."""


class Fail:
    """Fails the task, and with it the batch."""

    def __call__(
        self, stream: JournalStream, cell: OffsetRange, refused: Sequence[Refusal]
    ) -> None:
        """Raise BadRecordError for the first record."""
        first = refused[0]
        raise BadRecordError(
            f"the parser refused {_describe(cell, first)}",
            operation="parse",
            ids={"stream": stream.name, "writer": cell.partition, "offset": first.offset},
            hint='fix the parser, or choose parse(..., bad_records="dead_letter") or "drop"',
        )


class Drop:
    """Leaves the records out, counted."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __call__(self, stream: object, cell: OffsetRange, refused: Sequence[Refusal]) -> None:
        """Count the records."""
        self._tally.add({cell: Refusals(len(refused), _describe(cell, refused[0]))})


class DeadLetters:
    """Leaves the records out, and makes them durable as dead letters of one program."""

    def __init__(self, dead: DeadLetterFolder, tally: Tally, program: str) -> None:
        self._dead = dead
        self._program = program
        self._count = Drop(tally)

    def __call__(self, stream: object, cell: OffsetRange, refused: Sequence[Refusal]) -> None:
        """Write the cell's dead letters; see DeadLetterFolder.store for what it raises."""
        now = datetime.now(timezone.utc)
        letters = [
            DeadLetter(
                raw=refusal.raw,
                error_type=refusal.error_type,
                error=refusal.error_text,
                writer=cell.partition,
                offset=refusal.offset,
                time=now,
            )
            for refusal in refused
        ]
        self._dead.store(cell, letters, self._program)
        self._count(stream, cell, refused)


class ParseRecords:
    """Task: parts of a stream's ranges to the values that a parser makes of their records."""

    def __init__(self, stream: JournalStream, parser: Parser, on_refused: OnRefused) -> None:
        self._stream = stream
        self._parser = parser
        self._on_refused = on_refused

    def __call__(self, tasks: Iterable[list[ParsePart]]) -> Iterator[Any]:
        """Return the values, in order; raises as ``read_slices`` and ``on_refused`` do."""
        parts = chain.from_iterable(tasks)
        return chain.from_iterable(chain.from_iterable(map(self._parse_part, parts)))

    def _parse_part(self, part: ParsePart) -> Iterator[list[Any]]:
        """Yield the values of each cell."""
        pieces = chain.from_iterable(numbered_pieces(self._stream, each) for each in part.slices)
        batches = _cut_at_cells(part, pieces)
        for number, group in groupby(batches, lambda numbered: part.cell_of(numbered[0])):
            values: list[Any] = []
            refused: list[Refusal] = []
            for offset, batch in group:
                self._parse_batch(offset, batch, values, refused)
            if refused:
                self._on_refused(self._stream, part.cell(number), refused)
            yield values

    def _parse_batch(
        self, offset: int, batch: pa.RecordBatch, values: list[Any], refused: list[Refusal]
    ) -> None:
        parse, keep = self._parser, values.append
        record_format = self._stream.format
        try:
            records = record_format.to_python(batch)
        except UnreadableRecordError as error:
            if batch.num_rows == 1:
                del error.ids["row"]
                refused.append(Refusal(offset, error, to_raw(record_format, batch, 0)))
            else:  # only what is bad by itself is bad
                for row in range(batch.num_rows):
                    self._parse_batch(offset + row, batch.slice(row, 1), values, refused)
            return
        for row, record in enumerate(records):
            try:
                keep(parse(record))
            except MemoryError:
                raise  # it says nothing of the record
            except Exception as error:
                refused.append(Refusal(offset + row, error, to_raw(record_format, batch, row)))


def parse_tasks(
    stream: JournalStream,
    ranges: Iterable[OffsetRange],
    slots: int,
    scan: StreamScan | None = None,
) -> list[list[ParsePart]]:
    """Share ranges out over tasks, where ``slots`` can run at once.

    ``scan`` spares requests for what is in it.

    Raises:
        MissingBlockError: the journal does not hold a range from its start on.
    """
    read = [(wanted, slice_ranges(stream, [wanted], scan)) for wanted in ranges]
    most = task_count(chain.from_iterable(slices for _, slices in read), slots)
    share = max(1, -(-sum(wanted.count for wanted, _ in read) // most))
    parts = chain.from_iterable(_parts(wanted, slices, share) for wanted, slices in read)
    tasks: list[list[ParsePart]] = []
    room = 0
    for part in parts:
        if room <= 0:
            tasks.append([])
            room = share
        tasks[-1].append(part)
        room -= part.records.count
    return tasks


def _parts(wanted: OffsetRange, slices: Sequence[BlockSlice], share: int) -> Iterator[ParsePart]:
    """Cut a planned range into parts of whole cells, of about ``share`` records."""
    cell_records = max(_LEAST_CELL_RECORDS, -(-wanted.count // _MOST_CELLS))
    step = -(-share // cell_records) * cell_records
    for start in range(wanted.start_offset, wanted.end_offset, step):
        part = replace(wanted, start_offset=start, end_offset=min(start + step, wanted.end_offset))
        inside = tuple(_inside(slices, part))
        if inside:
            yield ParsePart(part, cell_records, inside)


def _inside(slices: Iterable[BlockSlice], part: OffsetRange) -> Iterator[BlockSlice]:
    for whole in slices:
        start = max(whole.start_offset, part.start_offset)
        end = min(whole.end_offset, part.end_offset)
        if start < end:
            yield replace(whole, start_offset=start, end_offset=end)


def _cut_at_cells(
    part: ParsePart, batches: Iterable[tuple[int, pa.RecordBatch]]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut numbered batches so that each lies within one cell."""
    for offset, batch in batches:
        at = offset
        while at < offset + batch.num_rows:
            end = min(part.cell(part.cell_of(at)).end_offset, offset + batch.num_rows)
            yield at, batch.slice(at - offset, end - at)
            at = end


def _describe(cell: OffsetRange, refusal: Refusal) -> str:
    return (
        f"record {refusal.offset} of writer {cell.partition}: {refusal}; "
        f"it begins with {refusal.excerpt}"
    )
