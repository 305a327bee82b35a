"""Records that were read and are not stored yet. Pure."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Taken"]


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows of several partitions, those of each in order."""

    rows: pa.RecordBatch
    parts: npt.NDArray[Any]
    """Of each row its partition, ``topic/partition``."""
    offsets: npt.NDArray[np.int64]

    @staticmethod
    def of_runs(rows: pa.RecordBatch, runs: Sequence[tuple[str, npt.NDArray[np.int64]]]) -> Taken:
        """Return rows that are runs of one partition each, given the offsets of each run."""
        names = np.array([part for part, _ in runs], object)
        offsets = [each for _, each in runs]
        return Taken(rows, np.repeat(names, [*map(len, offsets)]), np.concatenate(offsets))

    def __len__(self) -> int:
        return len(self.offsets)

    def before(self, row: int) -> Taken:
        """Return the rows up to one."""
        return Taken(self.rows.slice(0, row), self.parts[:row], self.offsets[:row])

    def after(self, row: int) -> Taken:
        """Return the rows from one on."""
        return Taken(self.rows.slice(row), self.parts[row:], self.offsets[row:])

    def within(self, count: int, size_bytes: int) -> Taken:
        """Return so many first rows, or fewer, that they are not larger; at least one of them."""
        found = self.before(count)
        while found.rows.nbytes > size_bytes and len(found) > 1:
            found = found.before(len(found) // 2)
        return found

    def without(self, parts: Container[str]) -> Taken:
        """Return the rows of other partitions."""
        wanted = [part not in parts for part in self.parts]
        return Taken(
            self.rows.filter(pa.array(wanted, pa.bool_())), self.parts[wanted], self.offsets[wanted]
        )

    def followed_by(self, others: Taken) -> Taken:
        """Return these rows and others."""
        return Taken(
            pa.concat_batches([self.rows, others.rows]),
            np.concatenate([self.parts, others.parts]),
            np.concatenate([self.offsets, others.offsets]),
        )

    def ends(self) -> dict[str, int]:
        """Return where the rows of each partition end."""
        last = dict(zip(self.parts.tolist(), self.offsets.tolist(), strict=True))
        return {part: offset + 1 for part, offset in last.items()}
