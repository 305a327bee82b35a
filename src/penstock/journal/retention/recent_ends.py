"""The ends of a consumer's recent batches, for a reader that has no offset log at hand.

A program that keeps its offset log reads there where its oldest batch begins that may be processed
again. The reader of a Structured Streaming query does not know the query's checkpoint location: it
is told the end of each committed batch, late, again, or never. So the consumer's own file remembers
the ends, from the oldest one that is needed on.

Invariants:

1. ``oldest`` is at or before the end of each of the last ``keep`` batches that were committed.
   A batch whose commit never came is not counted, so more is kept, never less.
2. Every ``keep / 10``-th end is enough: at most a tenth more is kept, and the file stays small.

Pure.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from penstock.journal.offsets import precedes
from penstock.model import Offsets

_MARKS = 10


@dataclass(frozen=True, slots=True)
class RecentEnds:
    """How many batches were committed, and where some of the last ones ended."""

    count: int
    marks: tuple[tuple[int, Offsets], ...]
    """The number of a batch and its end, oldest first; at least one."""

    @staticmethod
    def begin_at(offsets: Offsets) -> RecentEnds:
        """Return the ends of a consumer that begins at ``offsets``."""
        return RecentEnds(0, ((0, offsets),))

    @property
    def oldest(self) -> Offsets:
        """The offsets from which blocks are kept."""
        return self.marks[0][1]

    def after(self, end: Offsets, keep: int) -> RecentEnds:
        """Return the ends when one more batch is committed, of which ``keep`` may be read again."""
        count = self.count + 1
        marks = self.marks
        if count - marks[-1][0] >= max(1, keep // _MARKS):
            marks = (*marks, (count, end))
        needless = sum(1 for _, (number, _) in itertools.pairwise(marks) if number <= count - keep)
        return RecentEnds(count, marks[needless:])

    def back_to(self, start: Offsets) -> RecentEnds:
        """Return the ends when the query was taken back to ``start``: those behind it are void."""
        before = tuple(mark for mark in self.marks if not precedes(start, mark[1]))
        return RecentEnds(self.count, before or ((self.count, start),))
