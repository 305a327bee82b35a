"""Which records a replay has stored already, of those that another program may refuse yet.

Each program that parses a stream leaves a dead letter of its own for a record, perhaps long after
another one's was replayed. The record is to be stored once. So a replay remembers what it stored
until every consumer has committed past it: then there will be no other letter of it.

The memory is durable in the same block as the records: it is a part of the replay's position,
``{"<writer>": [[start, end], ...]}``, half-open ranges of offsets in the source stream. With one
program it is empty but for the batch that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from penstock.journal.layout import parse_writer
from penstock.journal.retention.retirement import floor_of
from penstock.model import Offsets

__all__ = ["ReplayedRecords"]


class ReplayedRecords:
    """Records of one stream that are replayed. Not thread-safe.

    Args:
        ranges: as ``to_json`` returned it.
    """

    def __init__(self, ranges: Mapping[str, Iterable[Sequence[int]]]) -> None:
        self._offsets = {
            writer: {offset for start, end in spans for offset in range(start, end)}
            for writer, spans in ranges.items()
        }

    def take_new(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Return the letters of records that were not replayed, one for each, and note them."""
        new: list[int] = []
        places = zip(
            letters.column("writer").to_pylist(), letters.column("offset").to_pylist(), strict=True
        )
        for row, (writer, offset) in enumerate(places):
            known = self._offsets.setdefault(writer, set())
            if offset not in known:
                known.add(offset)
                new.append(row)
        return letters.take(pa.array(new, pa.int64()))

    def forget_committed(self, committed: Sequence[Offsets]) -> None:
        """Forget the records that all consumers have committed, whose letters are all replayed."""
        for name in list(self._offsets):
            writer = parse_writer(name)
            floor = None if writer is None else floor_of(writer, committed)
            left = set() if floor is None else {at for at in self._offsets[name] if at >= floor}
            self._offsets[name] = left

    def to_json(self) -> dict[str, list[list[int]]]:
        """Return the records as ranges, by writer."""
        return {writer: _spans(offsets) for writer, offsets in self._offsets.items() if offsets}


def _spans(offsets: Iterable[int]) -> list[list[int]]:
    spans: list[list[int]] = []
    for offset in sorted(offsets):
        if spans and spans[-1][1] == offset:
            spans[-1][1] = offset + 1
        else:
            spans.append([offset, offset + 1])
    return spans
