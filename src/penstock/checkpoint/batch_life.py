r"""The life of a batch: the protocol of a checkpoint location, as one state machine. Pure.

    PLANNED -> RUNNING -> COMMITTED -> CONFIRMED -> RELEASED
       \         \
        +---------+--> FAILED

    state      condition before a batch enters it
    ---------  ------------------------------------------------------------------------------------
    PLANNED    offsets/N is durable, and no id above N was in the log after that (no other driver)
    RUNNING    its jobs are created and may write
    COMMITTED  all that its jobs wrote is durable, and so is commits/N
    CONFIRMED  the log was listed after commits/N was durable, and showed no other driver
    RELEASED   it is confirmed, and so is every batch before it; then its records may go, and its
               log entries once inputs were notified (BatchLog)
    FAILED     a job raised or could not be created, or commits/N could not be written; without
               commits/N it runs again at the next start

Invariants:

1. Ids are planned in order, without a gap. An id is planned once, by one run: offsets/N is created
   exclusively, and holds the id of the run.
2. A batch runs only when it is planned, and again only in a later run, with the same offsets.
3. No data of a batch is deleted before the batch is released. So no data of a failed batch, or of a
   later batch, is deleted before the failed one has run again.
4. A name becomes available again when its entry is purged, so a driver that slept through a purge
   can create old ids again. It detects its successor by the newer ids in the log, which a purge
   never deletes. Therefore the log is listed after each create, and nothing is released before the
   next listing.
5. Each entry names the oldest batch that counts when it is written (``kept_from``), and only
   entries older than the ``kept_from`` of the newest entry are purged. So entries below it are the
   rest of a purge, or were written by a driver that slept through it; both are ignored.

A run that ends leaves batches in any state. From the logs, ``plan_recovery``
(penstock.checkpoint.recovery) determines the batches with which the next run begins as PLANNED.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from itertools import takewhile

from penstock.checkpoint.recovery import RecoveryPlan
from penstock.errors import CheckpointError


class BatchState(Enum):
    """The state of a batch; see the table above."""

    PLANNED = "planned"
    RUNNING = "running"
    COMMITTED = "committed"
    CONFIRMED = "confirmed"
    RELEASED = "released"
    FAILED = "failed"

    def may_become(self, other: BatchState) -> bool:
        """Whether the protocol allows this step."""
        return other in _STEPS[self]


_STEPS: dict[BatchState, frozenset[BatchState]] = {
    BatchState.PLANNED: frozenset({BatchState.RUNNING, BatchState.FAILED}),
    BatchState.RUNNING: frozenset({BatchState.COMMITTED, BatchState.FAILED}),
    BatchState.COMMITTED: frozenset({BatchState.CONFIRMED}),
    BatchState.CONFIRMED: frozenset({BatchState.RELEASED}),
    BatchState.RELEASED: frozenset(),
    BatchState.FAILED: frozenset(),
}
_UNDONE = (BatchState.PLANNED, BatchState.RUNNING, BatchState.FAILED)


class BatchLives:
    """The batches of one run that are not released. Not thread-safe: the owner synchronizes.

    Args:
        plan: the result of recovery: these batches begin as planned.
        commit_ids: the ids in the commit log.
        kept_from: the value in the newest entry, 0 without an entry.
    """

    def __init__(self, plan: RecoveryPlan, commit_ids: Collection[int], kept_from: int = 0) -> None:
        self.next_id = plan.next_batch_id
        self.kept_from = kept_from
        """Entries below it are ignored; durable in the newest entry."""
        self._planned_kept_from: int | None = None  # of the next batch, once its plan began
        self._last_committed = max(commit_ids, default=-1)
        oldest = plan.rerun[0] if plan.rerun else plan.next_batch_id
        self._states = {
            batch_id: BatchState.PLANNED if batch_id in plan.rerun else BatchState.COMMITTED
            for batch_id in range(oldest, plan.next_batch_id)
        }

    def state(self, batch_id: int) -> BatchState | None:
        """Return the state of a batch; None before it is planned, and after it was released."""
        return self._states.get(batch_id)

    def begin_plan(self, batch_id: int, retain: int, needed_from: int | None = None) -> int:
        """Return the ``kept_from`` to write into the entry of the next batch.

        As in Spark, ``retain`` batches are kept besides the newest planned one. These are always
        kept: ``needed_from`` and later ones, uncommitted batches, the batch before each of these (a
        batch begins where the previous one ends), and the newest committed batch. The value moves
        by a tenth of ``retain`` at a time, so that many entries are deleted at once.

        Called again for the same batch, whose create failed, it returns the same.

        Raises:
            CheckpointError: it is not the next batch.
        """
        if batch_id != self.next_id:
            raise _out_of_order(
                f"batch {batch_id} is planned, but {self.next_id} is the next",
                "plan",
                batch_id,
                "plan each batch once, in order, without leaving one out",
            )
        if self._planned_kept_from is None:
            begins = [i - 1 for i in (needed_from, batch_id, *self.undone()) if i is not None]
            oldest = max(0, min(batch_id - retain, self._last_committed, *begins))
            moves = oldest - self.kept_from >= max(1, retain // 10)
            self._planned_kept_from = oldest if moves else self.kept_from
        return self._planned_kept_from

    def is_fenced(self, offset_ids: Iterable[int]) -> bool:
        """Whether a listing of the offset log shows a batch that this run did not plan.

        The batch that is being planned is this run's.
        """
        newest = self.next_id - (self._planned_kept_from is None)
        return max(offset_ids, default=-1) > newest

    def plan(self, batch_id: int) -> None:
        """Record that the batch is planned, with the result of ``begin_plan``."""
        assert self._planned_kept_from is not None
        self.kept_from, self._planned_kept_from = self._planned_kept_from, None
        self._states[batch_id] = BatchState.PLANNED
        self.next_id += 1

    def is_committed(self, batch_id: int) -> bool:
        """Whether a batch is committed already, so that a repeated commit changes nothing."""
        return batch_id < self.next_id and self.state(batch_id) not in _UNDONE

    def check(self, batch_id: int, state: BatchState) -> None:
        """Raise CheckpointError unless the protocol allows that a batch enters a state now."""
        is_known = batch_id < self.next_id
        now = self._states.get(batch_id, BatchState.RELEASED)
        if not (is_known and now.may_become(state)):
            raise _out_of_order(
                f"batch {batch_id} {f'is {now.value}' if is_known else 'was never planned'} and "
                f"cannot become {state.value}",
                "follow batch",
                batch_id,
                "this is a bug in penstock; please report it",
            )

    def enter(self, batch_id: int, state: BatchState) -> None:
        """Record that a batch is in that state now; raises as ``check``."""
        self.check(batch_id, state)
        self._states[batch_id] = state
        if state is BatchState.COMMITTED:
            self._last_committed = max(self._last_committed, batch_id)

    def undone(self) -> list[int]:
        """Return the batches that are not committed, oldest first."""
        return sorted(i for i, state in self._states.items() if state in _UNDONE)

    def committed(self) -> list[int]:
        """Return the batches that the next listing confirms if it shows no other driver."""
        return [i for i, state in self._states.items() if state is BatchState.COMMITTED]

    def release(self) -> int | None:
        """Release the confirmed batches before all others; return the newest, None without one."""
        ready = list(
            takewhile(lambda i: self._states[i] is BatchState.CONFIRMED, sorted(self._states))
        )
        for batch_id in ready:
            self.enter(batch_id, BatchState.RELEASED)
            del self._states[batch_id]
        return ready[-1] if ready else None

    def ended_until(self) -> int:
        """Return the newest batch up to which no batch runs or will run in this run; -1 if none."""
        live = (BatchState.PLANNED, BatchState.RUNNING)
        running = [i for i, state in self._states.items() if state in live]
        return min(running, default=self.next_id) - 1


def _out_of_order(message: str, what: str, batch_id: int, hint: str) -> CheckpointError:
    return CheckpointError(message, operation=what, ids={"batch_id": batch_id}, hint=hint)
