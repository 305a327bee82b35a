"""Batches on the checkpoint location: planned in ``offsets/N``, done in ``commits/N``.

Invariant: a batch's ranges are durable before its jobs are made, and its commit is written after
all of them ended. So after a crash at any point, every N with offsets/N and no commits/N runs again
with the same ranges, and nothing else does.
"""

from __future__ import annotations

import json

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.streaming.batch import Batch, SourceOffset, SourceRange

__all__ = ["BatchLog"]


class BatchLog:
    """The two logs of one program, in terms of batches. The location must be acquired.

    Args:
        location: where the logs are.
        next_batch_id: the batch to plan next, as ``acquire`` returned it.
        inputs: how many inputs the program has.
        retain: how many batches the logs keep.
    """

    def __init__(
        self, location: CheckpointLocation, next_batch_id: int, *, inputs: int, retain: int
    ) -> None:
        self._location = location
        self._next_batch_id = next_batch_id
        self._inputs = inputs
        self._retain = retain
        self._ends = self._read_ends(next_batch_id - 1)

    @property
    def ends(self) -> tuple[SourceOffset, ...]:
        """Where the next batch begins, for each input."""
        return self._ends

    def read(self, batch_id: int) -> Batch:
        """Return a batch as it was planned.

        Raises:
            RecoveryMismatchError: it was planned for another number of inputs.
            LogGapError: its entry, or the one before it, is missing.
        """
        planned = self._location.offsets.get_for(batch_id, self._inputs)
        starts, ends = self._read_ends(batch_id - 1), self._read_ends(batch_id)
        return Batch(batch_id, planned.batch_timestamp_ms, tuple(map(SourceRange, starts, ends)))

    def plan(self, time_ms: int, sources: tuple[SourceRange, ...]) -> Batch:
        """Make the next batch durable and return it.

        Raises:
            ConcurrentDriverError: another driver planned it otherwise.
        """
        batch = Batch(self._next_batch_id, time_ms, sources)
        lines = tuple(_to_line(source.end) for source in sources)
        self._location.plan(batch.id, OffsetSeq(batch_timestamp_ms=time_ms, sources=lines))
        self._next_batch_id += 1
        self._ends = tuple(source.end for source in sources)
        return batch

    def commit(self, batch: Batch) -> None:
        """Make it durable that the batch is done."""
        self._location.commit(batch.id)

    def retire(self) -> None:
        """Delete log entries that are older than what is to be retained."""
        self._location.retire(self._retain)

    def _read_ends(self, batch_id: int) -> tuple[SourceOffset, ...]:
        if batch_id < 0:
            return (None,) * self._inputs
        return tuple(
            map(_from_line, self._location.offsets.get_for(batch_id, self._inputs).sources)
        )


def _to_line(offset: SourceOffset) -> str | None:
    return None if offset is None else json.dumps(offset, separators=(",", ":"), sort_keys=True)


def _from_line(line: str | None) -> SourceOffset:
    return None if line is None else json.loads(line)
