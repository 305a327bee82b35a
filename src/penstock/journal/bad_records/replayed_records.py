"""Which records a replay has stored already, of those that another program may refuse yet.

Each program that parses a stream leaves a dead letter of its own for a record, perhaps long after
another one's was replayed. The record is to be stored once. So a replay remembers what it stored
for as long as the journal holds the record's block: a program that starts later with "earliest"
reads that block, too, however far the others have committed. When it is deleted, there will be no
other letter of it.

The memory is durable in the same block as the records: it is a part of the replay's position,
``{"<writer>": [[start, end], ...]}``, half-open ranges of offsets in the source stream. It is
bounded by what retention keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

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

    def forget_before(self, oldest: Offsets) -> None:
        """Forget the records before the oldest ones held, whose letters are all replayed."""
        for writer, offsets in self._offsets.items():
            first = oldest.get(writer, 0)
            self._offsets[writer] = {offset for offset in offsets if offset >= first}

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
