"""The effect of an error on a running program, which continues or ends; and the error's report.

For an error in a task Spark raises the task's traceback inside the JVM's, about a hundred lines. A
failed batch is reported on one line: the error, the records and the fix. If the batch's own input
is the cause, the line begins with it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping

from penstock.checkpoint.query_runs import note_failure
from penstock.errors import (
    BadRecordError,
    BatchFailedError,
    ConcurrentDriverError,
    PenstockError,
    UnreadableRecordError,
)
from penstock.root_cause import raised_by_worker, root_cause
from penstock.storage import Storage
from penstock.streaming.core.batch import Batch

_log = logging.getLogger(__name__)
_GO_ON = (
    ". To continue after a failed batch, in a program without exactly-once outputs, set "
    "spark.penstock.onBatchFailure=continue"
)


class ProgramEnd:
    """Tells all parts of one program that it runs no more batches. Any thread may end it.

    Args:
        storage: the checkpoint location, in which the reason is noted for other processes.
        driver: the conf that identifies this process there.
        survives_batches: whether the program continues after a batch that failed.
        on_error: called with errors that the program survives.
        on_end: called with an error that ends the program; must stop the engine, in a separate
            thread, and return whether this is the first such error.
    """

    def __init__(
        self,
        storage: Storage,
        driver: Mapping[str, str],
        survives_batches: bool,
        on_error: Callable[[BaseException], None],
        on_end: Callable[[BaseException], bool],
    ) -> None:
        self._storage = storage
        self._driver = driver
        self._survives_batches = survives_batches
        self._on_error = on_error
        self._on_end = on_end
        self.halted = False
        """Whether no more batches are planned and no more jobs are started."""

    def halt(self) -> None:
        """Plan no more batches and start no more jobs; running jobs continue."""
        self.halted = True

    def batch_failed(self, error: BaseException) -> None:
        """End the program because of a failed batch, unless it continues after those."""
        if self._survives_batches:
            self._on_error(error)
        else:
            self.end(error, _GO_ON)

    def end(self, error: BaseException, way_on: str = "") -> None:
        """End the program because of an error: halt, and request a stop.

        It is logged, as not every program calls ``awaitTermination``, which raises it.
        """
        self.halt()
        if self._on_end(error):
            _log.error("The program stops, and runs no more batches: %s%s", error, way_on)
            if not isinstance(error, ConcurrentDriverError):  # another driver's location now
                found = error.__cause__ if isinstance(error, BatchFailedError) else error
                why = root_cause(found or error)
                batch_id = error.ids.get("batch") if isinstance(error, PenstockError) else None
                note_failure(self._storage, self._driver, batch_id, why)


_UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE|java\.io\.FileNotFoundException|InvalidInputException"
    rf"|{BadRecordError.__module__}\.(?:Damaged|Missing|Newer)BlockError"
)
"""Errors of Spark's and penstock's readers, not of a user's function."""
_BAD_RECORD = re.compile(
    rf"{BadRecordError.__module__}\.(?:(BadRecord)|UnreadableRecord)Error: (.+)"
)
_RUNS_AGAIN = (
    "start the program again when the cause is fixed: the batch is not committed, and runs again "
    "with the same records"
)


def reason_of(
    error: BaseException, find_damage: Callable[[str], PenstockError | None]
) -> BaseException:
    """Return the cause of a job's error: a record, a block, or otherwise the error itself.

    ``find_damage`` examines the files of the batch that a text names; it is called if a file could
    not be read.
    """
    text = str(error)
    reason: PenstockError | None = None
    # The message is one line: the content of the record is escaped.
    if bad := _BAD_RECORD.match(raised_by_worker(text)):
        reason = BadRecordError(bad[2]) if bad[1] else UnreadableRecordError(bad[2])
    elif _UNREADABLE.search(text):
        try:
            reason = find_damage(text)
        except Exception:
            # The input may be the user's, and the batch failed for the job's error, not for this.
            _log.exception("The input's files could not be examined after a batch failed")
    if reason is None:
        return error
    reason.__cause__ = error
    return reason


def batch_failed(
    what: str, batch: Batch, reason: BaseException, operation: str = "run batch"
) -> BatchFailedError:
    """Return the error of a batch that failed for a reason; ``what`` begins its message.

    The message has the root cause on one line; the error's cause has the whole trace.
    """
    if not isinstance(reason, PenstockError):
        what = f"{what}: {root_cause(reason)}"
    failure = BatchFailedError(what, operation=operation, ids={"batch": batch.id}, hint=_RUNS_AGAIN)
    failure.__cause__ = reason
    if isinstance(reason, PenstockError):
        failure.path = reason.path
        failure.ids |= reason.ids
        failure.hint = f"{reason.hint}; {_RUNS_AGAIN}" if reason.hint else _RUNS_AGAIN
    return failure
