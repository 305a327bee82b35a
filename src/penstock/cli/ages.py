"""How long ago something was, in words."""

from __future__ import annotations

import time

__all__ = ["age_in_words"]

_UNITS = (("days", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def age_in_words(time_ms: int) -> str:
    """Return the age of a time, ms since the epoch, by this host's clock: ``3 min ago``."""
    age_s = time.time_ns() // 1_000_000_000 - time_ms // 1000
    for unit, seconds in _UNITS:
        if age_s >= 2 * seconds:
            return f"{age_s // seconds} {unit} ago"
    return "just now"
