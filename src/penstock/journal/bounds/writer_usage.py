"""What one writer has taken of its receiver's bounds, against what it may take.

Bytes are known only when a block is encoded, and a store must be refused before it is taken. So a
store reserves what its records take at most; the publish replaces that by what the block has.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.journal.bounds.amounts import NOTHING, Amount, Bounds, is_within
from penstock.journal.store import Store

_MAX_GROUPS = 4
"""Groups of a writer that can be under way, each with a block's overhead."""
_BLOCK_OVERHEAD_BYTES = 4096
_COLUMN_OVERHEAD_BYTES = 512
_WIDENED_BYTES = 4
"""Parquet keeps small types wider than Arrow, and lengths of text in as many bytes."""


@dataclass(frozen=True, slots=True)
class UsageCounts:
    """A writer's counters at one moment; all count from the writer's start."""

    published: Amount
    taken: Amount
    """Published, or buffered for it."""
    wanted: Amount | None
    """What ``taken`` would be with the largest store that did not fit since they were last read."""


class WriterUsage:
    """Counts for one writer. Not thread-safe: the lock of the writer's buffer guards it."""

    def __init__(self, bounds: Bounds, columns: int) -> None:
        self.is_bounded = bounds.is_set
        self._limit = NOTHING  # until the quota is known
        self._records_at_most = bounds.amount.records
        self._bound_bytes = bounds.amount.size_bytes
        self._overhead = _BLOCK_OVERHEAD_BYTES + columns * _COLUMN_OVERHEAD_BYTES
        self._columns = columns
        self._published = NOTHING
        self._reserved = NOTHING
        self._wanted: Amount | None = None

    def limit_to(self, limit: Amount) -> Amount:
        """Allow so much in all; return the effective limit, which is never below what was taken."""
        self._limit = limit.at_least(self._taken())
        return self._limit

    def may_take(self, store: Store) -> bool:
        """Whether a store may be taken now; one that may not is remembered as wanted."""
        if not self.is_bounded or not store.count:
            return True
        cost = self._estimate(store)
        need = self._taken_with(Amount(cost.size_bytes, min(cost.records, self._records_at_most)))
        if is_within(need, self._limit):
            return True
        self._wanted = need if self._wanted is None else self._wanted.at_least(need)
        return False

    def take(self, store: Store) -> Amount:
        """Count a store as buffered; return what is reserved for it."""
        reserved = self._estimate(store)
        self._reserved += reserved
        return reserved

    def fits(self, size_bytes: int) -> bool:
        """Whether a block of that many bytes may be published: what makes the bound a hard one."""
        if not self.is_bounded:
            return True
        need = self._published.size_bytes + size_bytes
        if need <= self._limit.size_bytes:
            return True
        wanted = Amount(need, self._taken().records)
        self._wanted = wanted if self._wanted is None else self._wanted.at_least(wanted)
        return False

    def can_fit(self, size_bytes: int) -> bool:
        """Whether a block of that many bytes will ever fit, whatever is retired."""
        return size_bytes <= self._bound_bytes

    def settle(self, reserved: Amount, size_bytes: int) -> None:
        """Count what was reserved for a block as published, with the bytes that it has."""
        self._reserved -= reserved
        self._published += Amount(size_bytes, reserved.records)

    def counts(self) -> UsageCounts:
        """Return the counters; ``wanted`` begins anew."""
        wanted, self._wanted = self._wanted, None
        return UsageCounts(self._published, self._taken(), wanted)

    def _estimate(self, store: Store) -> Amount:
        if not store.count:
            return NOTHING  # an ack's turn, or a position that waits for the next block
        widened = _WIDENED_BYTES * self._columns * store.count
        return Amount(store.content_bytes + widened + store.position_bytes, store.count)

    def _taken(self) -> Amount:
        return self._taken_with(NOTHING) if self._reserved.records else self._published

    def _taken_with(self, cost: Amount) -> Amount:
        return self._published + self._reserved + cost + Amount(_MAX_GROUPS * self._overhead, 0)
