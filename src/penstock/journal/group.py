"""The group that will be the next block: what a group commit has gathered so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.journal.block import BlockFooter
from penstock.journal.commit_policy import GroupFacts

__all__ = ["Ack", "EncodedGroup", "Group"]

Ack = Callable[[], None]


class Group:
    """Stores that become durable together. Not thread-safe: the writer's lock guards it."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        """Batches, and lists of single values between them, in the order of the stores."""
        self.count = 0
        self.size_bytes = 0
        self.position: Any = None
        self.acks: list[Ack] = []
        self._first_store_s = 0.0
        self._first_waiter_s: float | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything in this group."""
        return not self.count and not self.acks

    @property
    def has_waiter(self) -> bool:
        """Whether somebody waits for this group to become durable."""
        return self._first_waiter_s is not None

    def add_value(self, value: Any, size: int) -> None:
        """Add one checked record."""
        if not self.items or not isinstance(self.items[-1], list):
            self.items.append([])
        self.items[-1].append(value)
        self._grow(1, size)

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add a batch of the stream's schema; an empty one adds nothing."""
        if batch.num_rows:
            self.items.append(batch)
            self._grow(batch.num_rows, batch.nbytes)

    def note_waiter(self) -> None:
        """Note that somebody waits for this group to become durable."""
        if self._first_waiter_s is None:
            self._first_waiter_s = time.monotonic()

    def facts(self) -> GroupFacts:
        """Return what the commit policy decides by."""
        return GroupFacts(self.count, self.size_bytes, self._first_store_s, self._first_waiter_s)

    def _grow(self, count: int, size: int) -> None:
        if not self.count:
            self._first_store_s = time.monotonic()
        self.count += count
        self.size_bytes += size


@dataclass(frozen=True, slots=True)
class EncodedGroup:
    """A closed group on its way to the storage; no data when it holds acks but no records."""

    group: Group
    footer: BlockFooter
    data: pa.Buffer | None
