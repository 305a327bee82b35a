"""The events of a supervisor, which receivers, writers and commands leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

End = Literal["commanded", "asked", "superseded"]
"""Why a receiver ended well: its run commanded it, the receiver itself asked for it (or the journal
is full and it is not to wait), or a later run took it over."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a receiver."""

    kind: Literal["restart", "writer_failed"] | End
    message: str = ""
    error: BaseException | None = None
    delay_ms: int | None = None
    """Before a restart, where the receiver chose it."""

    @property
    def end(self) -> End | None:
        """Why the receiver has to end, None if it is restarted."""
        if self.kind == "restart" or self.kind == "writer_failed":
            return None
        return self.kind
