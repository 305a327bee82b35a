"""The supervisor's view of the journal's bounds: looks at each poll, tells of reached ones."""

from __future__ import annotations

import logging
import time

from penstock.errors import JournalFullError, PenstockError
from penstock.journal import JournalRoom, JournalWriter
from penstock.journal.retention.shortening import Shortened
from penstock.receivers.task import ReceiverSettings

__all__ = ["WriterRoom"]

_log = logging.getLogger(__name__)
_QUIET_S = 60.0
_SHORTENED_QUIET_S = 600.0
_FULL_LOOKS = 5
"""Other writers give back what they claimed and do not use within a few looks."""


class WriterRoom:
    """Keeps one writer within the bounds; decides what a full journal means. Not thread-safe."""

    def __init__(self, writer: JournalWriter, settings: ReceiverSettings) -> None:
        self._writer = writer
        self._room = JournalRoom(writer, settings.bounds)
        self._fails = settings.when_full == "fail"
        self._full_looks = 0
        self._told_s = float("-inf")
        self._told_shortened_s = float("-inf")
        self._told_shortened = Shortened()
        self.failure: JournalFullError | None = None
        """Why the receiver has to end, when it is to end rather than to wait."""

    def look(self) -> None:
        """Look at what is held; what was allowed before stays in force when that fails."""
        if self._writer.error is not None:
            return
        try:
            full = self._room.look()
        except PenstockError as e:
            self._tell("The room in the journal cannot be told, nothing more is allowed: %s", e)
            return
        self._tell_shortened()
        if full is None:
            self._full_looks = 0
            return
        self._full_looks += 1
        if self._full_looks < _FULL_LOOKS:
            return
        if self._fails:
            self.failure = full
            self._writer.set_blocking(False)
        else:
            self._tell("The source waits: %s", full)

    def leave(self) -> None:
        """Give the room back, after the writer was closed."""
        try:
            self._room.leave()
        except PenstockError as e:
            _log.warning("Nobody minds, as the writer is sealed: %s", e)

    def _tell_shortened(self) -> None:
        new = self._room.shortened.records > self._told_shortened.records
        if not new or time.monotonic() - self._told_shortened_s < _SHORTENED_QUIET_S:
            return
        now, before = self._room.shortened, self._told_shortened
        self._told_shortened_s, self._told_shortened = time.monotonic(), now
        _log.warning(
            "The reprocessing period of stream %s is shortened: the stream has reached its bound "
            "in bytes, and %d records (%d bytes) that all consumers have committed, and "
            "that a checkpoint location still retained, were deleted. The batches that took them "
            "cannot be processed again. To keep them, raise the bound, or retain fewer batches "
            "(spark.sql.streaming.minBatchesToRetain)",
            self._writer.stream.name,
            now.records - before.records,
            now.size_bytes - before.size_bytes,
        )

    def _tell(self, message: str, error: PenstockError) -> None:
        if time.monotonic() - self._told_s > _QUIET_S:
            self._told_s = time.monotonic()
            _log.warning(message, error)
