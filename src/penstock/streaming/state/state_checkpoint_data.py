"""The RDD checkpoints of a stateful stream, and which of them a restart needs.

Invariants, in addition to those of penstock.streaming.core.checkpoint_data; they hold at any kill:

1. Every uncommitted batch has a mark at or before it, from which its state can be computed again:
   ``cleanup`` uses the newest mark that committed batches have reached.
2. The data needed to continue from that mark (ranges in the offset log, journal blocks) is kept:
   inputs release by ``restart_ms`` (penstock.streaming.core.rdd_retention), which moves only when a
   newer mark is durable.
3. If a batch that runs again has a mark already, its interrupted run computed that mark from the
   same ranges; the mark is used and not written again.
4. Files are deleted only when no running job can read them: jobs that started before a mark was
   written may still read older files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark import RDD

from penstock.checkpoint.rdd_marks import RddMark
from penstock.clock import iso_time
from penstock.errors import RecoveryMismatchError
from penstock.streaming.core.checkpoint_data import DStreamCheckpointData

_log = logging.getLogger(__name__)


class StateCheckpointData(DStreamCheckpointData):
    """The RDD checkpoints of one stateful stream."""

    must_write = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._settled_ms: dict[int, int] = {}  # newest batch planned when this run made the mark

    def restore(
        self,
        done_ms: int,
        planned_ms: int,
        *,
        is_aligned: Callable[[int], bool],
        initial: Callable[[], RDD[Any] | None],
    ) -> tuple[int, dict[int, RDD[Any]]]:
        """Return the time from which the state continues, and the known RDDs since then, by time.

        Args:
            done_ms: batches up to that time are committed.
            planned_ms: the offset log has batches up to that time.
            is_aligned: whether the stream can continue from a time of the previous run.
            initial: returns the initial state of an operator without state.

        Raises:
            RecoveryMismatchError: the state belongs to another kind of operator, or is newer than
                the batches that have to run.
            CheckpointError: marks or files are damaged.
        """
        found = self._read_marks()
        # Marks from before a change of the windows still exist if that run was killed early.
        outdated = (t for t, mark in found.items() if not self._fits(t, mark, is_aligned))
        changed_ms = max(outdated, default=-1)
        self._marks = {t: mark for t, mark in found.items() if t > changed_ms}
        self._old = {t: mark.file for t, mark in found.items() if t <= changed_ms}
        if not self._marks:
            self._warn_of_change()
            return done_ms, self._begin(done_ms, initial())
        if min(self._marks) > done_ms:
            raise self._mismatch(
                f"batches up to {iso_time(done_ms)} are done, and its oldest state is of "
                f"{iso_time(min(self._marks))}",
                "the offset log was set back further than state is kept; start with a new "
                "checkpoint location",
            )
        self._check_planned(max(planned_ms, done_ms, 0))
        restart_ms = self.restart_ms(done_ms, done_ms)
        restored = {}
        for time_ms in self.currentCheckpointFiles:
            if time_ms >= restart_ms:
                restored[time_ms] = self._load(time_ms)
        return restart_ms, restored

    def restart_ms(self, needed_after_ms: int, done_ms: int) -> int:
        """Return the time of the mark from which RDDs after ``needed_after_ms`` can be computed.

        It is the newest such mark that can replace earlier ones when batches up to ``done_ms`` are
        committed.
        """
        settled = [t for t in list(self._marks) if self._settled_ms.get(t, t) <= done_ms]
        return max((t for t in settled if t <= needed_after_ms), default=min(self._marks))

    def cleanup(self, done_ms: int, needed_after_ms: int) -> None:
        """Delete the RDD checkpoints before the one from which a restart continues."""
        restart_ms = self.restart_ms(needed_after_ms, done_ms)
        old = [t for t in list(self._marks) if t < restart_ms]
        self._discard(old)
        for time_ms in old:
            self._settled_ms.pop(time_ms, None)

    # -- inside --

    def _settle(self, time_ms: int, newest_planned_ms: Callable[[], int]) -> None:
        self._settled_ms[time_ms] = newest_planned_ms()

    def _read_marks(self) -> dict[int, RddMark]:
        marks, name = self._open_place().marks, self._operator.name
        found = {time_ms: marks.get(name, time_ms) for time_ms in marks.times_ms(name)}
        kinds = {mark.kind for mark in found.values()} - {self._operator.kind}
        if kinds:
            raise self._mismatch(
                f"its state belongs to {', '.join(sorted(kinds))}",
                "give the operator a different name (name=), or a new checkpoint location",
            )
        return found

    def _check_planned(self, planned_ms: int) -> None:
        """Refuse state that is later than ``planned_ms``, the newest batch in the offset log.

        Entries of the log may be deleted to go back to an earlier batch. Their records are read
        again then, in batches of later times, and state that has them already would count them
        twice.
        """
        marks, name = self._open_place().marks, self._operator.name
        ahead = {time_ms: marks.url(name, time_ms) for time_ms in self._marks}
        ahead = {time_ms: url for time_ms, url in ahead.items() if time_ms > planned_ms}
        if ahead:
            raise RecoveryMismatchError(
                f"the state of operator {name!r} is of {iso_time(max(ahead))}, and the newest "
                f"batch in the offset log is of {iso_time(planned_ms)}",
                operation="recover state",
                ids={"operator": name},
                hint="restore the entries that the offset log lacks; when they were deleted to go "
                f"back, delete the files of their state: {', '.join(ahead.values())}",
            )

    def _fits(self, time_ms: int, mark: RddMark, is_aligned: Callable[[int], bool]) -> bool:
        return mark.shape == self._shape and (mark.file is None or is_aligned(time_ms))

    def _begin(self, time_ms: int, initial: RDD[Any] | None) -> dict[int, RDD[Any]]:
        if initial is None:
            self._note(time_ms, RddMark(self._operator.kind, self._shape))
            return {}
        initial.checkpoint()
        self._add(time_ms, initial)
        return {time_ms: initial}

    def _warn_of_change(self) -> None:
        if self._old:
            _log.warning(
                "The windows or the batch interval of operator %s changed: its windows start anew",
                self._operator.name,
            )

    def _mismatch(self, what: str, hint: str) -> RecoveryMismatchError:
        name = self._operator.name
        return RecoveryMismatchError(
            f"the state of operator {name!r} does not match: {what}",
            operation="recover state",
            ids={"operator": name, "kind": self._operator.kind},
            hint=hint,
        )
