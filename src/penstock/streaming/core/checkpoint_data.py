"""The RDD checkpoints of a stream on which the program called ``checkpoint``.

    the RDD of a batch is marked for a checkpoint -> a job has Spark write it -> made durable
      -> mark -> commits/N -> when nothing needs it any more: ``cleanup``

Invariants, which hold at any kill:

1. A restart uses an RDD checkpoint only if it has a mark, which is written when its files are
   durable.
2. Its files are deleted when neither a running job nor a later batch can depend on them. So only an
   RDD that belongs to the stream (``BaseDStream``) is written, which nothing else holds.
3. Nothing is deleted before this run has fenced all earlier ones (``RddCheckpoints``). A failed
   deletion is retried with the next one.

A stream without state can be recomputed from its ranges, so it does not depend on its marks; a
stream with state does (penstock.streaming.state.state_checkpoint_data).

Source: ``org.apache.spark.streaming.dstream.DStreamCheckpointData``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from pyspark import RDD

from penstock.checkpoint.rdd_marks import RddMark
from penstock.clock import iso_time
from penstock.errors import CheckpointError, StreamingError
from penstock.streaming.core.operators import Operator
from penstock.streaming.core.rdd_checkpoints import RddCheckpoints

_log = logging.getLogger(__name__)


class DStreamCheckpointData:
    """The RDD checkpoints of one stream. The graph's thread and jobs' threads may use it at once.

    Args:
        operator: the owner of the RDDs; they are found again by the operator's name.
        shape: the parameters that must not change for them to be used again.
    """

    must_write = False
    """Whether an RDD that is due is written even if no job of its batch computed it."""

    def __init__(self, operator: Operator, shape: Mapping[str, int]) -> None:
        self._operator = operator
        self._shape = dict(shape)
        self._place: RddCheckpoints | None = None
        self._updating = threading.Lock()
        self._marks: dict[int, RddMark] = {}
        self._expected: dict[int, RDD[Any]] = {}  # marked for a checkpoint, without a mark yet
        self._old: dict[
            int, str | None
        ] = {}  # to be deleted: times, and files unless others use them

    @property
    def operator(self) -> Operator:
        """The owner of the RDDs."""
        return self._operator

    def open(self, place: RddCheckpoints) -> None:
        """Set the location of the RDD checkpoints."""
        self._place = place

    @property
    def currentCheckpointFiles(self) -> dict[int, str]:
        """The folder, below ``rdds``, of each RDD checkpoint that a restart may use, by time."""
        marks = sorted(dict(self._marks).items(), key=itemgetter(0))
        return {time_ms: mark.file for time_ms, mark in marks if mark.file is not None}

    def restore_all(self) -> dict[int, RDD[Any]]:
        """Return the RDDs of an earlier run, by time; damaged ones are left out."""
        place, name = self._open_place(), self._operator.name
        restored = {}
        for time_ms in place.marks.times_ms(name):
            try:
                self._marks[time_ms] = place.marks.get(name, time_ms)
                restored[time_ms] = self._load(time_ms)
            except CheckpointError:
                self._marks.pop(time_ms, None)
                self._old[time_ms] = None
                _log.warning(
                    "The RDD checkpoint of %s is not used: its RDD is computed again",
                    iso_time(time_ms),
                    exc_info=True,
                )
        return restored

    def is_due(self, time_ms: int, zero_ms: int, interval_ms: int) -> bool:
        """Whether the RDD of that time is the first in an interval, counted from ``zero_ms``."""
        newest_ms = max([zero_ms, *self._marks, *self._expected])
        return (time_ms - zero_ms) // interval_ms > (newest_ms - zero_ms) // interval_ms

    def expect(self, time_ms: int, rdd: RDD[Any]) -> None:
        """Record an RDD that is marked for a checkpoint."""
        self._expected[time_ms] = rdd

    def update(self, time_ms: int, newest_planned_ms: Callable[[], int]) -> None:
        """Make the RDDs durable that were marked for a checkpoint up to that time.

        Raises:
            StorageError: it cannot be made durable. The files are not used: the next RDD is written
                instead (a failed fsync must not be retried).
        """
        with self._updating:
            waiting = sorted(dict(self._expected).items(), key=itemgetter(0))
            due = [(t, rdd) for t, rdd in waiting if t <= time_ms and self._is_written(rdd)]
            for due_ms, rdd in due:
                del self._expected[due_ms]
                self._add(due_ms, rdd)
                self._settle(due_ms, newest_planned_ms)
        if due:
            files = "\n".join(self.currentCheckpointFiles.values())
            _log.debug("Current checkpoint files:\n%s", files)

    def cleanup_until(self, until_ms: int) -> None:
        """Delete the RDD checkpoints up to that time."""
        with self._updating:
            for time_ms in [t for t in list(self._expected) if t <= until_ms]:
                rdd = self._expected.pop(time_ms)  # no job of a committed batch computed it
                if rdd.isCheckpointed():
                    self._old[time_ms] = self._open_place().file_of(rdd)
        self._discard(t for t in list(self._marks) if t <= until_ms)

    # -- for kinds of checkpoint data --

    def _is_written(self, rdd: RDD[Any]) -> bool:
        return self.must_write or bool(rdd.isCheckpointed())

    def _settle(self, time_ms: int, newest_planned_ms: Callable[[], int]) -> None:
        """Record that the mark of that time is durable."""

    def _open_place(self) -> RddCheckpoints:
        if self._place is None:
            raise StreamingError(
                "the stream has no location for RDD checkpoints before the context starts",
                operation="open RDD checkpoints",
                ids={"operator": self._operator.name},
                hint="call start() first",
            )
        return self._place

    def _load(self, time_ms: int) -> RDD[Any]:
        mark = self._marks[time_ms]
        _log.info("Restoring checkpointed RDD for time %d ms from file '%s'", time_ms, mark.file)
        return self._open_place().load(mark)

    def _add(self, time_ms: int, rdd: RDD[Any]) -> None:
        self._note(time_ms, self._open_place().write(rdd, self._operator.kind, self._shape))

    def _note(self, time_ms: int, mark: RddMark) -> None:
        if time_ms in self._old:  # of a program with other windows
            self._delete_mark(time_ms)
        self._open_place().marks.add(self._operator.name, time_ms, mark)
        self._marks[time_ms] = mark

    def _discard(self, times: Iterable[int]) -> None:
        """Drop the marks of those times, and retry failed deletions."""
        for time_ms in sorted(times):
            file = self._marks.pop(time_ms).file
            shared = file in self.currentCheckpointFiles.values()
            self._old[time_ms] = None if shared else file
        if not self._old:
            _log.debug("Nothing to delete")
        elif self._open_place().may_delete:
            files = [file for file in self._old.values() if file is not None]
            _log.debug("Files to delete:\n%s", ", ".join(files))
            for time_ms in sorted(self._old):
                self._delete(time_ms)

    def _delete(self, time_ms: int) -> None:
        file = self._old[time_ms]
        try:
            self._open_place().marks.delete(self._operator.name, time_ms)
            if file is not None:
                self._open_place().delete(file)
        except Exception:  # of either storage; retried the next time
            _log.warning(
                "Error deleting old checkpoint file '%s' for time %d ms",
                file,
                time_ms,
                exc_info=True,
            )
            return
        del self._old[time_ms]
        if file is not None:
            _log.info("Deleted checkpoint file '%s' for time %d ms", file, time_ms)

    def _delete_mark(self, time_ms: int) -> None:
        self._open_place().marks.delete(self._operator.name, time_ms)
        del self._old[time_ms]  # no mark names its files now: the next start deletes them

    def __reduce__(self) -> tuple[Any, ...]:
        # A graph checkpoint holds the stream only; its RDDs are found by the operator's name.
        return (type(self), (self._operator, self._shape))
