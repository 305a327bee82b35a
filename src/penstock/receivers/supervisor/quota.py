"""The supervisor's side of a receiver's bounds: refreshes at each poll, reports reached ones."""

from __future__ import annotations

import logging
import time

from penstock.errors import JournalFullError, PenstockError
from penstock.journal import JournalWriter, WriterQuota
from penstock.receivers.task import ReceiverTask

_log = logging.getLogger(__name__)
_QUIET_S = 60.0
_FULL_POLLS = 5
"""A consumer that keeps up commits within a few polls."""


class QuotaReport:
    """Keeps one writer within its bounds; decides what a full journal means. Not thread-safe."""

    def __init__(self, writer: JournalWriter, task: ReceiverTask) -> None:
        self._writer = writer
        self._quota = WriterQuota(writer, task.settings.bounds)
        self._fails = task.settings.when_full == "fail"
        self._full_polls = 0
        self._told_s = float("-inf")
        self.failure: JournalFullError | None = None
        """Why the receiver has to end, when it is to end rather than to wait."""

    def refresh(self) -> None:
        """Measure what is held; the limit before remains effective when that fails."""
        if self._writer.error is not None:
            return
        try:
            full = self._quota.refresh()
        except PenstockError as e:
            self._tell(
                "What is held cannot be measured, so no more is allowed than before: %s",
                e,
            )
            return
        if full is None:
            self._full_polls = 0
            return
        self._full_polls += 1
        if self._full_polls < _FULL_POLLS:
            return
        if self._fails:
            self.failure = full
            self._writer.set_blocking(False)
        else:
            self._tell("The source waits: %s", full)

    def _tell(self, message: str, error: PenstockError) -> None:
        if time.monotonic() - self._told_s > _QUIET_S:
            self._told_s = time.monotonic()
            _log.warning(message, error)
