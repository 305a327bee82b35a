"""Batches on the checkpoint location: planned in ``offsets/N``, done in ``commits/N``.

The checkpoint location defines the allowed steps of a batch (penstock.checkpoint.batch_life). This
module expresses them in terms of batches: their ranges of each input, and their times.

Each entry's conf holds the program's zero time, from which windows slide, so that they continue to
slide after a restart; the names of its inputs, stateful operators and outputs (recovery.match), by
which a changed program finds its own; and the newest batch of whose commit inputs were notified.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from penstock.checkpoint import CheckpointLocation, OffsetSeq, RecoveryPlan
from penstock.checkpoint.batch_plan import plan_of
from penstock.errors import CheckpointError, LogGapError, StorageError
from penstock.streaming.core.batch import Batch, SourceOffset, SourceRange
from penstock.streaming.core.operators import Operator
from penstock.streaming.recovery.match import (
    check_operators,
    check_outputs,
    check_unnamed,
    describe_program,
    leftover_first_offsets,
    places_of_inputs,
    recorded_inputs,
)

_log = logging.getLogger(__name__)
_ZERO_TIME = "spark.penstock.zeroTimeMs"
_NOTIFIED = "spark.penstock.notifiedCommit"


class BatchLog:
    """The two logs of one program, in terms of batches. The location must be acquired.

    Args:
        location: where the logs are.
        recovery: the result of ``acquire``.
        inputs: the names of the program's inputs, in its order.
        operators: the operators with state in the program.
        outputs: the names of its outputs, with whether they write exactly once.
        told: the names of those outputs that pass their name to a sink.
        unnamed: the names that were not given, of inputs, operators and outputs (by role).

    Raises:
        RecoveryMismatchError: the newest batch was planned by a program with an input, operator or
            exactly-once output that this one lacks, or that is different in this one; or
            more than one part of this one may be it.
    """

    def __init__(
        self,
        location: CheckpointLocation,
        recovery: RecoveryPlan,
        *,
        inputs: Sequence[str],
        operators: Sequence[Operator],
        outputs: Mapping[str, bool],
        told: Sequence[str],
        unnamed: Mapping[str, Collection[str]],
    ) -> None:
        next_batch_id = recovery.next_batch_id
        self._location = location
        self._recovery = recovery
        self._batches: dict[int, Batch] = {}  # planned, and not released
        self._unnotified: deque[Batch] = deque()  # released; inputs are not notified of the commit
        self._notified_id = -1  # inputs were notified of the commits up to this one
        self._inputs = inputs
        self._conf = describe_program(inputs, operators, outputs, told)
        # The previous run's last entry is read once: a request to an object store takes tens of ms.
        self._left = location.offsets.get(next_batch_id - 1) if next_batch_id else None
        self._recorded: Collection[str] = ()
        if self._left is not None:
            present = {"input": inputs, "operator": [o.name for o in operators], "output": told}
            for role, names in present.items():
                check_unnamed(self._left.conf, role, names, unnamed[role])
            check_operators(self._left.conf, operators)
            check_outputs(self._left.conf, outputs)
            self._recorded = recorded_inputs(self._left.conf)
        self._ends = (
            self._read_ends(-1)
            if self._left is None
            else self._ends_of(next_batch_id - 1, self._left)
        )
        # The oldest entry of earlier runs suffices: later entries are retained until it is deleted.
        self._kept = deque([self._oldest_of_earlier_runs()])
        self._warn_of_leftovers()
        known = self.recorded_conf.get(_ZERO_TIME)
        self.zero_ms = None if known is None else int(known)
        """The time from which batches and slides count; the first run of a location sets it."""

    @property
    def ends(self) -> tuple[SourceOffset, ...]:
        """The start of the next batch for each input; None for a new input."""
        return self._started(self._ends)

    def first_offset(self, index: int, resolve: Callable[[], SourceOffset]) -> SourceOffset:
        """Return the start of an input's first batch in the life of the location.

        If the input is new, calls ``resolve`` and makes its result durable. None for an input that
        has batches, and whose record was removed.

        Raises:
            LogFormatError: the record of first offsets is damaged.
            StorageError: it cannot be made durable.
        """
        name, firsts = self._inputs[index], self._location.first_offsets
        if firsts.get(name) is None and name not in self._recorded:
            firsts.settle(name, resolve())
        return self._first(name)

    def oldest_start(self, index: int) -> SourceOffset:
        """Return the start of an input's oldest batch that can be processed again.

        That is where the oldest entry in the log ends. Costs no read.
        """
        return self._started(self._kept[0][1])[index]

    @property
    def previous_run_ms(self) -> int:
        """The time of the newest batch that the previous run planned, -1 without one."""
        return -1 if self._left is None else self._left.batch_timestamp_ms

    def read_since(self, after_ms: int) -> tuple[list[Batch], bool]:
        """Return all batches later than that time, in order, and whether none is missing."""
        found: list[Batch] = []
        for batch_id in reversed(self._before):
            try:
                if self._location.offsets.require(batch_id).batch_timestamp_ms <= after_ms:
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
        ranges = map(SourceRange, self._started(starts), self._started(ends))
        return Batch(batch_id, planned.batch_timestamp_ms, tuple(ranges), plan_of(planned))

    @property
    def recorded_conf(self) -> Mapping[str, str]:
        """The conf of the newest batch of the previous run, empty in a new location."""
        return {} if self._left is None else self._left.conf

    def add_conf(self, conf: Mapping[str, str]) -> None:
        """Add settings to the conf of every batch from now on."""
        self._conf |= conf

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
        notified = self.recorded_conf.get(_NOTIFIED)
        self._notified_id = oldest - 1 if notified is None else min(int(notified), oldest - 1)
        for batch_id in range(self._notified_id + 1, oldest):
            self._unnotified.append(self.read(batch_id))
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
        lines = tuple(_to_line(source.end) for source in sources)
        own = {} if self.zero_ms is None else {_ZERO_TIME: str(self.zero_ms)}
        own |= self._conf | {_NOTIFIED: str(self._notified_id)}
        entry = OffsetSeq(batch_timestamp_ms=time_ms, conf={**own, **conf}, sources=lines)
        oldest = self._notified_id + 1
        needed_from = oldest if needed_from is None else min(oldest, needed_from)
        batch_id = self._location.next_id
        batch = Batch(batch_id, time_ms, sources, self._location.plan(batch_id, entry, needed_from))
        self._batches[batch.id] = batch
        self._ends = tuple(source.end for source in sources)
        self._kept.append((batch.id, self._ends))
        return batch

    def unfinished_ms(self) -> tuple[int, ...]:
        """Return the times of the batches that are not committed, oldest first."""
        batches = (self._batches[batch_id] for batch_id in self._location.undone())
        return tuple(batch.time_ms for batch in batches)

    def newest_ended(self) -> Batch | None:
        """Return the newest batch up to which no batch will run in this run."""
        return self._batches.get(self._location.ended_until())

    def take_confirmed(self) -> Sequence[Batch]:
        """Return the batches whose data may be released, oldest first.

        They and all before them are confirmed, and inputs are not yet notified of their commits.
        """
        newest = self._location.release_batches()
        if newest is not None:
            released = sorted(batch_id for batch_id in self._batches if batch_id <= newest)
            self._unnotified += [self._batches.pop(batch_id) for batch_id in released]
        return tuple(self._unnotified)

    def notified(self, batch: Batch) -> None:
        """Record that inputs were notified of the oldest batch that ``take_confirmed`` returned.

        The next entry in the log records that; a run without such an entry notifies them again.
        """
        self._unnotified.popleft()
        self._notified_id = batch.id

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

        (-1, and the start of batch 0) if no entry exists or none fits this program's inputs.
        """
        oldest_id = min(self._location.offsets.batch_ids(), default=0) if self._before else 0
        if oldest_id > 0:  # batch 0 began at the beginning of its inputs
            with suppress(CheckpointError):
                return oldest_id, self._read_ends(oldest_id)
        return -1, self._read_ends(-1)

    def _warn_of_leftovers(self) -> None:
        settled = self._location.first_offsets.names()
        for name in leftover_first_offsets(settled, self._inputs):
            _log.warning(
                "The checkpoint location holds the first offset of input %r, which is not in the "
                "program; no batch was planned with it. If it was renamed, give it its old name "
                "(name=) so that it begins there",
                name,
            )

    def _started(self, ends: tuple[SourceOffset, ...]) -> tuple[SourceOffset, ...]:
        """Return the starts of the batches after these ends: the first offset of a new input."""
        pairs = zip(self._inputs, ends, strict=True)
        return tuple(self._first(name) if end is None else end for name, end in pairs)

    def _first(self, name: str) -> SourceOffset:
        found = self._location.first_offsets.get(name)
        return None if found is None else found.offset

    def _read_ends(self, batch_id: int) -> tuple[SourceOffset, ...]:
        if batch_id < 0:
            return (None,) * len(self._inputs)
        return self._ends_of(batch_id, self._location.offsets.require(batch_id))

    def _ends_of(self, batch_id: int, entry: OffsetSeq) -> tuple[SourceOffset, ...]:
        """Return the offsets in an entry, in the order of this program's inputs."""
        recorded = recorded_inputs(entry.conf)
        self._location.offsets.check_sources(batch_id, entry, len(recorded))
        places = places_of_inputs(recorded, self._inputs)
        return tuple(None if at is None else _from_line(entry.sources[at]) for at in places)


def _to_line(offset: SourceOffset) -> str | None:
    return None if offset is None else json.dumps(offset, separators=(",", ":"), sort_keys=True)


def _from_line(line: str | None) -> SourceOffset:
    return None if line is None else json.loads(line)
