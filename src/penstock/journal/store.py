"""One call to a journal writer, as a value: what it brings, and who is told when it is durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.journal.positions import DeferredPosition

__all__ = ["Ack", "Store"]

Ack = Callable[[], None]

_OBJECT_OVERHEAD = 64
"""Bytes that a buffered object takes beside its content: many empty records need memory, too."""


@dataclass(frozen=True, slots=True)
class Store:
    """What one call hands to the writer: checked, and of no further concern to the caller."""

    items: Sequence[Any]
    """Batches with rows, or single values."""
    count: int
    content_bytes: int
    position: str | DeferredPosition | None
    """JSON text, so that a source that changes its position object does not change this one."""
    ack: Ack | None

    @property
    def size_bytes(self) -> int:
        """The memory that it takes until it is published; a position alone takes none."""
        objects = len(self.items) + (self.ack is not None)
        return self.content_bytes + objects * _OBJECT_OVERHEAD
