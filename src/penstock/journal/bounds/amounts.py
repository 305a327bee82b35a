"""Bounds of a stream, and one receiver's share of what is left of them: pure decisions.

Two things are bounded, both for the stream as a whole, whatever number of receivers write to it:
bytes of blocks as they are on disk, and records that some consumer has not committed. The same
arithmetic serves both, so it is done on pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import ConfigError

__all__ = ["NOTHING", "Amount", "Bounds", "ceiling", "is_near", "is_within"]

_NO_BOUND = 1 << 62
_LEAST_BYTES = 1 << 20
_STORE_SHARE = 4
"""A store takes at most this part of the bound: an open writer's newest block cannot be retired,
and beside it there has to be room for the next one."""
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

    def at_most(self, other: Amount) -> Amount:
        """Return the smaller of each."""
        return self.with_each(other, min)


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a stream may hold; every receiver of a stream is to be given the same.

    Args:
        max_bytes: bytes of all blocks with records, as they are on disk; never exceeded.
        max_lag_records: records that some consumer has not committed (all that are held, while no
            consumer is registered). A single store of more goes through when none is left.

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
        """The largest single store that has a place beside the block before it."""
        return self.amount.size_bytes // _STORE_SHARE

    @property
    def max_block_bytes(self) -> int:
        """The size at which a block is closed."""
        return self.amount.size_bytes // _BLOCK_SHARE


def ceiling(
    bound: Amount, taken: Amount, wanted: Amount | None, others: Amount, open_receivers: int
) -> Amount:
    """Return up to where one receiver may claim.

    It gets an even part of what nobody holds or claims, and a part is left for one that comes;
    when a single store needs more than that, and it is there, that much.

    Args:
        bound: of the stream.
        taken: what this receiver holds and has buffered.
        wanted: what it would hold with the store that waits, None when none does.
        others: what all other receivers hold or claim.
        open_receivers: how many receivers write, this one included.
    """

    def one(bound: int, taken: int, wanted: int, others: int) -> int:
        left = max(0, bound - taken - others)
        even = left // (open_receivers + 1)
        need = wanted - taken
        return taken + (need if even < need <= left else even)

    wish = wanted or taken
    return Amount(
        one(bound.size_bytes, taken.size_bytes, wish.size_bytes, others.size_bytes),
        one(bound.records, taken.records, wish.records, others.records),
    )


def is_near(claim: Amount, target: Amount, taken: Amount) -> bool:
    """Whether a claim can stay although the target moved a little: claims cost a durable write."""
    ahead = (claim - taken).at_least(NOTHING)
    wanted = (target - taken).at_least(NOTHING)
    return is_within(wanted, ahead + ahead) and is_within(ahead, wanted + wanted)


def is_within(amount: Amount, limit: Amount) -> bool:
    """Whether neither is above the limit."""
    return amount.size_bytes <= limit.size_bytes and amount.records <= limit.records
