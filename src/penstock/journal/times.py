"""Offsets by time: which blocks were published when.

Neither blocks nor their names hold a time, so it is the file's: when it was written. The unit is a
block. A journal that was copied has the times of the copy, unless the copy kept them.
"""

from __future__ import annotations

from penstock.errors import ConfigError
from penstock.journal.layout import parse_block_start, writer_folder
from penstock.journal.stream import JournalStream
from penstock.model import Offsets
from penstock.storage import FileInfo


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
