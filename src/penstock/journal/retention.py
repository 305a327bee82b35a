"""Consumers and retention: old blocks are retired when every registered consumer is past them.

Invariants:

1. A block goes only when every consumer has committed past its end.
2. The newest file of a writer never goes: an open writer's end, and a sealed writer's fence and
   position, are read from it. So a seal outlives any zombie.
3. No registered consumer, no retirement.

A crash between two deletes leaves blocks that the next call deletes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping

from penstock.errors import LogFormatError
from penstock.journal.layout import WriterId, block_path, consumer_path
from penstock.journal.offsets import is_finished
from penstock.journal.stream import JournalStream
from penstock.model import Offsets

__all__ = [
    "commit_consumer",
    "consumers",
    "floor_of",
    "remove_consumer",
    "retire",
    "retire_writer",
]


def commit_consumer(stream: JournalStream, consumer: str, offsets: Offsets) -> None:
    """Record that a consumer is done with all records before ``offsets``; registers it, too."""
    data = json.dumps({"offsets": dict(offsets)}, separators=(",", ":")).encode()
    stream.storage.create(consumer_path(stream.name, consumer), data, overwrite=True)


def remove_consumer(stream: JournalStream, consumer: str) -> None:
    """Forget a consumer: it holds nothing back any more."""
    stream.storage.delete(consumer_path(stream.name, consumer))


def consumers(stream: JournalStream) -> dict[str, Offsets]:
    """Return every registered consumer's committed offsets.

    Raises:
        LogFormatError: a consumer's file is damaged; nothing may be retired until it is mended.
    """
    found: dict[str, Offsets] = {}
    for entry in stream.storage.list(f"{stream.name}/consumers"):
        name, dot, suffix = entry.name.rpartition(".")
        if not dot or suffix != "json":
            continue
        path = consumer_path(stream.name, name)
        try:
            offsets = json.loads(stream.storage.read(path))["offsets"]
            found[name] = {str(writer): int(end) for writer, end in offsets.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise LogFormatError(
                "a consumer's committed offsets cannot be read",
                operation="retire blocks",
                path=stream.storage.uri(path),
                ids={"stream": stream.name, "consumer": name},
                hint="restart the consumer, which writes the file anew, or delete the file if the "
                "consumer is gone for good",
            ) from e
    return found


def retire(stream: JournalStream, writers: Iterable[WriterId] | None = None) -> int:
    """Delete the blocks that every consumer is past; return how many were deleted.

    ``writers`` narrows it down; all of them by default. Whoever goes on from batch to batch uses
    penstock.journal.retirement, whose cost does not grow with the number of sealed writers.

    Raises:
        LogFormatError: a consumer's file is damaged.
        StorageError: a file could not be read or deleted; the call can be repeated.
    """
    committed = consumers(stream)
    if not committed:
        return 0
    chosen = stream.writers() if writers is None else writers
    return sum(retire_writer(stream, writer, floor_of(writer, committed)) for writer in chosen)


def retire_writer(stream: JournalStream, writer: WriterId, floor: int | None) -> int:
    """Delete a writer's blocks up to ``floor``, None for all; return how many were deleted."""
    blocks = [block.start_offset for block in stream.blocks(writer)]
    retired = 0
    # A block ends where the next one starts; the newest one has no next and stays.
    for start, end in itertools.pairwise(blocks):
        if floor is not None and end > floor:
            break
        stream.storage.delete(block_path(stream.name, writer, start))
        retired += 1
    return retired


def floor_of(writer: WriterId, committed: Mapping[str, Offsets]) -> int | None:
    """Return the offset that all consumers are past; None when the writer is finished for all."""
    ends = [
        offsets.get(str(writer), 0)
        for offsets in committed.values()
        if not is_finished(writer, offsets)
    ]
    return min(ends, default=None)
