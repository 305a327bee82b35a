"""What a query does first when it starts on a location. Pure: ids in, decision out.

Spark looks at the newest entries of both logs alone (N in offsets, M in commits):

    offsets   commits     what it does
    --------  ----------  ---------------------------------------------------------
    none      none        begins with batch 0
    newest N  newest N    plans batch N + 1 from the end of batch N
    newest N  any other   runs batch N again, from the end of batch N - 1
    any       M > N       fails when it commits N + 1 or M, which is done already

penstock runs every batch that is planned and not committed (penstock.checkpoint.recovery).
Source: MicroBatchExecution.populateStartOffsets.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.checkpoint.recovery import plan_recovery

__all__ = ["NextBatch", "next_of_penstock", "next_of_spark"]


@dataclass(frozen=True, slots=True)
class NextBatch:
    """``rerun``: the planned batches that run again first; ``batch_id``: the first to be planned.

    ``problem`` says why it cannot start, with the files that are missing; None when it can.
    """

    batch_id: int
    rerun: tuple[int, ...] = ()
    problem: str | None = None

    @property
    def first(self) -> int:
        """The batch that runs first."""
        return min(self.rerun, default=self.batch_id)


def next_of_spark(offset_ids: Collection[int], commit_ids: Collection[int]) -> NextBatch:
    """Decide by the table above."""
    last = max(offset_ids, default=-1)
    last_commit = max(commit_ids, default=-1)
    problem = None
    if last_commit > last:
        problem = f"batch {last_commit} is committed and offsets/{last_commit} is missing"
    elif last > 0 and last - 1 not in offset_ids:
        problem = f"offsets/{last - 1} is missing, with which the start of batch {last} is lost"
    if last < 0 or last == last_commit:
        return NextBatch(last + 1, problem=problem)
    return NextBatch(last + 1, (last,), problem)


def next_of_penstock(offset_ids: Collection[int], commit_ids: Collection[int]) -> NextBatch:
    """Decide as a driver of penstock does at its start."""
    plan = plan_recovery(offset_ids, commit_ids)
    return NextBatch(plan.next_batch_id, plan.rerun, plan.error)
