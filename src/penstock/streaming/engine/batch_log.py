"""Batches on the checkpoint location: planned in ``offsets/N``, done in ``commits/N``.

The checkpoint location defines the allowed steps of a batch (penstock.checkpoint.batch_life). This
module expresses them in terms of batches: their ranges of each input, and their times.

Each entry's conf holds the program's zero time, from which windows slide, so that they continue to
slide after a restart, and the names of its inputs and stateful operators (penstock.streaming
.recovery_match), by which a changed program finds its own.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from penstock.checkpoint import CheckpointLocation, OffsetSeq, RecoveryPlan
from penstock.errors import CheckpointError, LogGapError, StorageError
from penstock.streaming.core.batch import Batch, SourceOffset, SourceRange
from penstock.streaming.core.operators import Operator
from penstock.streaming.recovery.match import (
    check_operators,
    describe_program,
    places_of_inputs,
    recorded_inputs,
)

__all__ = ["BatchLog"]

_log = logging.getLogger(__name__)
_ZERO_TIME = "spark.penstock.zeroTimeMs"


class BatchLog:
    """The two logs of one program, in terms of batches. The location must be acquired.

    Args:
        location: where the logs are.
        recovery: what ``acquire`` returned.
        inputs: the names of the program's inputs, in its order.
        operators: the operators with state in the program.

    Raises:
        RecoveryMismatchError: the newest batch was planned by a program with an input or operator
            that this one lacks, or that is different in this one.
    """

    def __init__(
        self,
        location: CheckpointLocation,
        recovery: RecoveryPlan,
        *,
        inputs: Sequence[str],
        operators: Sequence[Operator],
    ) -> None:
        next_batch_id = recovery.next_batch_id
        self._location = location
        self._recovery = recovery
        self._batches: dict[int, Batch] = {}  # planned, and not released
        self._inputs = inputs
        self._conf = describe_program(inputs, operators)
        # Of the previous run: read once, since each request to an object store takes tens of ms.
        self._left = location.offsets.get(next_batch_id - 1) if next_batch_id else None
        if self._left is not None:
            check_operators(self._left.conf, operators)
        self._ends = self._read_ends(next_batch_id - 1)
        # Of earlier runs only the oldest: everything after it is retained until it is deleted.
        self._kept = deque([self._oldest_of_earlier_runs()])
        known = self.newest_conf(_ZERO_TIME)
        self._zero_ms = None if known is None else int(known)

    @property
    def ends(self) -> tuple[SourceOffset, ...]:
        """Where the next batch begins, for each input."""
        return self._ends

    @property
    def oldest_ends(self) -> tuple[SourceOffset, ...]:
        """Where the oldest batches that can be processed again begin, for each input.

        That is the end of the oldest entry in the log; None for the beginning of an input. Needs no
        read.
        """
        return self._kept[0][1]

    @property
    def last_time_ms(self) -> int:
        """The time of the newest batch that the previous run planned, -1 without one."""
        return -1 if self._left is None else self._left.batch_timestamp_ms

    @property
    def zero_ms(self) -> int | None:
        """The time from which batches and slides count, None in a new location."""
        return self._zero_ms

    @property
    def newest_committed_ms(self) -> int | None:
        """The time of the newest batch that earlier runs committed, None without one."""
        newest = next((n for n in reversed(self._before) if n not in self._recovery.rerun), None)
        entry = None if newest is None else self._location.offsets.get(newest)
        return None if entry is None else entry.batch_timestamp_ms

    def begin(self, first_ms: int, interval_ms: int) -> int:
        """Return the zero time of a run whose first batch is due at ``first_ms``.

        It is that of the location's first run.
        """
        if self._zero_ms is None:
            self._zero_ms = first_ms - interval_ms
        return self._zero_ms

    def read_since(self, after_ms: int) -> tuple[list[Batch], bool]:
        """Return all batches later than that time, in order, and whether none is missing."""
        found: list[Batch] = []
        for batch_id in reversed(self._before):
            try:
                if self._time_ms(batch_id) <= after_ms:
                    break
                found.append(self.read(batch_id))
            except LogGapError:
                return found[::-1], False
        return found[::-1], True

    def read(self, batch_id: int) -> Batch:
        """Return a batch as it was planned.

        Raises:
            RecoveryMismatchError: it was planned for inputs that the program lacks.
            LogGapError: its entry, or the one before it, is missing.
        """
        planned = self._location.offsets.require(batch_id)
        starts, ends = self._read_ends(batch_id - 1), self._ends_of(batch_id, planned)
        return Batch(batch_id, planned.batch_timestamp_ms, tuple(map(SourceRange, starts, ends)))

    def newest_conf(self, name: str) -> str | None:
        """Return a value in the conf of the previous run's newest batch, or None."""
        return None if self._left is None else self._left.conf.get(name)

    @property
    def _before(self) -> range:
        return range(self._recovery.next_batch_id)

    # -- the steps of a batch --

    def take_up(self) -> list[Batch]:
        """Return the batches to run again, as earlier runs planned them, oldest first.

        Raises as ``read``.
        """
        rerun = self._recovery.rerun
        oldest = rerun[0] if rerun else self._recovery.next_batch_id
        for batch_id in range(oldest, self._recovery.next_batch_id):
            self._batches[batch_id] = self.read(batch_id)
        return [self._batches[batch_id] for batch_id in rerun]

    def plan(
        self,
        time_ms: int,
        sources: tuple[SourceRange, ...],
        conf: Mapping[str, str],
        needed_from: int | None,
    ) -> Batch:
        """Make the next batch durable, with ``conf`` beside the log's own, and return it.

        Entries from batch ``needed_from`` on are kept.

        Raises:
            ConcurrentDriverError: another driver planned it, or one after it.
        """
        batch = Batch(self._location.next_id, time_ms, sources)
        lines = tuple(_to_line(source.end) for source in sources)
        own = {} if self._zero_ms is None else {_ZERO_TIME: str(self._zero_ms)}
        own |= self._conf
        entry = OffsetSeq(batch_timestamp_ms=time_ms, conf={**own, **conf}, sources=lines)
        self._location.plan(batch.id, entry, needed_from)
        self._batches[batch.id] = batch
        self._ends = tuple(source.end for source in sources)
        self._kept.append((batch.id, self._ends))
        return batch

    def run(self, batch: Batch) -> None:
        """Record that the batch's jobs may write from now on."""
        self._location.run(batch.id)

    def commit(self, batch: Batch) -> None:
        """Record durably that the batch is done."""
        self._location.commit(batch.id)

    def fail(self, batch: Batch) -> None:
        """Record that a job of the batch failed: it runs again in the next run."""
        self._location.fail(batch.id)

    def check_sole(self, max_age_s: float) -> None:
        """Check that no other driver has taken over, unless that was checked recently.

        Raises:
            ConcurrentDriverError: another driver has.
        """
        self._location.confirm(max_age_s)

    def unfinished_ms(self) -> tuple[int, ...]:
        """Return the times of the batches that are not committed, oldest first."""
        batches = (self._batches[batch_id] for batch_id in self._location.undone())
        return tuple(batch.time_ms for batch in batches)

    def newest_ended(self) -> Batch | None:
        """Return the newest batch up to which no batch will run in this run."""
        return self._batches.get(self._location.ended_until())

    def release(self) -> Batch | None:
        """Release the batches that are done, and all before them; return the newest of them."""
        newest = self._location.release_batches()
        if newest is None:
            return None
        released = self._batches[newest]
        for batch_id in [i for i in self._batches if i <= newest]:
            del self._batches[batch_id]
        return released

    def retire(self) -> None:
        """Delete log entries that are not retained; a failed deletion is retried."""
        try:
            oldest_id = self._location.retire()
        except StorageError as error:
            _log.warning(
                "Old log entries cannot be deleted now; the deletion will be retried: %s", error
            )
            return
        while oldest_id > 0 and len(self._kept) > 1 and self._kept[1][0] <= oldest_id:
            self._kept.popleft()

    def _oldest_of_earlier_runs(self) -> tuple[int, tuple[SourceOffset, ...]]:
        """Return the oldest entry that can be read, and the offsets at which it ends.

        Before batch 0 where there is none, or none that can be read for this program's inputs.
        """
        oldest_id = min(self._location.offsets.batch_ids(), default=0) if self._before else 0
        if oldest_id > 0:  # batch 0 began at the beginning of its inputs
            with suppress(CheckpointError):
                return oldest_id, self._read_ends(oldest_id)
        return -1, self._read_ends(-1)

    def _time_ms(self, batch_id: int) -> int:
        return self._location.offsets.require(batch_id).batch_timestamp_ms

    def _read_ends(self, batch_id: int) -> tuple[SourceOffset, ...]:
        if batch_id < 0:
            return (None,) * len(self._inputs)
        return self._ends_of(batch_id, self._location.offsets.require(batch_id))

    def _ends_of(self, batch_id: int, entry: OffsetSeq) -> tuple[SourceOffset, ...]:
        """Return the offsets in an entry, in the order of this program's inputs."""
        recorded = recorded_inputs(entry.conf)
        if recorded is None:
            self._location.offsets.check_sources(batch_id, entry, len(self._inputs))
            return tuple(map(_from_line, entry.sources))
        places = places_of_inputs(recorded, self._inputs)
        return tuple(None if at is None else _from_line(entry.sources[at]) for at in places)


def _to_line(offset: SourceOffset) -> str | None:
    return None if offset is None else json.dumps(offset, separators=(",", ":"), sort_keys=True)


def _from_line(line: str | None) -> SourceOffset:
    return None if line is None else json.loads(line)
