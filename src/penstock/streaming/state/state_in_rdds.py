"""Streams in which each batch's RDD is derived from the previous one.

Invariants:

1. RDDs are computed in the order of their times, without gaps, also if only later ones are
   requested.
2. The newest RDD that committed batches have reached is kept, because the next one is derived from
   it. Older ones are dropped as soon as nothing needs them; executors keep no copies of them.
3. Each RDD is persisted, and one in each checkpoint interval is written to the checkpoint location,
   so lineage is bounded, and so is what a restart computes again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from pyspark import RDD, StorageLevel

from penstock.streaming.core.operators import Operator
from penstock.streaming.operations.dstream import DStream
from penstock.streaming.state.state_checkpoint_data import StateCheckpointData


class RddStateDStream(DStream):
    """A stream with state; ``operator`` names it, ``shape`` has the parameters of its state."""

    must_checkpoint = True

    def __init__(self, parent: DStream, operator: Operator, shape: Mapping[str, int]) -> None:
        super().__init__(parent.ssc)
        self.operator = operator
        self.checkpoint_data: StateCheckpointData = StateCheckpointData(operator, shape)
        self._parent = parent
        self._origin_ms = 0  # no RDD is computed for times up to this one; existing ones stay
        self.persist(StorageLevel.MEMORY_ONLY)

    @abstractmethod
    def advance(self, time_ms: int, previous: RDD[Any] | None, previous_ms: int) -> RDD[Any] | None:
        """Return a batch's RDD, derived from the one of ``previous_ms``; None for no RDD."""

    def initial_rdd(self) -> RDD[Any] | None:
        """Return the initial state; called once in the life of the state."""
        return None

    def is_aligned(self, time_ms: int) -> bool:
        """Whether the stream can continue from its RDD of that time, of an earlier run."""
        return True

    @property
    def operation(self) -> str:
        """The name of the method that created this stream."""
        return self.operator.kind

    @property
    def parents(self) -> tuple[DStream, ...]:
        """The stream of new values."""
        return (self._parent,)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the RDD of that time, after all earlier ones; None for times no longer kept."""
        if time_ms <= self._origin_ms:
            return None
        for between_ms in self.times_between(self._newest_before(time_ms), time_ms - 1):
            self.get_or_compute(between_ms)
        previous_ms = self._newest_before(time_ms)
        return self.advance(time_ms, self.generated(previous_ms), previous_ms)

    def restore_checkpoint_data(self, done_ms: int, planned_ms: int) -> None:
        """Load the state of an earlier run, or start without state."""
        self._origin_ms, self._generated = self.checkpoint_data.restore(
            done_ms, planned_ms, is_aligned=self.is_aligned, initial=self.initial_rdd
        )

    def clear_metadata(self, ended_ms: int, needed_after_ms: int) -> None:
        """Drop all RDDs before the newest one up to ``needed_after_ms``."""
        self._origin_ms = self._newest_before(needed_after_ms + 1)
        self._forget(self._origin_ms - 1)

    def clear_checkpoint_data(self, done_ms: int, needed_after_ms: int) -> None:
        """Delete the RDD checkpoints that no restart needs."""
        self.checkpoint_data.cleanup(done_ms, needed_after_ms)

    def restarts_from(self, after_ms: int, done_ms: int) -> int:
        """Return the time of the RDD checkpoint from which a restart continues."""
        return self.checkpoint_data.restart_ms(after_ms, done_ms)

    def _newest_before(self, time_ms: int) -> int:
        return max((t for t in list(self._generated) if t < time_ms), default=self._origin_ms)

    def _own(self, rdd: RDD[Any]) -> RDD[Any]:
        return rdd  # created by this stream; a batch without records shares its RDD's files

    def _release(self, time_ms: int, rdd: RDD[Any]) -> None:
        # A batch without records has the RDD of the previous one.
        heirs = [t for t, kept in self._generated.items() if kept is rdd]
        if time_ms in self._persisted:
            self._persisted.remove(time_ms)
            self._persisted.update(heirs[:1])
            if not heirs:
                rdd.unpersist()
