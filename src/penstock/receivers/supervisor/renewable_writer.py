"""The journal's side of a supervisor: a writer that is replaced when it breaks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.errors import FencedError, JournalError, JournalFullError, PenstockError
from penstock.journal import JournalWriter, WriterQuota
from penstock.receivers.control import check_latest
from penstock.receivers.task import ReceiverTask

# -- the supervisor's side of a receiver's bounds: refreshes at each poll, reports reached ones --

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


_log = logging.getLogger(__name__)
_BLOCKED_STORE_S = 2.0
"""How long a store may still wait for the bounds once the receiver has to stop."""


class RenewableWriter:
    """One receiver's writer, and its quota. Used by the supervisor's thread.

    Args:
        task: which receiver, and how it writes.
        on_failure: see JournalWriter; of each writer.
    """

    current: JournalWriter
    """The writer to store through, from ``open`` on. Any thread may take it: a store through one
    that was replaced meanwhile fails, and is not acked."""

    def __init__(self, task: ReceiverTask, on_failure: Callable[[JournalError], None]) -> None:
        self._task = task
        self._on_failure = on_failure
        self._quota: QuotaReport
        self._is_open = False
        self._counted = (0, 0)  # of the writers before the current one

    @property
    def counts(self) -> tuple[int, int]:
        """The records that were stored through all writers, and those that are durable."""
        if not self._is_open:
            return 0, 0
        (stored, durable), before = self.current.counts, self._counted
        return before[0] + stored, before[1] + durable

    @property
    def publish_ms(self) -> float | None:
        """How long the newest block of the current writer took to become durable."""
        return self.current.publish_ms

    @property
    def full(self) -> JournalFullError | None:
        """Why the receiver has to end, if it must end instead of waiting for the bounds."""
        return self._quota.failure

    def open(self) -> None:
        """Open a writer, in place of the current one; that one stays when this fails.

        Raises:
            FencedError: a later run took the receiver over.
            PenstockError: what JournalWriter raises.
        """
        settings, stream = self._task.settings, self._task.stream
        writer = JournalWriter(
            stream if settings.sync else stream.without_sync(),
            self._task.name,
            policy=settings.commit,
            compression=settings.compression,
            bounds=settings.bounds,
            on_failure=self._on_failure,
        )
        try:
            # After the claim of the epoch, and before anything is stored: a later run claims the
            # receiver first and seals its epochs then, so one of the two sees the other.
            check_latest(stream, self._task.name, self._task.run)
        except BaseException:
            writer.abandon()
            raise
        self.current, self._quota = writer, QuotaReport(writer, self._task)
        self._is_open = True
        self._quota.refresh()

    def renew(self) -> None:
        """Replace the writer if it broke.

        Raises what ``open`` raises; the broken writer stays in place then.
        """
        if self.current.error is not None:
            self.current.abandon()
            counts = self.counts
            self.open()
            self._counted = counts

    def refresh(self) -> None:
        """Keep within the bounds; to be called at each poll."""
        self._quota.refresh()

    def flush(self) -> None:
        """Make stored records durable, as far as this writer still can.

        After this its position covers all stored records, so a restart misses nothing.

        Raises:
            FencedError: another attempt took over.
        """
        if isinstance(self.current.error, FencedError):
            raise self.current.error
        try:
            self.current.flush()
        except JournalError:
            _log.warning(
                "Receiver %s of stream %s restarts with a new writer",
                self._task.name,
                self._task.stream.name,
            )

    def set_blocking(self) -> None:
        """Let stores wait for the bounds, while the receiver receives."""
        self.current.set_blocking(True)

    @contextmanager
    def draining(self) -> Iterator[None]:
        """While the receiver stops, let no store wait for room longer than a little; none after it.

        Otherwise a waiting store would make its thread, and so ``onStop``, wait as well.
        """
        patience = threading.Timer(_BLOCKED_STORE_S, self.current.set_blocking, (False,))
        patience.daemon = True
        patience.start()
        try:
            yield
        finally:
            patience.cancel()
            self.current.set_blocking(False)

    def close(self) -> None:
        """Publish what is buffered, and seal.

        Raises what JournalWriter.close raises.
        """
        self.current.close()

    def abandon(self) -> None:
        """See JournalWriter.abandon."""
        self.current.abandon()
