"""The message for a failed batch: the error, the records and the fix, on one line.

What Spark raises for an error in a task is the task's traceback inside the JVM's, some hundred
lines. Where the reason is the batch's own input, it is found and told first.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.errors import (
    BadRecordError,
    BatchFailedError,
    PenstockError,
    UnreadableRecordError,
)
from penstock.streaming.core.batch import Batch
from penstock.streaming.engine.root_cause import root_cause

__all__ = ["batch_failed", "reason_of"]

_UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE|java\.io\.FileNotFoundException|InvalidInputException"
    rf"|{BadRecordError.__module__}\.(?:Damaged|Missing|Newer)BlockError"
)
"""Of Spark's readers and of penstock's own: not what a user's function raises."""
_BAD_RECORD = re.compile(
    rf"^{BadRecordError.__module__}\.(?:(BadRecord)|UnreadableRecord)Error: (.+)$", re.MULTILINE
)
_RUNS_AGAIN = (
    "the batch stays uncommitted and runs again, with the same records, when the program is "
    "started again"
)


def reason_of(
    error: BaseException, find_damage: Callable[[str], PenstockError | None]
) -> BaseException:
    """Return what is behind an error of a job: a record, a block, or else the error itself.

    ``find_damage`` examines the files of the batch that a text names; it is called where a file
    could not be read.
    """
    text = str(error)
    reason: PenstockError | None = None
    if told := _BAD_RECORD.search(text):  # on one line: whatever is in the record is escaped
        reason = BadRecordError(told[2]) if told[1] else UnreadableRecordError(told[2])
    elif _UNREADABLE.search(text):
        reason = find_damage(text)
    if reason is None:
        return error
    reason.__cause__ = error
    return reason


def batch_failed(
    what: str, batch: Batch, reason: BaseException, operation: str = "run batch"
) -> BatchFailedError:
    """Return the error of a batch that failed for a reason; ``what`` begins its message.

    The message has the root cause, on one line; the whole trace is with the error's cause.
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
