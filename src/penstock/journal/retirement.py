"""Retirement from batch to batch: looks only at writers for which the consumers have moved on.

A slower consumer holds back writers that a driver left behind long ago. So a writer is looked at
until nobody needs it any more, and listed only when the slowest consumer has moved.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.journal.layout import WriterId
from penstock.journal.retention import consumers, floor_of, retire_writer
from penstock.journal.stream import JournalStream

__all__ = ["Retirement"]


class Retirement:
    """Retires the blocks of one stream, as one of its consumers goes on. Not thread-safe."""

    def __init__(self, stream: JournalStream) -> None:
        self._stream = stream
        self._floors: dict[WriterId, int | None] = {}
        """Writers that may still have blocks to retire: up to where that was done."""
        self._swept = False

    def run(self, writers: Iterable[WriterId]) -> None:
        """Delete the blocks that every consumer is past, of these writers and those held back.

        The first time all writers are looked at: an earlier run may have been killed before it
        could retire. Raises as ``retire`` does.
        """
        committed = consumers(self._stream)
        if not committed:
            return
        looked_at = {*self._floors, *(writers if self._swept else self._stream.writers())}
        for writer in sorted(looked_at):
            floor = floor_of(writer, committed)
            if writer not in self._floors or floor != self._floors[writer]:
                retire_writer(self._stream, writer, floor)
            if floor is None:
                self._floors.pop(writer, None)
            else:
                self._floors[writer] = floor
        self._swept = True
