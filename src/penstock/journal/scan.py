"""The listings of a stream from one planning of a batch, kept for the batch's readers.

Each listing is a request to an object store. So the readers of a batch use the listings of
planning, and list only what is missing here.

Invariants, because a scan may be older than the journal:

1. A range is read from a scan only if the scan includes the range's end. Blocks never change, and
   those of a batch are kept until it is released. A reader checks each block against the scan, so a
   missing or shorter block is an error, as after a new listing.
2. Losses are listed after the blocks, so a scan has the losses that determine a writer's end.
   Records that are skipped later are left out from the next scan on; until then the batch fails.
3. Decisions to delete, seal, claim or skip always use a new listing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.journal.block import BlockFooter
from penstock.journal.losses.loss_log import Lost
from penstock.journal.stream import BlockEntry, WriterScan
from penstock.model import OffsetRange


@dataclass(frozen=True, slots=True)
class StreamScan:
    """The listed writers, by name, and the skipped records of the stream."""

    writers: Mapping[str, WriterScan]
    lost: Lost

    def blocks(self, wanted: OffsetRange) -> Sequence[BlockEntry] | None:
        """Return the listed blocks of a range's writer; None if they do not include its end."""
        found = self.writers.get(wanted.partition)
        if found is None or found.newest is None or found.newest.end_offset < wanted.end_offset:
            return None
        return found.blocks

    def footer(self, writer: str, block_start: int) -> BlockFooter | None:
        """Return a block's footer if it was read: that of its writer's newest block."""
        found = self.writers.get(writer)
        if found is None or found.newest is None or found.is_skipped:
            return None
        return found.newest if found.newest.start_offset == block_start else None
