"""From where on a writer's blocks are whole: a retirement that was cut off leaves holes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from penstock.errors import DamagedBlockError, NotFoundError
from penstock.journal.layout import WriterId
from penstock.journal.stream import BlockEntry, JournalStream


def first_whole(
    stream: JournalStream, writer: WriterId, blocks: Sequence[BlockEntry], gone: int | None
) -> int:
    """Return the oldest start of a block behind which no retired one is missing.

    Args:
        stream: has the writer.
        writer: whose blocks.
        blocks: those that are listed, at least one.
        gone: before which offset any may be missing (``retired_before``). The footers of the blocks
            there are read: few, if a consumer retires. Blocks missing later are damage, for the
            reader to find.
    """
    first = blocks[0].start_offset
    for block, following in itertools.pairwise(blocks):
        if gone is not None and following.start_offset > gone:
            break
        if _ends_early(stream, writer, block, following):
            first = following.start_offset
    return first


def _ends_early(
    stream: JournalStream, writer: WriterId, block: BlockEntry, following: BlockEntry
) -> bool:
    try:
        footer = stream.footer(writer, block.start_offset, block.size)
    except NotFoundError:  # deleted just now
        return True
    except DamagedBlockError:
        return False
    return footer.end_offset < following.start_offset
