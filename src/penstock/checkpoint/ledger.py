"""What a driver remembers of its batches, so that no batch has to list the logs. Pure.

Not thread-safe: its owner (CheckpointLocation) takes care of that.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.checkpoint.recovery import RecoveryPlan
from penstock.errors import CheckpointError

__all__ = ["BatchLedger"]


class BatchLedger:
    """Which batch comes next, which are not committed yet, and what may be purged."""

    def __init__(self, plan: RecoveryPlan, commit_ids: Collection[int]) -> None:
        self._next_batch_id = plan.next_batch_id
        self._uncommitted = set(plan.rerun)
        self._last_committed = max(commit_ids, default=-1)

    def check_plan(self, batch_id: int) -> None:
        """Raise CheckpointError unless the batch is the next one, or one planned before."""
        if batch_id > self._next_batch_id:
            raise CheckpointError(
                f"batch {batch_id} is planned, but {self._next_batch_id} is the next",
                operation="plan batch",
                ids={"batch_id": batch_id},
                hint="plan batches in order, without leaving one out",
            )

    def planned(self, batch_id: int) -> None:
        """Take note that the batch's offsets are durable."""
        if batch_id == self._next_batch_id:
            self._uncommitted.add(batch_id)
            self._next_batch_id += 1

    def check_commit(self, batch_id: int) -> None:
        """Raise CheckpointError unless the batch has been planned."""
        if batch_id >= self._next_batch_id:
            raise CheckpointError(
                f"batch {batch_id} is committed, but was never planned",
                operation="commit batch",
                ids={"batch_id": batch_id},
                hint="plan a batch before it runs",
            )

    def committed(self, batch_id: int) -> None:
        """Take note that the batch's commit is durable."""
        self._uncommitted.discard(batch_id)
        self._last_committed = max(self._last_committed, batch_id)

    def keep_from(self, min_batches_to_retain: int) -> int:
        """Return the first batch id to keep.

        As in Spark, ``min_batches_to_retain`` batches are kept besides the newest planned one. What
        is not committed, the batch before each of those (a batch begins where the one before it
        ends), and the newest that is committed, are kept in any case.
        """
        oldest = self._next_batch_id - 1 - min_batches_to_retain
        starts = (batch_id - 1 for batch_id in self._uncommitted)
        return max(0, min(oldest, self._last_committed, *starts))
