"""What a supervisor acts on; receivers, writers and orders leave it events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.receivers.control import Order

__all__ = ["Event", "in_force"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a receiver."""

    kind: Literal["restart", "stop", "superseded", "writer_failed"]
    message: str = ""
    error: BaseException | None = None
    delay_ms: int | None = None
    """Before a restart, where the receiver chose it."""

    @property
    def ends(self) -> bool:
        """Whether the receiver is to end, rather than to be brought back."""
        return self.kind in ("stop", "superseded")


def in_force(order: Order, run: str) -> Order | Event:
    """Return the order that a receiver of this run keeps to, or the event that it is to end."""
    if order.stop:
        return Event("stop", "ordered")
    if order.run != run:
        return Event("superseded", "another process runs this receiver")
    return order
