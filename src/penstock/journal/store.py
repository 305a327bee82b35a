"""One call to a journal writer, as a value: its records, and the ack to call when durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.journal.positions import DeferredPosition

Ack = Callable[[], None]

_OBJECT_OVERHEAD = 64
"""Bytes of a buffered object besides its content: many empty records also need memory."""


@dataclass(frozen=True, slots=True)
class Store:
    """The checked data of one call; the writer owns it."""

    items: Sequence[Any]
    """Batches with rows, or single values."""
    count: int
    content_bytes: int
    position: str | DeferredPosition | None
    """JSON text, so that later changes of the source's position object do not affect it."""
    ack: Ack | None

    @property
    def position_bytes(self) -> int:
        """What its position takes in a block at most; 0 of a deferred one, which is not known."""
        return 2 * len(self.position) if isinstance(self.position, str) else 0

    @property
    def size_bytes(self) -> int:
        """The memory that it uses until it is published; a position alone uses none."""
        objects = len(self.items) + (self.ack is not None)
        return self.content_bytes + objects * _OBJECT_OVERHEAD
