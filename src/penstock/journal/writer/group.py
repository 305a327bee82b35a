"""The group that will be the next block: the stores of a group commit so far."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.journal.block import BlockFooter
from penstock.journal.bounds.amounts import NOTHING
from penstock.journal.positions import DeferredPosition
from penstock.journal.store import Ack, Store
from penstock.journal.writer.commit_policy import GroupFacts


class Group:
    """Stores that become durable together. Not thread-safe: the buffer fills it under its lock."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        """Batches, and lists of single values between them, in the order of the stores."""
        self.count = 0
        self.size_bytes = 0
        self.position: str | None = None
        """The last one that is not deferred."""
        self.last_deferred: DeferredPosition | None = None
        """The last deferred one, unless ``position`` came after it."""
        self.deferred: list[tuple[DeferredPosition, int, int]] = []
        """Positions to be placed, with the start and end of their records within this group."""
        self.reserved = NOTHING
        """The most that its block may use of the stream's bounds; nothing without bounds."""
        self.acks: list[Ack] = []
        self._first_store_s = 0.0
        self._first_waiter_s: float | None = None

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to publish, and no ack to call.

        A position alone is no reason to publish: it waits for the next records, or the seal.
        """
        return not self.count and not self.acks

    @property
    def has_waiter(self) -> bool:
        """Whether a caller waits for this group to become durable."""
        return self._first_waiter_s is not None

    def add(self, store: Store) -> None:
        """Add the records, the position and the ack of one store."""
        if store.count and not self.count:
            self._first_store_s = time.monotonic()
        for item in store.items:
            if isinstance(item, pa.RecordBatch):
                self.items.append(item)
            else:
                self._values().append(item)
        if isinstance(store.position, DeferredPosition):
            self.deferred.append((store.position, self.count, self.count + store.count))
            self.last_deferred = store.position
        elif store.position is not None:
            self.position, self.last_deferred = store.position, None
        self.count += store.count
        self.size_bytes += store.size_bytes
        if store.ack is not None:
            self.acks.append(store.ack)
            self.note_waiter()

    def note_waiter(self) -> None:
        """Note that a caller waits for this group to become durable."""
        if self._first_waiter_s is None:
            self._first_waiter_s = time.monotonic()

    def facts(self) -> GroupFacts:
        """Return the input of the commit policy."""
        return GroupFacts(self.count, self.size_bytes, self._first_store_s, self._first_waiter_s)

    def _values(self) -> list[Any]:
        if not self.items or not isinstance(self.items[-1], list):
            self.items.append([])
        values: list[Any] = self.items[-1]
        return values


@dataclass(frozen=True, slots=True)
class EncodedGroup:
    """A closed group on its way to the storage; no data when it holds acks but no records."""

    group: Group
    footer: BlockFooter
    data: pa.Buffer | None
