"""Verify a stream: every byte of every block, and that no block is missing between two others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import DamagedBlockError, JournalError, StorageError
from penstock.journal.block import BlockFooter, read_block
from penstock.journal.layout import WriterId, block_path
from penstock.journal.slices import check_slice, slice_range
from penstock.journal.stream import BlockEntry, JournalStream
from penstock.model import OffsetRange

__all__ = ["Verdict", "verify_stream"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification found of one block: its footer, or the error that names the damage."""

    writer: WriterId
    block: BlockEntry
    footer: BlockFooter | None
    error: JournalError | StorageError | None


def verify_stream(stream: JournalStream) -> Iterator[Verdict]:
    """Yield a verdict for each block of the stream, by writer and offset. Reads every byte."""
    for writer in stream.writers():
        blocks = stream.blocks(writer)
        for block in blocks:
            yield _verify_block(stream, writer, blocks, block)


def _verify_block(
    stream: JournalStream, writer: WriterId, blocks: list[BlockEntry], block: BlockEntry
) -> Verdict:
    path = block_path(stream.name, writer, block.start_offset)
    try:
        footer, parquet = read_block(stream.storage.read(path), stream.storage.uri(path))
        if parquet.schema_arrow.remove_metadata() != stream.format.arrow:
            raise DamagedBlockError(
                f"block has columns {parquet.schema_arrow.names}, not the stream's",
                operation="verify block",
                path=stream.storage.uri(path),
                hint="it was copied here from another stream: move it away",
            )
        held = OffsetRange(str(writer), footer.start_offset, footer.end_offset)
        following = [b for b in blocks if b.start_offset >= block.start_offset]
        for part in slice_range(stream.name, following[:2], held):
            if part.block_start == block.start_offset:
                check_slice(part, footer)
    except (JournalError, StorageError) as e:
        return Verdict(writer, block, None, e)
    return Verdict(writer, block, footer, None)
