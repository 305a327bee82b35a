"""The ends of a stream's writers, as a driver follows them from batch to batch.

Lists only folders that can have changed: sealed writers are final, and for an open writer only the
footer of a new newest block is read. So the cost of a scan depends on new data only: one listing of
the stream, one of each open writer, one footer for each writer that published, and one listing of
the losses if there are any.
"""

from __future__ import annotations

from penstock.journal.block import BlockFooter
from penstock.journal.layout import WriterId
from penstock.journal.losses.loss_log import (
    LOSSES_FOLDER,
    Lost,
    end_after_losses,
    lost_ranges,
)
from penstock.journal.offsets import WriterEnd, is_finished
from penstock.journal.scan import StreamScan
from penstock.journal.stream import JournalStream, WriterScan
from penstock.model import Offsets


class StreamProgress:
    """Follows one stream. Not thread-safe."""

    def __init__(self, stream: JournalStream) -> None:
        self._stream = stream
        self.scan: StreamScan | None = None
        """The scan of the last call of ``ends``; None before the first one."""

    def ends(self, committed: Offsets) -> dict[WriterId, WriterEnd]:
        """Return the durable end of every writer that is not finished according to ``committed``.

        Raises:
            StorageError: the journal cannot be read.
            DamagedBlockError: a writer's newest block is damaged, so its end is unknown.
        """
        folders = self._stream.folders()
        writers = [w for w in self._stream.writers(folders) if not is_finished(w, committed)]
        scans = {str(writer): self._scan(writer) for writer in writers}
        rests_on_loss = any(found.is_skipped for found in scans.values())
        has_losses = LOSSES_FOLDER in folders or rests_on_loss
        lost = lost_ranges(self._stream.storage, self._stream.name) if has_losses else {}
        self.scan = StreamScan(scans, lost)
        return {writer: _end(writer, scans[str(writer)].newest, lost) for writer in writers}

    def _scan(self, writer: WriterId) -> WriterScan:
        seen = self.scan.writers.get(str(writer)) if self.scan else None
        is_final = seen is not None and seen.newest is not None and seen.newest.sealed
        return seen if seen and is_final else self._stream.scan_writer(writer, seen)


def _end(writer: WriterId, footer: BlockFooter | None, lost: Lost) -> WriterEnd:
    """Return a writer's end; records missing after its last block may have been skipped."""
    end = end_after_losses(str(writer), footer.end_offset if footer else 0, lost)
    return WriterEnd(end, footer is not None and footer.sealed)
