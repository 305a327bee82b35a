"""Which RDD checkpoints a stateful stream has, and which of them a restart needs.

    the RDD of a batch is marked for a checkpoint -> its job (or else ``update``) has Spark write it
      -> made durable -> mark -> commits/N -> when later batches are committed: ``cleanup``

Invariants, whatever is killed where:

1. There is always a mark at or before every batch that is not committed, from which its state is
   made again: ``cleanup`` goes by the newest mark that committed batches have reached.
2. What is needed to go on from that mark (ranges in the offset log, journal blocks) is kept: inputs
   give free by ``restart_ms`` (penstock.streaming.look_back), which moves only when a newer mark is
   durable.
3. A mark found at a batch that runs again stands for what its cut-off run computed, from the same
   ranges; it is taken, and not written again.
4. Files go only when no running job can read them: jobs that started before a mark was made may
   still go back behind it.

Source: ``org.apache.spark.streaming.dstream.DStreamCheckpointData``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from pyspark import RDD

from penstock.checkpoint.rdd_marks import RddMark
from penstock.errors import RecoveryMismatchError, StorageError, StreamingError
from penstock.streaming.operators import Operator
from penstock.streaming.rdd_checkpoints import RddCheckpoints

__all__ = ["DStreamCheckpointData"]

_log = logging.getLogger(__name__)


class DStreamCheckpointData:
    """The RDD checkpoints of one stream. The graph's thread and jobs' threads may use it at once.

    Args:
        operator: whose state it is; it is found again by the operator's name.
        shape: what must be as it was for the state to go on.
    """

    def __init__(self, operator: Operator, shape: Mapping[str, int]) -> None:
        self._operator = operator
        self._shape = dict(shape)
        self._place: RddCheckpoints | None = None
        self._updating = threading.Lock()
        self._marks: dict[int, RddMark] = {}
        self._expected: dict[int, RDD[Any]] = {}  # marked for a checkpoint, without a mark yet
        self._settled_ms: dict[int, int] = {}  # newest batch planned when this run made the mark

    def open(self, place: RddCheckpoints) -> None:
        """Learn where the RDD checkpoints are."""
        self._place = place

    @property
    def currentCheckpointFiles(self) -> dict[int, str]:
        """The folder, below ``rdds``, of each RDD checkpoint that a restart may need, by time."""
        marks = sorted(dict(self._marks).items(), key=itemgetter(0))
        return {time_ms: mark.file for time_ms, mark in marks if mark.file is not None}

    def restore(
        self,
        done_ms: int,
        *,
        is_aligned: Callable[[int], bool],
        initial: Callable[[], RDD[Any] | None],
    ) -> tuple[int, dict[int, RDD[Any]]]:
        """Return where the state goes on from, and the RDDs known from there on, by time.

        Args:
            done_ms: batches up to that time are committed.
            is_aligned: whether the stream goes on from a time of the run before.
            initial: returns what an operator without state begins with.

        Raises:
            RecoveryMismatchError: the state is that of another kind of operator, or is later than
                what has to run.
            CheckpointError: marks or files are damaged.
        """
        self._marks = self._read_marks()
        if not all(self._fits(time_ms, mark, is_aligned) for time_ms, mark in self._marks.items()):
            self._drop_all()
        if not self._marks:
            return done_ms, self._begin(done_ms, initial())
        if min(self._marks) > done_ms:
            raise self._mismatch(
                f"batches up to {done_ms} ms are done, and its oldest state is of "
                f"{min(self._marks)} ms",
                "the offset log was taken back further than state is kept; start with a new "
                "checkpoint location",
            )
        restart_ms = self.restart_ms(done_ms, done_ms)
        restored = {}
        for time_ms, file in self.currentCheckpointFiles.items():
            if time_ms >= restart_ms:
                _log.info("Restoring checkpointed RDD for time %d ms from file '%s'", time_ms, file)
                restored[time_ms] = self._open_place().load(self._marks[time_ms])
        return restart_ms, restored

    def is_due(self, time_ms: int, zero_ms: int, interval_ms: int) -> bool:
        """Whether the RDD of that time is the first in an interval, counted from ``zero_ms``."""
        newest_ms = max([zero_ms, *self._marks, *self._expected])
        return (time_ms - zero_ms) // interval_ms > (newest_ms - zero_ms) // interval_ms

    def expect(self, time_ms: int, rdd: RDD[Any]) -> None:
        """Learn of an RDD that is marked for a checkpoint."""
        self._expected[time_ms] = rdd

    def update(self, time_ms: int, newest_planned_ms: Callable[[], int]) -> None:
        """Make durable what was marked for a checkpoint up to that time.

        Raises:
            StorageError: it cannot be made durable. The files are not used: the next RDD is
                written instead (a failed fsync must not be tried again).
        """
        with self._updating:
            due = sorted(t for t in list(self._expected) if t <= time_ms)
            for due_ms in due:
                rdd = self._expected.pop(due_ms)
                self._add(due_ms, rdd)
                self._settled_ms[due_ms] = newest_planned_ms()
        if due:
            files = "\n".join(self.currentCheckpointFiles.values())
            _log.debug("Current checkpoint files:\n%s", files)

    def restart_ms(self, needed_after_ms: int, done_ms: int) -> int:
        """Return the time of the mark from which RDDs after ``needed_after_ms`` can be made.

        It is the newest such mark that can replace those before it when batches up to ``done_ms``
        are committed.
        """
        settled = [t for t in list(self._marks) if self._settled_ms.get(t, t) <= done_ms]
        return max((t for t in settled if t <= needed_after_ms), default=min(self._marks))

    def cleanup(self, done_ms: int, needed_after_ms: int) -> None:
        """Delete the RDD checkpoints before the one that a restart goes on from."""
        restart_ms = self.restart_ms(needed_after_ms, done_ms)
        old = sorted(t for t in list(self._marks) if t < restart_ms)
        if not old:
            _log.debug("Nothing to delete")
            return
        files = (self._marks[t].file for t in old)
        _log.debug("Files to delete:\n%s", ", ".join(file for file in files if file is not None))
        for time_ms in old:
            self._delete(time_ms)

    # -- inside --

    def _open_place(self) -> RddCheckpoints:
        if self._place is None:
            raise StreamingError(
                "the stream has no place for RDD checkpoints before the context starts",
                operation="open RDD checkpoints",
                ids={"operator": self._operator.name},
                hint="call start() first",
            )
        return self._place

    def _read_marks(self) -> dict[int, RddMark]:
        marks, name = self._open_place().marks, self._operator.name
        found = {time_ms: marks.get(name, time_ms) for time_ms in marks.times_ms(name)}
        kinds = {mark.kind for mark in found.values()} - {self._operator.kind}
        if kinds:
            raise self._mismatch(
                f"its state was made by {', '.join(sorted(kinds))}",
                "give the operator a name of its own (name=), or a new checkpoint location",
            )
        return found

    def _fits(self, time_ms: int, mark: RddMark, is_aligned: Callable[[int], bool]) -> bool:
        return mark.shape == self._shape and (mark.file is None or is_aligned(time_ms))

    def _begin(self, time_ms: int, initial: RDD[Any] | None) -> dict[int, RDD[Any]]:
        if initial is None:
            self._note(time_ms, RddMark(self._operator.kind, self._shape))
            return {}
        initial.checkpoint()
        self._add(time_ms, initial)
        return {time_ms: initial}

    def _add(self, time_ms: int, rdd: RDD[Any]) -> None:
        self._note(time_ms, self._open_place().write(rdd, self._operator.kind, self._shape))

    def _note(self, time_ms: int, mark: RddMark) -> None:
        self._open_place().marks.add(self._operator.name, time_ms, mark)
        self._marks[time_ms] = mark

    def _drop_all(self) -> None:
        _log.warning(
            "The windows or the batch interval of operator %s changed: its windows begin anew",
            self._operator.name,
        )
        for time_ms in sorted(self._marks):
            self._open_place().marks.delete(self._operator.name, time_ms)
        self._marks = {}

    def _delete(self, time_ms: int) -> None:
        file, place = self._marks[time_ms].file, self._open_place()
        try:
            place.marks.delete(self._operator.name, time_ms)
            del self._marks[time_ms]
            self._settled_ms.pop(time_ms, None)
            if file is None or file in self.currentCheckpointFiles.values():
                return
            place.delete(file)
        except StorageError:
            _log.warning(
                "Error deleting old checkpoint file '%s' for time %d ms",
                file,
                time_ms,
                exc_info=True,
            )
        else:
            _log.info("Deleted checkpoint file '%s' for time %d ms", file, time_ms)

    def _mismatch(self, what: str, hint: str) -> RecoveryMismatchError:
        name = self._operator.name
        return RecoveryMismatchError(
            f"the state of operator {name!r} does not fit: {what}",
            operation="recover state",
            ids={"operator": name, "kind": self._operator.kind},
            hint=hint,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # A graph checkpoint holds what the stream is; its state is found by the operator's name.
        return (DStreamCheckpointData, (self._operator, self._shape))
