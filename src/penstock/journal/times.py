"""Offsets by time: which blocks were published when.

Neither blocks nor their names hold a time, so it is the file's: when it was written. The unit is a
block. A journal that was copied has the times of the copy, unless the copy kept them.
"""

from __future__ import annotations

from penstock.errors import ConfigError
from penstock.journal.layout import WriterId, parse_block_start, writer_folder
from penstock.journal.offsets import is_finished
from penstock.journal.stream import JournalStream
from penstock.model import Offsets
from penstock.storage import FileInfo

__all__ = ["first_written_ms", "offsets_at"]


def offsets_at(stream: JournalStream, time_ms: int, ends: Offsets) -> dict[str, int]:
    """Return the start of each writer's first block that was published at ``time_ms`` or later.

    Args:
        stream: the stream.
        time_ms: milliseconds since the epoch.
        ends: the writers' ends, which are taken where all blocks are older.

    Raises:
        ConfigError: the storage does not tell when files were written.
    """
    return {writer: min(_first(stream, writer, time_ms, end), end) for writer, end in ends.items()}


def first_written_ms(stream: JournalStream, writer: WriterId, taken: Offsets) -> int | None:
    """Return when a writer's first block with records after an offset map was published.

    None stands for no such block.

    Raises:
        ConfigError: the storage does not tell when files were written.
        DamagedBlockError: the writer's newest block is damaged.
        StorageError: the journal cannot be read.
    """
    newest = stream.newest(writer)
    first = taken.get(str(writer), 0)
    if newest is None or newest.end_offset <= first or is_finished(writer, taken):
        return None
    written = (
        (start, file)
        for file in stream.storage.walk(writer_folder(stream.name, writer))
        if (start := parse_block_start(file.path.rpartition("/")[2])) is not None
    )
    blocks = sorted(written)
    ends = [*(start for start, _ in blocks[1:]), newest.end_offset]
    found = (file for (_, file), end in zip(blocks, ends, strict=False) if end > first)
    block = next(found, None)
    return None if block is None else _written_ms(stream, block)


def _first(stream: JournalStream, writer: str, time_ms: int, end: int) -> int:
    for file in stream.storage.walk(writer_folder(stream.name, writer)):
        start = parse_block_start(file.path.rpartition("/")[2])
        if start is None:
            continue
        if _written_ms(stream, file) >= time_ms:
            return start
    return end


def _written_ms(stream: JournalStream, file: FileInfo) -> int:
    if file.modified_ms is None:
        raise ConfigError(
            "the storage does not tell when files were written",
            operation="find blocks by time",
            path=stream.storage.url,
            ids={"stream": stream.name},
            hint="name offsets, or a consumer, instead of a time",
        )
    return file.modified_ms
