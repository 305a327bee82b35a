"""How far a stream's writers have come, as a driver follows it from batch to batch.

Looks only where something can have changed: sealed writers are final, and of an open writer only a
newest block that was not seen before has its footer read. So a look costs what is new, not what is
old.
"""

from __future__ import annotations

from penstock.journal.block import BlockFooter
from penstock.journal.layout import WriterId
from penstock.journal.losses.loss_log import Lost, end_after_losses, lost_ranges
from penstock.journal.offsets import WriterEnd, is_finished
from penstock.journal.stream import JournalStream
from penstock.model import Offsets

__all__ = ["StreamProgress"]


class StreamProgress:
    """Follows one stream. Not thread-safe."""

    def __init__(self, stream: JournalStream) -> None:
        self._stream = stream
        self._seen: dict[WriterId, BlockFooter] = {}
        """The newest block or seal of each writer that has one, as of the last look."""

    def ends(self, committed: Offsets) -> dict[WriterId, WriterEnd]:
        """Return the durable end of every writer that ``committed`` does not know to be finished.

        Raises:
            StorageError: the journal cannot be read.
            DamagedBlockError: a writer's newest block is damaged, so its end is unknown.
        """
        writers = [w for w in self._stream.writers() if not is_finished(w, committed)]
        newest = {writer: self._newest(writer) for writer in writers}
        self._seen = {writer: footer for writer, footer in newest.items() if footer}
        lost = lost_ranges(self._stream.storage, self._stream.name)
        return {writer: _end(writer, footer, lost) for writer, footer in newest.items()}

    def _newest(self, writer: WriterId) -> BlockFooter | None:
        seen = self._seen.get(writer)
        return seen if seen and seen.sealed else self._stream.newest(writer, seen)


def _end(writer: WriterId, footer: BlockFooter | None, lost: Lost) -> WriterEnd:
    """Return a writer's end; what is missing behind its last block may have been given up."""
    end = end_after_losses(str(writer), footer.end_offset if footer else 0, lost)
    return WriterEnd(end, footer is not None and footer.sealed)
