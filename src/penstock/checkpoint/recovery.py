"""The recovery decision for the batches of a checkpoint location. Pure: ids in, decision out.

The protocol that leaves these ids behind (see location):

- offsets/N is created before batch N runs, in ascending order without gaps.
- commits/N is created when batch N is done; with concurrent jobs in any order.
- Old ids are purged from below, offsets before commits, but never an uncommitted batch or the
  newest committed one.

So recovery is one rule: every N with offsets/N and no commits/N runs again, with the same offsets.
Exactly one of these cases applies (m and n: smallest and largest id in offsets):

    case          offsets         commits              run again             next   missing
    ------------  --------------  -------------------  --------------------  -----  ----------------
    FRESH         none            none                 none                  0      -
    OFFSETS_LOST  none            some, largest is c   -                     -      offsets/c
    OFFSETS_GAP   m..n, holes     any                  -                     -      the holes
    COMMIT_AHEAD  m..n            largest is c > n     -                     -      offsets/n+1 to c
    COMMITS_LOST  m..n, m > 0     none from m-1 on     -                     -      commits/m-1
    START_LOST    m..n, m > 0     m-1 or later, not m  -                     -      offsets/m-1
    RESUME        m..n            any other            m..n without commits  n + 1  -

A batch begins where the one before it ends, so the entry before an uncommitted batch is never
purged (START_LOST). Commits below m are left over from a purge and are ignored. A commit that is
missing between others is not damage: that batch was running when the driver died.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from penstock.checkpoint.batch_ids import describe_files, find_gaps


class RecoveryCase(Enum):
    """The cases of the table, each with its meaning."""

    FRESH = "the checkpoint location is new"
    RESUME = "batches continue after the newest planned one"
    OFFSETS_LOST = "batches were committed, but their offsets are missing"
    OFFSETS_GAP = "offsets of batches are missing between others"
    COMMIT_AHEAD = "batches were committed that have no offsets"
    COMMITS_LOST = "older batches were purged, but no commit shows that they were done"
    START_LOST = "the entry is missing with which the oldest batch that runs again begins"


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """``rerun``: the batches to run again, oldest first, before ``next_batch_id`` is planned.

    If the protocol cannot have left these ids, ``missing`` names the files that must be restored
    (in ``folder``), and nothing may run: ``rerun`` is empty, ``next_batch_id`` is meaningless.
    """

    case: RecoveryCase
    rerun: tuple[int, ...] = ()
    next_batch_id: int = 0
    folder: str = "offsets"
    missing: tuple[range, ...] = ()

    @property
    def error(self) -> str | None:
        """The error with the missing files, or None."""
        if not self.missing:
            return None
        return f"{self.case.value}: {describe_files(self.folder, self.missing)} not found"


def plan_recovery(offset_ids: Collection[int], commit_ids: Collection[int]) -> RecoveryPlan:
    """Apply the table above to the ids in the offset log and in the commit log."""
    last_commit = max(commit_ids, default=-1)
    if not offset_ids:
        if not commit_ids:
            return RecoveryPlan(RecoveryCase.FRESH)
        lost = (range(last_commit, last_commit + 1),)
        return RecoveryPlan(RecoveryCase.OFFSETS_LOST, missing=lost)
    first, last = min(offset_ids), max(offset_ids)
    if gaps := find_gaps(offset_ids):
        return RecoveryPlan(RecoveryCase.OFFSETS_GAP, missing=gaps)
    if last_commit > last:
        ahead = (range(last + 1, last_commit + 1),)
        return RecoveryPlan(RecoveryCase.COMMIT_AHEAD, missing=ahead)
    if first > 0 and last_commit < first - 1:
        lost = (range(first - 1, first),)
        return RecoveryPlan(RecoveryCase.COMMITS_LOST, folder="commits", missing=lost)
    if first > 0 and first not in commit_ids:
        return RecoveryPlan(RecoveryCase.START_LOST, missing=(range(first - 1, first),))
    rerun = tuple(sorted(set(offset_ids).difference(commit_ids)))
    return RecoveryPlan(RecoveryCase.RESUME, rerun=rerun, next_batch_id=last + 1)
