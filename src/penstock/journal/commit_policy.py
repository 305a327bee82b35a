"""When to publish: the group commit's decision, as a pure function.

A publish costs about a millisecond whatever it holds, so many small stores share one. Publishing at
once is right when nobody else is about to come; under load a few milliseconds of patience let
hundreds of waiting clients into one block (measured: 512 connections, 7.4 k durable requests/s with
5 ms spacing). Without anybody waiting, blocks grow until the block interval, as in Spark
(``spark.streaming.blockInterval``).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CommitPolicy", "GroupFacts"]


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The group of stores that will be the next block. Times are seconds on one monotonic clock."""

    count: int
    size_bytes: int
    first_store_s: float
    first_waiter_s: float | None
    """When somebody began to wait for durability (an ack, a blocking store, a flush), if anybody."""


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """Bounds of a block."""

    block_interval_ms: int = 200
    spacing_ms: int = 5
    max_block_bytes: int = 16 << 20
    max_block_records: int = 1_000_000

    def is_full(self, group: GroupFacts) -> bool:
        """Whether the group has reached the size or record cap."""
        return group.size_bytes >= self.max_block_bytes or group.count >= self.max_block_records

    def due_s(self, group: GroupFacts, last_publish_s: float, *, publishing: bool) -> float | None:
        """Return when to close the group and publish it; None while only an event can tell.

        ``last_publish_s`` is when the latest publish began, ``publishing`` whether it still runs.
        A full group is due at once: it is encoded while the one before it is being published.
        """
        if self.is_full(group):
            return group.first_store_s
        if publishing:
            return None
        by_interval = group.first_store_s + self.block_interval_ms / 1000
        if group.first_waiter_s is None:
            return by_interval
        return min(by_interval, max(group.first_waiter_s, last_publish_s + self.spacing_ms / 1000))
