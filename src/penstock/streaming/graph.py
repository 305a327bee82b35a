"""The graph of a program: its inputs, its outputs, and all streams between them. Pickles whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, StreamingError
from penstock.streaming.batch import Batch, SourceOffset, SourceRange
from penstock.streaming.dstream import DStream
from penstock.streaming.inputs import InputDStream, QueueInputDStream
from penstock.streaming.outputs import OutputOperation
from penstock.streaming.receiver_input import ReceiverInputDStream

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext

__all__ = ["DStreamGraph"]


class DStreamGraph:
    """Source: ``org.apache.spark.streaming.DStreamGraph``."""

    def __init__(self, batch_interval_ms: int) -> None:
        self.batch_interval_ms = batch_interval_ms
        self.inputs: list[InputDStream] = []
        self.outputs: list[OutputOperation] = []

    @property
    def remember_ms(self) -> int:
        """How long a batch's RDDs and records may still be needed after its time."""
        return self.batch_interval_ms

    @property
    def receiver_inputs(self) -> list[ReceiverInputDStream]:
        """The inputs that a receiver feeds."""
        return [i for i in self.inputs if isinstance(i, ReceiverInputDStream)]

    def has_queue(self) -> bool:
        """Whether an input holds its data in this process's memory only."""
        return any(isinstance(stream, QueueInputDStream) for stream in self.inputs)

    def add_input(self, stream: InputDStream) -> None:
        """Add an input; its name must be its own."""
        if any(known.name == stream.name for known in self.inputs):
            raise StreamingError(
                f"two inputs are named {stream.name!r}",
                operation="add input",
                ids={"stream": stream.name},
                hint="give each input a name of its own (name=)",
            )
        self.inputs.append(stream)

    def add_output(self, output: OutputOperation) -> None:
        """Add an output operation."""
        output.parent.ssc.check_changeable("add an output operation")
        self.outputs.append(output)

    def validate(self) -> None:
        """Check that there is something to run.

        Raises:
            StreamingError: no output operation was registered.
        """
        if not self.outputs:
            raise StreamingError(
                "No output operations registered, so nothing to execute",
                operation="start",
                hint="call foreachRDD, foreachBatch or pprint on a stream",
            )

    def streams(self) -> Iterator[DStream]:
        """Yield every stream of the graph once."""
        seen: set[int] = set()
        waiting: list[DStream] = [*self.inputs, *(output.parent for output in self.outputs)]
        while waiting:
            stream = waiting.pop()
            if id(stream) not in seen:
                seen.add(id(stream))
                waiting.extend(stream.parents)
                yield stream

    def attach(self, ssc: StreamingContext) -> None:
        """Give a graph that was unpickled its context."""
        for stream in self.streams():
            stream.attach(ssc)

    def check_offsets(self, starts: tuple[SourceOffset, ...]) -> None:
        """Refuse offsets of other inputs at start, not in a batch; raises RecoveryMismatchError."""
        for stream, start in zip(self.inputs, starts, strict=True):
            stream.partitions(start)

    def plan(self, starts: tuple[SourceOffset, ...]) -> tuple[SourceRange, ...]:
        """Return what the next batch takes of each input, all that is there after ``starts``."""
        pairs = zip(self.inputs, starts, strict=True)
        return tuple(SourceRange(start, i.latest_offset(start)) for i, start in pairs)

    def begin(self, batch: Batch) -> None:
        """Tell every input which records the batch takes."""
        for stream, planned in zip(self.inputs, batch.sources, strict=True):
            stream.set_range(batch.time_ms, planned)

    def record_count(self, batch: Batch) -> int:
        """Return how many records the batch takes of all inputs."""
        pairs = zip(self.inputs, batch.sources, strict=True)
        return sum(stream.record_count(planned) for stream, planned in pairs)

    def find_damage(self, batch: Batch) -> PenstockError | None:
        """Return what is damaged in the records of a batch, None when all of them can be read."""
        pairs = zip(self.inputs, batch.sources, strict=True)
        damages = (stream.find_damage(planned) for stream, planned in pairs)
        return next((damage for damage in damages if damage is not None), None)

    def clear_metadata(self, time_ms: int) -> None:
        """Forget what batches up to that time needed, but for what is to be remembered."""
        before_ms = time_ms - self.remember_ms + self.batch_interval_ms
        for stream in self.streams():
            stream.clear_metadata(before_ms)
