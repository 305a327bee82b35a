"""Batches on the checkpoint location: planned in ``offsets/N``, done in ``commits/N``.

Invariant: a batch's ranges are durable before its jobs are made, and its commit is written after
all of them ended. So after a crash at any point, every N with offsets/N and no commits/N runs again
with the same ranges, and nothing else does.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.streaming.batch import Batch, SourceOffset, SourceRange

__all__ = ["BatchLog"]


class BatchLog:
    """The two logs of one program, in terms of batches."""

    def __init__(self, location: CheckpointLocation, min_batches_to_retain: int) -> None:
        self._location = location
        self._retain = min_batches_to_retain
        self._ends = self._read(location.offsets.latest())

    @property
    def ends(self) -> tuple[SourceOffset, ...]:
        """Where the next batch begins, for each input; empty before the first batch."""
        return self._ends

    def unfinished(self) -> list[Batch]:
        """Return the batches that were planned and not committed, in order."""
        return [self._batch(batch_id) for batch_id in self._location.recovery().rerun]

    def plan(self, time_ms: int, sources: tuple[SourceRange, ...]) -> Batch:
        """Make the next batch durable and return it.

        Raises:
            ConcurrentDriverError: another driver planned it otherwise.
        """
        batch = Batch(self._location.next_batch_id(), time_ms, sources)
        lines = tuple(_to_line(source.end) for source in sources)
        self._location.plan(batch.id, OffsetSeq(batch_timestamp_ms=time_ms, sources=lines))
        self._ends = tuple(source.end for source in sources)
        return batch

    def commit(self, batch: Batch) -> None:
        """Make it durable that the batch is done."""
        self._location.commit(batch.id)

    def retire(self) -> None:
        """Delete log entries that are older than what is to be retained."""
        self._location.retire(self._retain)

    def _batch(self, batch_id: int) -> Batch:
        planned = self._location.offsets.get(batch_id)
        ends = self._read(batch_id)
        starts = self._read(batch_id - 1) if batch_id > 0 else (None,) * len(ends)
        ranges = tuple(map(SourceRange, starts, ends))
        return Batch(batch_id, planned.batch_timestamp_ms, ranges)

    def _read(self, batch_id: int | None) -> tuple[SourceOffset, ...]:
        if batch_id is None:
            return ()
        return tuple(map(_from_line, self._location.offsets.get(batch_id).sources))


def _to_line(offset: SourceOffset) -> str | None:
    return None if offset is None else json.dumps(offset, separators=(",", ":"), sort_keys=True)


def _from_line(line: str | None) -> Any:
    return None if line is None else json.loads(line)
