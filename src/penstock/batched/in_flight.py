"""Which ranges are being worked on, and how far each partition is done. Pure.

A batch is the ranges that were planned together, at most one of each partition, each from where the
one before it ended. They may be done in any order, across batches too. Invariants:

1. A partition is done up to the end of the last range before the first one that is not done.
2. A batch is done when all its ranges are, which ``finish`` tells once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.kafka.offsets import KafkaRange, partition_name
from penstock.model import Offsets


@dataclass(slots=True)
class _Partition:
    end: int
    waiting: deque[KafkaRange] = field(default_factory=deque)
    finished: set[KafkaRange] = field(default_factory=set)

    def finish(self, done: KafkaRange) -> None:
        self.finished.add(done)
        while self.waiting and self.waiting[0] in self.finished:
            first = self.waiting.popleft()
            self.finished.remove(first)
            self.end = first.end_offset


class InFlight:
    """The batches in flight of one program. Not thread-safe."""

    def __init__(self) -> None:
        self._partitions: dict[str, _Partition] = {}
        self._batches: dict[int, set[KafkaRange]] = {}
        self._batch_of: dict[KafkaRange, int] = {}
        self._begun = 0

    def begin(self, ranges: Iterable[KafkaRange]) -> None:
        """Take in a batch, before anything of it is read."""
        self._begun += 1
        self._batches[self._begun] = set(ranges)
        for each in ranges:
            name = partition_name(each.topic, each.partition)
            partition = self._partitions.setdefault(name, _Partition(each.start_offset))
            partition.waiting.append(each)
            self._batch_of[each] = self._begun

    def finish(self, ranges: Iterable[KafkaRange]) -> bool:
        """Take in that ranges of any batches are done; return whether that completes a batch."""
        is_done = False
        for each in ranges:
            number = self._batch_of.pop(each)
            self._partitions[partition_name(each.topic, each.partition)].finish(each)
            self._batches[number].remove(each)
            if not self._batches[number]:
                del self._batches[number]
                is_done = True
        return is_done

    def done(self) -> Offsets:
        """Return how far each partition is done that a batch has touched."""
        return {name: partition.end for name, partition in self._partitions.items()}

    def ranges(self) -> set[KafkaRange]:
        """Return the ranges that are not done."""
        return set(self._batch_of)
