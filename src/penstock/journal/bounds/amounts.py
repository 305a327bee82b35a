"""Bounds of what one receiver holds in the journal, and the arithmetic on them: plain values.

Two things are bounded, both of blocks that some consumer has not committed: their bytes on disk,
and their records. The same arithmetic serves both, so it is done on pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import ConfigError

_NO_BOUND = 1 << 62
_LEAST_BYTES = 1 << 20
_STORE_SHARE = 4
"""A store takes at most this part of the bound: a block of which a batch took only a part counts in
full, and beside it there has to be room for the next one."""
_BLOCK_SHARE = 16


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes on disk, and records."""

    size_bytes: int = 0
    records: int = 0

    def __add__(self, other: Amount) -> Amount:
        return self.with_each(other, int.__add__)

    def __sub__(self, other: Amount) -> Amount:
        return self.with_each(other, int.__sub__)

    def with_each(self, other: Amount, rule: Callable[[int, int], int]) -> Amount:
        """Return ``rule`` of the two byte counts, and of the two record counts."""
        return Amount(rule(self.size_bytes, other.size_bytes), rule(self.records, other.records))

    def at_least(self, other: Amount) -> Amount:
        """Return the larger of each."""
        return self.with_each(other, max)


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one receiver may hold, over all of its epochs.

    Args:
        max_bytes: bytes of its blocks that some consumer has not committed, as they are on disk;
            never exceeded.
        max_lag_records: its records that some consumer has not committed. A single store of more
            goes through when none is left.
        While no consumer is registered, all that is held counts.

    Raises:
        ConfigError: a bound is too small to work with.
    """

    max_bytes: int | None = None
    max_lag_records: int | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("max_journal_bytes", self.max_bytes, _LEAST_BYTES),
            ("max_lag_records", self.max_lag_records, 1),
        ):
            if value is not None and value < least:
                raise ConfigError(
                    f"{name} is {value}",
                    operation="bound journal",
                    hint=f"give {least} or more, or leave it out for no bound",
                )

    @property
    def is_set(self) -> bool:
        """Whether anything is bounded."""
        return self.max_bytes is not None or self.max_lag_records is not None

    @property
    def amount(self) -> Amount:
        """Both as one pair."""
        return Amount(
            _NO_BOUND if self.max_bytes is None else self.max_bytes,
            _NO_BOUND if self.max_lag_records is None else self.max_lag_records,
        )

    @property
    def max_store_bytes(self) -> int:
        """The largest single store that fits beside the block before it."""
        return self.amount.size_bytes // _STORE_SHARE

    @property
    def max_block_bytes(self) -> int:
        """The size at which a block is closed."""
        return self.amount.size_bytes // _BLOCK_SHARE


def is_within(amount: Amount, limit: Amount) -> bool:
    """Whether neither is above the limit."""
    return amount.size_bytes <= limit.size_bytes and amount.records <= limit.records
