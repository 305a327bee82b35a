"""How much the receivers of a stream hold in the journal, by listing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from penstock.errors import LogFormatError
from penstock.journal.block import BlockFooter
from penstock.journal.bounds.amounts import NOTHING, Amount
from penstock.journal.layout import WriterId
from penstock.journal.retention.consumer_files import (
    consumers,
    read_consumers,
    swept_epochs,
)
from penstock.journal.retention.retirement import floor_of
from penstock.journal.stream import BlockEntry, JournalStream
from penstock.model import Offsets

__all__ = ["StreamUsage"]


class StreamUsage:
    """Measures one stream again and again; finished epochs are read once. Not thread-safe."""

    def __init__(self, stream: JournalStream, *, count_records: bool) -> None:
        self._stream = stream
        self._count_records = count_records
        self._newest: dict[WriterId, BlockFooter] = {}
        self._empty: set[WriterId] = set()  # sealed, and nothing but the seal is left
        self._swept: Mapping[str, int] | None = None

    def measure(self, receivers: Collection[str]) -> dict[str, Amount]:
        """Return what each of these receivers holds, in all of its epochs.

        Raises:
            StorageError, DamagedBlockError, LogFormatError: it cannot be told.
        """
        committed = consumers(self._stream) if self._count_records else {}
        if self._swept is None:
            self._swept = self._read_swept()
        held = dict.fromkeys(receivers, NOTHING)
        for writer in self._stream.writers():
            is_swept = writer.epoch < self._swept.get(writer.receiver, 0)
            if writer.receiver in held and not is_swept and writer not in self._empty:
                held[writer.receiver] += self._measure(writer, committed)
        return held

    def _read_swept(self) -> Mapping[str, int]:
        """Return what consumers know of epochs that hold nothing, so that none of them is read."""
        with suppress(LogFormatError):
            return swept_epochs(read_consumers(self._stream))
        return {}

    def _measure(self, writer: WriterId, committed: Mapping[str, Offsets]) -> Amount:
        newest = self._stream.newest(writer, self._newest.get(writer))
        if newest is None:
            return NOTHING
        self._newest[writer] = newest
        blocks = self._stream.blocks(writer)
        if newest.sealed:
            blocks = blocks[:-1]  # seals stay for ever, so they are not part of a bound
            if not blocks:
                self._empty.add(writer)
        records = _uncommitted(writer, blocks, newest, committed) if self._count_records else 0
        return Amount(sum(block.size for block in blocks), records)


def _uncommitted(
    writer: WriterId,
    blocks: list[BlockEntry],
    newest: BlockFooter,
    committed: Mapping[str, Offsets],
) -> int:
    if not blocks:
        return 0
    first = blocks[0].start_offset
    floor = floor_of(writer, committed.values()) if committed else first
    return 0 if floor is None else max(0, newest.end_offset - max(floor, first))
