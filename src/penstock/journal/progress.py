"""How far a stream's writers have come, as a driver follows it from batch to batch.

Looks only where something can have changed: sealed writers are final, and of an open writer only a
newest block that was not seen before has its footer read. So a look costs what is new, not what is
old.
"""

from __future__ import annotations

from penstock.journal.layout import WriterId
from penstock.journal.offsets import WriterEnd, is_finished
from penstock.journal.stream import JournalStream
from penstock.model import Offsets

__all__ = ["StreamProgress"]


class StreamProgress:
    """Follows one stream. Not thread-safe."""

    def __init__(self, stream: JournalStream) -> None:
        self._stream = stream
        self._ends: dict[WriterId, WriterEnd] = {}
        self._newest_start: dict[WriterId, int] = {}

    def ends(self, committed: Offsets) -> dict[WriterId, WriterEnd]:
        """Return the durable end of every writer that ``committed`` does not know to be finished."""
        writers = [w for w in self._stream.writers() if not is_finished(w, committed)]
        ends = {w: self._look(w) for w in writers}
        self._ends = ends
        return dict(ends)

    def _look(self, writer: WriterId) -> WriterEnd:
        known = self._ends.get(writer, WriterEnd(0, sealed=False))
        if known.sealed:
            return known
        blocks = self._stream.blocks(writer)
        if not blocks or blocks[-1].start_offset == self._newest_start.get(writer):
            return known
        newest = self._stream.footer(writer, blocks[-1].start_offset)
        self._newest_start[writer] = newest.start_offset
        return WriterEnd(newest.end_offset, newest.sealed)
