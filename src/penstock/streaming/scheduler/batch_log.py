"""Batches on the checkpoint location: planned in ``offsets/N``, done in ``commits/N``.

Invariant: a batch's ranges are durable before its jobs are made, and its commit is written after
all of them ended. So after a crash at any point, every N with offsets/N and no commits/N runs again
with the same ranges, and nothing else does.

Each entry's conf holds the program's zero time, from which windows slide, so that they slide on
after a restart, and the names of its inputs and stateful operators (penstock.streaming
.recovery_match), by which a changed program finds its own.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.errors import CheckpointError, LogGapError
from penstock.streaming.batch import Batch, SourceOffset, SourceRange
from penstock.streaming.operators import Operator
from penstock.streaming.recovery_match import (
    check_operators,
    describe_program,
    places_of_inputs,
    recorded_inputs,
)

__all__ = ["BatchLog"]

_ZERO_TIME = "spark.penstock.zeroTimeMs"


class BatchLog:
    """The two logs of one program, in terms of batches. The location must be acquired.

    Args:
        location: where the logs are.
        next_batch_id: the batch to plan next, as ``acquire`` returned it.
        inputs: the names of the program's inputs, in its order.
        operators: what keeps state in the program.
        retain: how many batches the logs keep.

    Raises:
        RecoveryMismatchError: the newest batch was planned by a program with an input or operator
            that this one lacks, or has otherwise.
    """

    def __init__(
        self,
        location: CheckpointLocation,
        next_batch_id: int,
        *,
        inputs: Sequence[str],
        operators: Sequence[Operator],
        retain: int,
    ) -> None:
        self._location = location
        self._next_batch_id = next_batch_id
        self._inputs = inputs
        self._conf = describe_program(inputs, operators)
        self._retain = retain
        # Of the run before: read once, since each look at an object store takes tens of ms.
        self._left = location.offsets.get(next_batch_id - 1) if next_batch_id else None
        if self._left is not None:
            check_operators(self._left.conf, operators)
        self._ends = self._read_ends(next_batch_id - 1)
        # Of the runs before only the oldest: from there on all is retained until it is deleted.
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

        That is where the oldest entry in the log ends; None for an input's very beginning. Costs
        no read.
        """
        return self._kept[0][1]

    @property
    def last_time_ms(self) -> int:
        """The time of the newest batch that the run before planned, -1 when there is none."""
        return -1 if self._left is None else self._left.batch_timestamp_ms

    @property
    def zero_ms(self) -> int | None:
        """The time from which batches and slides count, None in a new location."""
        return self._zero_ms

    def newest_time_ms(self, *, but: Collection[int]) -> int | None:
        """Return the time of the newest planned batch other than ``but``, None without one."""
        newest = next((n for n in reversed(range(self._next_batch_id)) if n not in but), None)
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
        """Return all batches later than that time, in order, and whether none is gone."""
        found: list[Batch] = []
        for batch_id in range(self._next_batch_id - 1, -1, -1):
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
        """Return what the run before left in its newest batch's conf under a name, or None."""
        return None if self._left is None else self._left.conf.get(name)

    def plan(
        self, time_ms: int, sources: tuple[SourceRange, ...], conf: Mapping[str, str]
    ) -> Batch:
        """Make the next batch durable, with ``conf`` beside the log's own, and return it.

        Raises:
            ConcurrentDriverError: another driver planned it otherwise.
        """
        batch = Batch(self._next_batch_id, time_ms, sources)
        lines = tuple(_to_line(source.end) for source in sources)
        own = {} if self._zero_ms is None else {_ZERO_TIME: str(self._zero_ms)}
        own |= self._conf
        entry = OffsetSeq(batch_timestamp_ms=time_ms, conf={**own, **conf}, sources=lines)
        self._location.plan(batch.id, entry)
        self._next_batch_id += 1
        self._ends = tuple(source.end for source in sources)
        self._kept.append((batch.id, self._ends))
        return batch

    def commit(self, batch: Batch) -> None:
        """Make it durable that the batch is done."""
        self._location.commit(batch.id)

    def retire(self, needed_id: int) -> None:
        """Delete log entries that are not to be retained, but none from batch ``needed_id`` on."""
        # A batch begins where the one before it ends, so that one's entry is kept, too.
        oldest_id = self._location.retire(max(self._retain, self._next_batch_id - needed_id))
        while oldest_id > 0 and len(self._kept) > 1 and self._kept[1][0] <= oldest_id:
            self._kept.popleft()

    def _oldest_of_earlier_runs(self) -> tuple[int, tuple[SourceOffset, ...]]:
        """Return the oldest entry that tells where the batch after it begins, and its ends.

        Before batch 0 where there is none, or none that can be read for this program's inputs.
        """
        oldest_id = min(self._location.offsets.batch_ids(), default=0) if self._next_batch_id else 0
        if oldest_id > 0:  # what batch 0 took began at the very beginning
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
