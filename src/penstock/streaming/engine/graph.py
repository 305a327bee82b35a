"""The graph of a program: its inputs, its outputs, and all streams between them. Pickles whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.clock import iso_time
from penstock.errors import PenstockError, StreamingError, printable
from penstock.streaming.core.base import BaseDStream
from penstock.streaming.core.batch import Batch, SourceOffset, SourceRange
from penstock.streaming.core.events import StreamInputInfo
from penstock.streaming.core.missed_ticks import ticks_needed
from penstock.streaming.core.operators import Operators
from penstock.streaming.core.rdd_checkpoints import RddCheckpoints
from penstock.streaming.core.rdd_retention import needed_after
from penstock.streaming.inputs.input import InputDStream
from penstock.streaming.operations.outputs import OutputOperation

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program

_log = logging.getLogger(__name__)


class DStreamGraph:
    """Source: ``org.apache.spark.streaming.DStreamGraph``."""

    def __init__(self, batch_interval_ms: int) -> None:
        self.batch_interval_ms = batch_interval_ms
        self.inputs: list[InputDStream] = []
        self.outputs: list[OutputOperation] = []
        self.operators = Operators()
        self._remember_ms: int | None = None  # requested by the program
        self._batches: dict[int, Batch] = {}  # the remembered ones, by time
        self._rdds: RddCheckpoints | None = None
        self.is_kept = False
        """Whether the graph is read back after a restart, so inputs must not depend on memory."""

    @property
    def writes_rdds(self) -> bool:
        """Whether RDD checkpoints are written."""
        return any(stream.writes_rdds for stream in self.streams())

    @property
    def is_written_by_executors(self) -> bool:
        """Whether tasks write to the checkpoint location: blocks, dead letters, RDDs."""
        return any(s.is_written_by_executors or s.writes_rdds for s in self.streams())

    def add_input(self, stream: InputDStream) -> None:
        """Add an input; its name must be unique."""
        if any(known.name == stream.name for known in self.inputs):
            raise StreamingError(
                f"two inputs are named {stream.name!r}",
                operation="add input",
                ids={"stream": stream.name},
                hint="give each input a different name (name=)",
            )
        self.inputs.append(stream)

    def add_output(self, output: OutputOperation) -> None:
        """Add an output operation; its name must be unique."""
        output.parent.ssc.check_extensible("add an output operation")
        if any(known.name == output.name for known in self.outputs):
            raise StreamingError(
                f"two outputs are named {output.name!r}",
                operation=output.kind,
                ids={"output": output.name},
                hint="give each output a different name (name=)",
            )
        self.outputs.append(output)

    def validate(self) -> None:
        """Check that the graph has an output.

        Raises:
            StreamingError: no output operation was registered.
        """
        if not self.outputs:
            raise StreamingError(
                "No output operations registered, so nothing to execute",
                operation="start",
                hint="call foreachRDD, foreachBatch or pprint on a stream",
            )

    def streams(self) -> Iterator[BaseDStream]:
        """Yield every stream of the graph once, each before its parents."""
        seen: set[int] = set()
        ordered: list[BaseDStream] = []
        waiting: list[tuple[BaseDStream, bool]] = [
            (stream, False) for stream in (*self.inputs, *(o.parent for o in self.outputs))
        ]
        while waiting:
            stream, parents_done = waiting.pop()
            if parents_done:
                ordered.append(stream)
            elif id(stream) not in seen:
                seen.add(id(stream))
                waiting.append((stream, True))
                waiting.extend((parent, False) for parent in stream.parents)
        yield from reversed(ordered)

    def remember(self, duration_ms: int) -> None:
        """Keep every stream's RDDs and records for that long at least.

        Raises:
            StreamingError: the duration was set before.
        """
        if self._remember_ms is not None:
            raise StreamingError(
                f"Remember duration already set as {self._remember_ms} ms. Cannot set it again.",
                operation="remember",
                hint="call remember() once",
            )
        self._remember_ms = duration_ms

    def initialize(self, zero_ms: int) -> None:
        """Start at that time: set every stream's zero time and remember duration."""
        for stream in self.streams():
            stream.initialize(zero_ms)
            stream.remember(self._remember_ms or 0)
            for parent in stream.parents:
                parent.remember(stream.parent_remember_ms)

    def attach(self, ssc: Program) -> None:
        """Set the context of an unpickled graph."""
        for stream in self.streams():
            stream.attach(ssc)

    def check_offsets(self, starts: tuple[SourceOffset, ...]) -> None:
        """Refuse offsets of other inputs at start, not in a batch; raises RecoveryMismatchError."""
        for stream, start in zip(self.inputs, starts, strict=True):
            stream.check_offset(start)

    def find_ends(
        self, time_ms: int, starts: tuple[SourceOffset, ...], is_missed: bool
    ) -> tuple[SourceRange, ...]:
        """Return each input's range from ``starts`` up to what the batch of a tick may take."""
        ranges = []
        for stream, start in zip(self.inputs, starts, strict=True):
            find = stream.missed_offset if is_missed else stream.latest_offset
            end = find(start, time_ms)
            ranges.append(SourceRange(start, start if end is None else end))  # None: no record yet
        return tuple(ranges)

    def missed_ticks(self, starts: tuple[SourceOffset, ...], passed: range) -> list[int]:
        """Return the missed ticks that need a batch.

        ``starts`` are the start offsets of the next batch. Earlier batches are the remembered ones.
        """
        streams = list(self.streams())
        if not passed or not any(stream.needs_missed_ticks for stream in streams):
            return []
        batches = dict(self._batches)
        taken: dict[BaseDStream, set[int]] = {
            stream: {
                *stream.missed_times(start, passed),
                *(t for t, batch in batches.items() if stream.has_records(batch.sources[place])),
            }
            for place, (stream, start) in enumerate(zip(self.inputs, starts, strict=True))
        }
        return ticks_needed(streams, taken, passed)

    def has_records(self, planned: tuple[SourceRange, ...]) -> bool:
        """Whether any input has records in the ranges that were planned."""
        pairs = zip(self.inputs, planned, strict=True)
        return any(stream.has_records(source) for stream, source in pairs)

    def set_ranges(self, batch: Batch) -> None:
        """Set the batch's range of every input."""
        self._batches[batch.time_ms] = batch
        for stream, planned in self._taken(batch):
            stream.set_range(batch.time_ms, planned)

    def _taken(self, batch: Batch) -> Iterator[tuple[InputDStream, SourceRange]]:
        """Return the batch's range of each input."""
        return zip(self.inputs, batch.sources, strict=True)

    def open_rdd_checkpoints(self, place: RddCheckpoints) -> None:
        """Set the location of RDD checkpoints for every stream."""
        self._rdds = place
        for stream in self.streams():
            stream.open_rdd_checkpoints(place)

    def recall(self, batch: Batch, needed: Mapping[BaseDStream, int]) -> None:
        """Remember a batch of an earlier run, and its ranges of the inputs that need them.

        Args:
            batch: a committed batch.
            needed: for each stream, the time after which its RDDs may be needed.

        Raises:
            PenstockError: records that should exist are missing.
        """
        self._batches[batch.time_ms] = batch
        for stream, taken in self._taken(batch):
            stream.recall(taken)
            if batch.time_ms <= needed[stream]:
                continue
            if stream.can_read_again(taken):
                stream.set_range(batch.time_ms, taken)
            else:
                _log.warning(
                    "The records of batch %d (%s) of stream %s are gone, because no window "
                    "needed them before; windows and state that reach back to it lack them",
                    batch.id,
                    iso_time(batch.time_ms),
                    stream.name,
                )

    def times_between(self, after_ms: int, until_ms: int) -> list[int]:
        """Return the times of remembered batches with ``after_ms < time <= until_ms``."""
        return sorted(t for t in list(self._batches) if after_ms < t <= until_ms)

    @property
    def oldest_id(self) -> int | None:
        """The id of the oldest remembered batch."""
        return min((batch.id for batch in list(self._batches.values())), default=None)

    def input_infos(self, batch: Batch) -> dict[int, StreamInputInfo]:
        """Return the batch's range of each input that reports it, by the input's id."""
        return {
            stream.id: StreamInputInfo(
                stream.id, stream.name, stream.record_count(planned), stream.metadata(planned)
            )
            for stream, planned in self._taken(batch)
            if stream.reports_input
        }

    def find_damage(self, batch: Batch, error: str) -> PenstockError | None:
        """Return the damage of a batch's files that the text of an error names."""
        damages = (each.find_damage(planned, error) for each, planned in self._taken(batch))
        return next((damage for damage in damages if damage is not None), None)

    def update_checkpoint_data(self, batch: Batch) -> None:
        """Make the data durable that a restart needs of a batch, before its commit.

        Raises:
            StorageError: it cannot be written.
        """
        for stream in self.streams():
            if stream.checkpoint_data is not None:
                stream.checkpoint_data.update(batch.time_ms, lambda: max(list(self._batches)))

    def notify_committed(self, batch: Batch) -> bool:
        """Notify every input that a batch is committed; return whether all calls succeeded.

        An input whose call succeeded may be notified again.
        """
        what = f"process the commit of batch {batch.id}"
        taken = [(i, done) for i, done in self._taken(batch) if done.start != done.end]
        calls = [(i, partial(i.on_committed, done)) for i, done in taken]
        return all([_attempt(stream, what, call) for stream, call in calls])

    def forget(self, ended_ms: int) -> None:
        """Drop the RDDs that are not needed when no batch up to that time runs in this run."""
        needed = needed_after(self.streams(), ended_ms)
        for stream in self.streams():
            _clear(stream, partial(stream.clear_metadata, ended_ms, needed[stream]))

    def release(self, done_ms: int) -> None:
        """Release data that no batch of any run needs when those up to that time are done.

        The next call retries failed deletions.
        """
        needed = needed_after(self.streams(), done_ms)
        if self._rdds is not None:
            self._rdds.sweep(done_ms, self.operators.is_abandoned)
        for stream in self.streams():
            _clear(stream, partial(stream.clear_checkpoint_data, done_ms, needed[stream]))
        free_ms = [min(needed[i], done_ms - i.remember_ms) for i in self.inputs]
        for source, until_ms in zip(self.inputs, free_ms, strict=True):
            _clear(source, partial(source.release_ranges, until_ms))
        recalled_ms = min(done_ms - source.recall_ms for source in self.inputs)
        for time_ms in self.times_between(-1, min([recalled_ms, *free_ms])):
            del self._batches[time_ms]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": {}, "_rdds": None}


def _clear(stream: BaseDStream, clean_up: Callable[[], None]) -> None:
    _attempt(stream, "delete data that it no longer needs", clean_up)


def _attempt(stream: BaseDStream, what: str, call: Callable[[], None]) -> bool:
    """Call; return whether it succeeded. Failures are logged, and retried after the next batch."""
    try:
        call()
    except (Exception, SystemExit) as raised:  # an input may be a user's own
        error = printable(raised)
        _log.warning(
            "Stream %s cannot %s now; it is retried when the next batch is done: %s",
            getattr(stream, "name", type(stream).__name__),
            what,
            error,
            exc_info=None if isinstance(error, PenstockError) else error,
        )
        return False
    return True
