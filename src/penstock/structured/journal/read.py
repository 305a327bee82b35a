"""Reads the block slices of a task as Arrow batches. Runs in executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.journal.gathering import gathered
from penstock.journal.reader import read_slices
from penstock.journal.slices import BlockSlice, pack_slices, task_count
from penstock.journal.stream import JournalStream
from penstock.workers import freeze_imports

_TASK_BYTES = 1 << 20
_TASK_BLOCKS = 100


_plain = attrgetter(*(each.name for each in fields(BlockSlice)))


class BlockPartition(InputPartition):
    """The slices of one task, as plain values: a batch may have ten thousand."""

    def __init__(self, slices: Sequence[BlockSlice]) -> None:
        super().__init__([_plain(each) for each in slices])

    @property
    def slices(self) -> list[BlockSlice]:
        """The slices."""
        return [BlockSlice(*values) for values in self.value]


@dataclass(frozen=True)
class BlockReader:
    """Reads tasks of one stream."""

    stream: JournalStream
    schema: pa.Schema
    """Of the batches: columns of the stream, in types that Spark takes."""

    def __call__(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task. Raises as ``read_batches``."""
        freeze_imports()
        slices = partition.slices if isinstance(partition, BlockPartition) else []
        for batch in gathered(read_slices(self.stream, slices)):
            yield batch.select(self.schema.names).cast(self.schema)


def tasks_of(
    stream: JournalStream, slices: Sequence[BlockSlice], slots: int
) -> list[BlockPartition]:
    """Return the tasks that read the slices if ``slots`` of them can run at once.

    A task with a Python worker costs as much as reading about a megabyte, or a hundred blocks.
    Where each block is a request to a store, waiting costs most.
    """
    count = task_count(slices, slots)
    if stream.storage.url.startswith("file:"):
        size = sum(part.size for part in slices)
        count = min(count, max(-(-size // _TASK_BYTES), -(-len(slices) // _TASK_BLOCKS)))
    return [BlockPartition(task) for task in pack_slices(slices, count)]
