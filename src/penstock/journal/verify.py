"""Verify a stream: every byte of every block, and that no block is missing between two others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import (
    DamagedBlockError,
    JournalError,
    MissingBlockError,
    NotFoundError,
    StorageError,
)
from penstock.journal.block import BlockFooter, read_block
from penstock.journal.layout import WriterId, block_path
from penstock.journal.stream import BlockEntry, JournalStream

__all__ = ["Verdict", "verify_stream"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification found of one block: its footer, or the error that names the damage."""

    writer: WriterId
    block: BlockEntry
    next_start: int | None
    """Where the next block starts, so where this one should end; None for the newest."""
    footer: BlockFooter | None
    error: JournalError | StorageError | None


def verify_stream(stream: JournalStream) -> Iterator[Verdict]:
    """Yield a verdict for each block of the stream, by writer and offset. Reads every byte.

    Can run while the stream is written and retired: blocks that are retired meanwhile are left out.
    """
    for writer in stream.writers():
        blocks = stream.blocks(writer)
        starts = [block.start_offset for block in blocks]
        for block, next_start in itertools.zip_longest(blocks, starts[1:]):
            try:
                footer = _verify(stream, writer, block, next_start)
                yield Verdict(writer, block, next_start, footer, None)
            except NotFoundError as e:
                if not _is_retired(stream, writer, block):
                    yield Verdict(writer, block, next_start, None, e)
            except (JournalError, StorageError) as e:
                yield Verdict(writer, block, next_start, None, e)


def _verify(
    stream: JournalStream, writer: WriterId, block: BlockEntry, next_start: int | None
) -> BlockFooter:
    path = block_path(stream.name, writer, block.start_offset)
    uri = stream.storage.uri(path)
    footer, parquet = read_block(stream.storage.read(path), uri)
    if parquet.schema_arrow.remove_metadata() != stream.format.stored:
        raise DamagedBlockError(
            f"block has columns ({', '.join(map(str, parquet.schema_arrow))}), not the stream's",
            operation="verify block",
            path=uri,
            hint="it was copied here from another stream: restore the right one",
        )
    end = footer.end_offset if next_start is None else next_start
    if (
        footer.start_offset != block.start_offset
        or footer.end_offset > end
        or (footer.sealed and next_start is not None)
    ):
        raise DamagedBlockError(
            f"block {'seals at' if footer.sealed else 'holds'} [{footer.start_offset}, "
            f"{footer.end_offset}), which does not fit its name and the names after it",
            operation="verify block",
            path=uri,
            hint="blocks were renamed or copied by hand: restore the journal from a copy",
        )
    if footer.end_offset < end:
        raise MissingBlockError(
            f"records [{footer.end_offset}, {end}) are missing: no block after this one holds them",
            operation="verify block",
            path=uri,
            ids={"stream": stream.name, "writer": str(writer)},
            hint=f"restore {footer.end_offset:020d}.parquet, and what follows it, from a copy",
        )
    return footer


def _is_retired(stream: JournalStream, writer: WriterId, block: BlockEntry) -> bool:
    """Whether a block that is gone was retired: retention takes the oldest first."""
    left = stream.blocks(writer)
    return bool(left) and block.start_offset < left[0].start_offset
