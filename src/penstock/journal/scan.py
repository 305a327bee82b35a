"""What one planning of a batch saw of a stream: kept for the batch's readers.

Each listing is a request of an object store. So the readers of a batch take from here what planning
has listed, and list only what is not in it.

Invariants, as a scan may be older than the journal:

1. A range is read from a scan only if that reaches the range's end. Blocks never change, and those
   of a batch stay until it is released. A reader checks each block against what the scan promised,
   so one that is gone, or holds less, is an error as it is after a fresh listing.
2. Losses are listed after the blocks: what a writer's end rests on is in the same scan. What is
   given up after that is left out from the next scan on; until then the batch fails at it.
3. Whoever decides what is deleted, sealed, claimed or given up lists afresh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.journal.block import BlockFooter
from penstock.journal.losses.loss_log import Lost
from penstock.journal.stream import BlockEntry, WriterScan
from penstock.model import OffsetRange

__all__ = ["StreamScan"]


@dataclass(frozen=True, slots=True)
class StreamScan:
    """The writers that were listed, by name, and what is given up of the stream."""

    writers: Mapping[str, WriterScan]
    lost: Lost

    def blocks(self, wanted: OffsetRange) -> Sequence[BlockEntry] | None:
        """Return the listed blocks of a range's writer; None when they do not reach its end."""
        found = self.writers.get(wanted.partition)
        if found is None or found.newest is None or found.newest.end_offset < wanted.end_offset:
            return None
        return found.blocks

    def footer(self, writer: str, block_start: int) -> BlockFooter | None:
        """Return a block's footer if it was read: the newest one's of its writer."""
        found = self.writers.get(writer)
        if found is None or found.newest is None or found.is_given_up:
            return None
        return found.newest if found.newest.start_offset == block_start else None
