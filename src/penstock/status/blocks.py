"""When the blocks of a stream were published, by their files' times: one listing, no block is read.

That tells rates and ages of what live and dead processes wrote alike. Where a store tells no times
there are none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from penstock.journal.layout import parse_block_start, parse_writer
from penstock.journal.offsets import is_finished
from penstock.model import Offsets
from penstock.storage import FileInfo

_WINDOW_MS = 60_000
"""Rates are those of the last minute."""


@dataclass(frozen=True, slots=True)
class Published:
    """The blocks of one writer, ascending, and where it ends."""

    starts: tuple[int, ...]
    """Empty, as the times, where the store does not tell when blocks were published."""
    times_ms: tuple[int, ...]
    end: int

    def since(self, now_ms: int) -> tuple[int, int]:
        """Return the records and the blocks that were published in the last minute."""
        blocks = zip(pairwise((*self.starts, self.end)), self.times_ms, strict=True)
        counts = [
            end - start
            for (start, end), time_ms in blocks
            if end > start and time_ms > now_ms - _WINDOW_MS
        ]
        return sum(counts), len(counts)

    def oldest_after(self, offset: int) -> int | None:
        """Return when the block was published that holds the first record from an offset on."""
        if offset >= self.end or not self.times_ms:
            return None
        return self.times_ms[max(bisect_right(self.starts, offset) - 1, 0)]


def published_blocks(files: Iterable[FileInfo], ends: Mapping[str, int]) -> dict[str, Published]:
    """Return the blocks of each writer.

    Args:
        files: the files of a stream, as ``Storage.walk`` lists them.
        ends: where each writer ends; one that is not named is left out.
    """
    found: dict[str, list[tuple[int, int | None]]] = {}
    for file in files:
        parts = file.path.split("/")
        start = parse_block_start(parts[-1])
        if start is not None and len(parts) > 1 and parts[-2] in ends:
            found.setdefault(parts[-2], []).append((start, file.modified_ms))
    return {writer: _published(blocks, ends[writer]) for writer, blocks in found.items()}


def _published(blocks: list[tuple[int, int | None]], end: int) -> Published:
    blocks.sort()
    times = tuple(time_ms for _, time_ms in blocks if time_ms is not None)
    if len(times) < len(blocks):  # a store that does not tell
        return Published((), (), end)
    return Published(tuple(start for start, _ in blocks), times, end)


def oldest_untaken(blocks: Mapping[str, Published], taken: Offsets) -> int | None:
    """Return when the oldest block was published of which ``taken`` has not all; None without."""
    times = []
    for name, published in blocks.items():
        writer = parse_writer(name)
        if writer is not None and not is_finished(writer, taken):
            times.append(published.oldest_after(taken.get(name, 0)))
    return min((each for each in times if each is not None), default=None)
