"""What a query does first when it starts on a location. Pure: ids in, decision out.

Spark reads only the newest entries of both logs (N in offsets, M in commits):

    offsets   commits     what it does
    --------  ----------  ---------------------------------------------------------
    none      none        begins with batch 0
    newest N  newest N    plans batch N + 1 from the end of batch N
    newest N  any other   runs batch N again, from the end of batch N - 1
    newest N  M > N       the same, although a later batch is done: offsets were lost

penstock runs every batch that is planned and not committed (penstock.checkpoint.recovery). With
asynchronous progress tracking, which queries with state cannot have, Spark takes the last existing
entry before N. At a start Spark 4 lists all ids from the lowest to the highest of a log.

Source: MicroBatchExecution.populateStartOffsets, HDFSMetadataLog.listBatches,
AsyncProgressTrackingMicroBatchExecution.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.checkpoint.batch_ids import find_gaps
from penstock.checkpoint.recovery import plan_recovery


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


_MOST_IDS = 2**31 - 1
"""Scala's ranges have no more elements."""


def next_of_spark(
    offset_ids: Collection[int], commit_ids: Collection[int], *, has_state: bool = False
) -> NextBatch:
    """Decide by the table above."""
    last = max(offset_ids, default=-1)
    last_commit = max(commit_ids, default=-1)
    problem = None
    if last_commit > last:
        problem = f"batch {last_commit} is committed and offsets/{last_commit} is missing"
    elif last - min(offset_ids, default=0) >= _MOST_IDS:
        problem = f"offsets/{last} is too far from the others (More than Int.MaxValue elements)"
    elif lacks_start(offset_ids) and (has_state or not leaves_out(offset_ids, commit_ids)):
        problem = f"offsets/{last - 1} is missing, with which the start of batch {last} is lost"
    if last < 0 or last == last_commit:
        return NextBatch(last + 1, problem=problem)
    return NextBatch(last + 1, (last,), problem)


def lacks_start(offset_ids: Collection[int]) -> bool:
    """Whether the entry before the newest is missing, without which only few queries start."""
    last = max(offset_ids, default=0)
    return last > 0 and last - 1 not in offset_ids


def leaves_out(offset_ids: Collection[int], commit_ids: Collection[int]) -> bool:
    """Whether both logs lack the same entries, as asynchronous progress tracking leaves them out.

    It writes an entry from time to time only. A single one that is missing was lost.
    """
    gaps = find_gaps(offset_ids)
    if not gaps or (len(gaps) == 1 and len(gaps[0]) == 1):
        return False
    planned = set(offset_ids)
    return all(c in planned for c in commit_ids if min(planned) < c < max(planned))


def next_of_penstock(offset_ids: Collection[int], commit_ids: Collection[int]) -> NextBatch:
    """Decide as a driver of penstock does at its start."""
    plan = plan_recovery(offset_ids, commit_ids)
    return NextBatch(plan.next_batch_id, plan.rerun, plan.error)
