"""Keeps a writer within what its receiver may hold: blocks that some consumer has not committed.

Each receiver has bounds of its own, and no two receivers share any.

Invariants:

1. What a receiver holds that is not committed, in all of its epochs, and what it has buffered,
   never exceeds its bounds. The earlier epochs are sealed before its writer opens, so what they
   hold only shrinks. What is held when a lower bound takes effect is kept, and nothing is added.
2. A block that all consumers have committed does not count, also while it is retained for
   reprocessing: otherwise a journal full of such blocks would wait for a batch that never comes,
   as no new record arrives. Without a consumer all blocks count.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.errors import JournalFullError
from penstock.journal.bounds.amounts import NOTHING, Amount, Bounds, is_within
from penstock.journal.layout import WriterId
from penstock.journal.retention.consumer_files import consumers
from penstock.journal.retention.retirement import floor_of
from penstock.journal.stream import BlockEntry, WriterScan
from penstock.journal.writer import JournalWriter
from penstock.model import Offsets


class WriterQuota:
    """Holds one writer to its receiver's bounds. Not thread-safe.

    Nothing may be stored through the writer before the first ``refresh``.
    """

    def __init__(self, writer: JournalWriter, bounds: Bounds) -> None:
        self._writer = writer
        self._stream = writer.stream
        self._bounds = bounds
        self._scans: dict[WriterId, WriterScan] = {}
        """The last scan of each epoch: the footer of a block that is still the newest is kept."""

    def refresh(self) -> JournalFullError | None:
        """Measure what is held, and let the writer store as much as it may.

        Returns:
            Why a store waits for a consumer, None when none does.

        Raises:
            StorageError, DamagedBlockError, LogFormatError: it cannot be told how much is held;
                the limit before remains effective.
        """
        if not self._bounds.is_set:
            return None
        used = self._writer.usage()  # before the listing: what comes between counts twice
        committed = list(consumers(self._stream).values())
        held = self._measure(committed)
        limit = self._bounds.amount
        before = held - used.published
        self._writer.allow(limit - before)
        if used.wanted is None or is_within(used.wanted + before, limit):
            return None
        return self._full(held, has_consumers=bool(committed))

    def _measure(self, committed: Collection[Offsets]) -> Amount:
        """Return what the receiver holds that is not committed, in all of its epochs."""
        held = NOTHING
        for writer in self._stream.writers():
            if writer.receiver != self._writer.id.receiver:
                continue
            if committed and floor_of(writer, committed) is None:
                continue  # finished for all consumers: its folder is not listed
            found = self._stream.scan_writer(writer, self._scans.get(writer))
            if found.newest is None:
                continue
            self._scans[writer] = found
            blocks = found.blocks[:-1] if found.newest.sealed else found.blocks
            held += uncommitted(writer, blocks, found.newest.end_offset, committed)
        return held

    def _full(self, held: Amount, *, has_consumers: bool) -> JournalFullError:
        bounds = self._bounds
        reached = [
            f"{count} of {bound} {what}"
            for what, count, bound in (
                ("bytes", held.size_bytes, bounds.max_bytes),
                ("records", held.records, bounds.max_lag_records),
            )
            if bound is not None
        ]
        return JournalFullError(
            "the journal has no room: the receiver holds "
            f"{' and '.join(reached)} that are not committed",
            operation="store",
            path=self._stream.storage.uri(self._stream.name),
            ids={"stream": self._stream.name, "writer": str(self._writer.id)},
            hint="see which consumer is behind with `penstock journal ls`; storing continues when "
            "it has committed"
            if has_consumers
            else "no consumer is registered: start a program that reads the stream; storing "
            "continues when it has committed",
        )


def uncommitted(
    writer: WriterId,
    blocks: Sequence[BlockEntry],
    end_offset: int,
    committed: Collection[Offsets],
) -> Amount:
    """Return what a writer's blocks hold that some consumer has not committed.

    Args:
        writer: the writer of the blocks.
        blocks: all of its blocks that exist, in order, without its seal.
        end_offset: the end of the last one.
        committed: the committed offsets of each consumer; without a consumer all blocks count.
    """
    floor = floor_of(writer, committed) if committed else 0
    if floor is None or not blocks:
        return NOTHING
    ends = [*(block.start_offset for block in blocks[1:]), end_offset]
    size = sum(block.size for block, end in zip(blocks, ends, strict=True) if end > floor)
    return Amount(size, max(0, end_offset - max(floor, blocks[0].start_offset)))
