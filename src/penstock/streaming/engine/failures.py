"""The message for a failed batch: the error, the records and the fix, on one line.

For an error in a task Spark raises the task's traceback inside the JVM's, about a hundred lines. If
the batch's own input is the cause, the message begins with it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from penstock.errors import (
    BadRecordError,
    BatchFailedError,
    PenstockError,
    UnreadableRecordError,
)
from penstock.root_cause import raised_by_worker, root_cause
from penstock.streaming.core.batch import Batch

_log = logging.getLogger(__name__)

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
    if told := _BAD_RECORD.match(
        raised_by_worker(text)
    ):  # on one line: the content of the record is escaped
        reason = BadRecordError(told[2]) if told[1] else UnreadableRecordError(told[2])
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
