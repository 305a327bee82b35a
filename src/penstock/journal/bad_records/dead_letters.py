"""Dead letters: records that a program's parser refused, kept until they are replayed.

The dead letters of stream ``clicks`` are the journal stream ``clicks-dead``, with one receiver,
``dead``. They are written in two steps, because tasks run more than once:

    task: parses a cell of records  ->  staged file, named after the cell and the refused offsets
    driver, or ``penstock journal replay``: ``collect``  ->  a block of the stream

Invariants:

1. A staged file is durable before its task ends, and so before its batch is committed.
2. A cell is a function of the batch's planned range alone (see ``parsing``). So a task that runs
   again, a speculative task, and a batch that runs again use the same names for their staged
   files, and find the names taken. Staged files of another program or parser have other names, so
   none hides another: each program that reads the stream leaves one dead letter for a record.
   ``replay`` stores the record only once.
3. A block's footer names the staged files that it holds, as its position. Before the next block is
   published these files are emptied, in place, by one atomic replacement each. So only the files
   that the newest block names can be in a block and not yet be empty.
4. Blocks are appended by their exclusive names, without a claim: if two processes collect at once,
   one of them finds the name taken and lists again. So any number of processes may collect.
5. An emptied file keeps its name for as long as its records can be read and parsed again, that is
   until the source's blocks are retired.

Layout and columns: docs/journal-format.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial

import pyarrow as pa

from penstock.errors import AlreadyExistsError, ConfigError, DamagedBlockError
from penstock.journal.block import BlockFooter, encode_block, read_block
from penstock.journal.layout import WriterId, block_path
from penstock.journal.schema import RecordFormat
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange, check_name
from penstock.storage import Entry, Storage

__all__ = [
    "DEAD_LETTER_FORMAT",
    "DeadLetter",
    "collect",
    "collect_letters",
    "create_dead_letters",
    "dead_letter_stream",
    "last_writer",
    "open_dead_letters",
    "source_stream",
    "stage_dead_letters",
    "staged_files",
    "uncollected",
]

_SUFFIX = "-dead"
_RECEIVER = "dead"
_STAGED = re.compile(r"(?P<writer>.+)\.[0-9]{20}-(?P<end>[0-9]{20})\.[0-9a-f]{16}\.parquet")
_MOST_STAGED = 256
_BLOCK_BYTES = 32 << 20

DEAD_LETTER_FORMAT = RecordFormat(
    pa.schema(
        [
            pa.field("raw", pa.binary(), nullable=False),
            pa.field("error_type", pa.string(), nullable=False),
            pa.field("error", pa.string(), nullable=False),
            pa.field("writer", pa.string(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("attempts", pa.int64(), nullable=False),
        ]
    )
)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused record; the columns of a dead-letter stream."""

    raw: bytes
    """The record as bytes; see penstock.journal.bad_records.raw_records."""
    error_type: str
    error: str
    writer: str
    """Where the record is in the source stream: its writer, and its offset there."""
    offset: int
    time: datetime
    """When it was refused, in UTC."""
    attempts: int
    """How often it was refused by now: 1, and one more after each replay."""


def dead_letter_stream(stream: str) -> str:
    """Return the name of the stream with the dead letters of a stream.

    Raises:
        ConfigError: the name would be too long.
    """
    return check_name("stream", f"{stream}{_SUFFIX}")


def source_stream(dead_letters: str) -> str:
    """Return the name of the stream that dead letters came from.

    Raises:
        ConfigError: it is not the name of a stream of dead letters.
    """
    source = dead_letters.removesuffix(_SUFFIX)
    if source in (dead_letters, ""):
        raise ConfigError(
            f"{dead_letters!r} is not a stream of dead letters",
            operation="name dead letters",
            hint=f"they are named after their source stream: STREAM{_SUFFIX}",
        )
    return source


def create_dead_letters(source: JournalStream) -> JournalStream:
    """Return the dead letters of a stream, made if they are not there yet.

    Raises:
        ConfigError: a stream of other records has their name.
    """
    name = dead_letter_stream(source.name)
    return JournalStream.create(source.storage, name, DEAD_LETTER_FORMAT)


def open_dead_letters(journal: Storage, name: str) -> JournalStream:
    """Return an existing stream of dead letters.

    Raises:
        ConfigError: the stream is none of dead letters.
        NotFoundError: there is no such stream.
    """
    source_stream(name)
    stream = JournalStream.open(journal, name)
    if stream.format != DEAD_LETTER_FORMAT:
        raise ConfigError(
            f"stream {name!r} holds records of {stream.format!r}, not dead letters",
            operation="open dead letters",
            path=journal.uri(name),
            ids={"stream": name},
            hint='parse(..., bad_records="dead_letter") creates such a stream',
        )
    return stream


def stage_dead_letters(
    dead: JournalStream, cell: OffsetRange, letters: Sequence[DeadLetter], program: str = ""
) -> None:
    """Make a program's dead letters of a cell durable, unless they are already.

    ``program`` is its consumer's name.

    Raises:
        StorageError: they could not be written; none is stored.
    """
    rows = dead.format.encode_many([asdict(letter) for letter in letters])
    block = encode_block(dead.format.encode([rows]), BlockFooter(0, len(letters)))
    try:
        dead.storage.create(f"{_folder(dead)}/{_staged_name(cell, letters, program)}", block)
    except AlreadyExistsError:
        return  # this cell was parsed before


def staged_files(dead: JournalStream) -> list[str]:
    """Return the names of the staged files with dead letters, including those in a block."""
    return [entry.name for entry in _staged_entries(dead) if entry.size]


def collect(source: JournalStream, dead: JournalStream) -> int:
    """Move staged dead letters into their stream; return their number.

    Costs one listing if nothing is staged. It can be interrupted, repeated and run concurrently.

    Raises:
        DamagedBlockError: a staged file, or the stream's newest block, is damaged.
        StorageError: a step failed; the call can be repeated.
    """
    return collect_letters(dead, partial(_oldest_held, source))


def collect_letters(dead: JournalStream, oldest: Callable[[str], int | None]) -> int:
    """Move staged dead letters into their stream; return their number. See ``collect``.

    Args:
        dead: the stream of the dead letters.
        oldest: returns the offset of a writer before which no record is parsed again, None if that
            is not known.
    """
    if not staged_files(dead):
        return 0
    collected = 0
    while group := _next_group(dead, (place := last_writer(dead))[1]):
        collected += _publish(dead, *place, group)
    _forget_retired(dead, oldest)
    return collected


def uncollected(dead: JournalStream) -> Iterator[pa.Table]:
    """Yield the staged dead letters that are not collected yet; changes nothing."""
    held = _held_staged(last_writer(dead)[1])
    for name in staged_files(dead):
        if name not in held and (table := _read(dead, name)) is not None:
            yield table


def last_writer(dead: JournalStream) -> tuple[WriterId, BlockFooter]:
    """Return the writer that takes the next block, and the block that it follows."""
    writers = [writer for writer in dead.writers() if writer.receiver == _RECEIVER]
    writer = max(writers, default=WriterId(_RECEIVER, 0))
    newest = dead.newest(writer) or BlockFooter(0, 0)
    if newest.sealed:
        return WriterId(_RECEIVER, writer.epoch + 1), BlockFooter(0, 0, newest.position)
    return writer, newest


def _next_group(dead: JournalStream, newest: BlockFooter) -> list[str]:
    """Empty the staged files of the newest block; return the files for the next block."""
    held = _held_staged(newest)
    group: list[str] = []
    size = 0
    # Listed after the newest block was read: files that are not empty then are in no block.
    for entry in _staged_entries(dead):
        if not entry.size:
            continue
        if entry.name in held:
            dead.storage.create(f"{_folder(dead)}/{entry.name}", b"", overwrite=True)
        elif not group or (len(group) < _MOST_STAGED and size + entry.size <= _BLOCK_BYTES):
            group.append(entry.name)
            size += entry.size
    return group


def _held_staged(newest: BlockFooter) -> set[str]:
    return set((newest.position or {}).get("findings", ()))


def _publish(dead: JournalStream, writer: WriterId, newest: BlockFooter, group: list[str]) -> int:
    """Append a block with the letters of the staged files; return their number.

    0 if another collector was faster: the caller lists again.
    """
    tables = {name: table for name in group if (table := _read(dead, name)) is not None}
    if not tables:
        return 0
    table = pa.concat_tables(tables.values()).combine_chunks()
    footer = BlockFooter(newest.end_offset, table.num_rows, {"findings": list(tables)})
    path = block_path(dead.name, writer, footer.start_offset)
    try:
        dead.storage.create(path, encode_block(table, footer, compression="lz4"))
    except AlreadyExistsError:
        return 0
    return footer.count


def _read(dead: JournalStream, name: str) -> pa.Table | None:
    """Return the letters of a staged file; None if another collector emptied it meanwhile."""
    path = f"{_folder(dead)}/{name}"
    data = dead.storage.read(path)
    if not data:
        return None
    try:
        _, parquet = read_block(data, dead.storage.uri(path))
    except DamagedBlockError as error:
        error.hint = "restore the file from a copy; deleting it discards its dead letters"
        raise
    return parquet.read().cast(dead.format.arrow)


def _oldest_held(source: JournalStream, writer: str) -> int | None:
    blocks = source.blocks(writer)
    return blocks[0].start_offset if blocks else None


def _forget_retired(dead: JournalStream, oldest: Callable[[str], int | None]) -> None:
    """Delete the emptied staged files of records that are not parsed again."""
    emptied = [
        (match, entry.name)
        for entry in _staged_entries(dead)
        if not entry.size and (match := _STAGED.fullmatch(entry.name))
    ]
    held = {writer: oldest(writer) for writer in {match["writer"] for match, _ in emptied}}
    for match, name in emptied:
        first = held[match["writer"]]
        if first is not None and first >= int(match["end"]):
            dead.storage.delete(f"{_folder(dead)}/{name}")


def _staged_entries(dead: JournalStream) -> Iterator[Entry]:
    return (e for e in dead.storage.list(_folder(dead)) if _STAGED.fullmatch(e.name))


def _staged_name(cell: OffsetRange, letters: Sequence[DeadLetter], program: str) -> str:
    what = ",".join([program, *(str(letter.offset) for letter in letters)])
    digest = hashlib.sha256(what.encode()).hexdigest()[:16]
    return f"{cell.partition}.{cell.start_offset:020d}-{cell.end_offset:020d}.{digest}.parquet"


def _folder(dead: JournalStream) -> str:
    return f"{dead.name}/findings"
