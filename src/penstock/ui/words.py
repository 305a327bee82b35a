"""Numbers, times and sizes as people read them. A dash stands for what nothing tells."""

from __future__ import annotations

from datetime import datetime, timezone

from penstock.status import ago, duration
from penstock.status import size as size_of

__all__ = ["UNKNOWN", "age", "clock", "count", "day_and_clock", "delay", "rate", "size"]

UNKNOWN = "–"  # noqa: RUF001 (a dash as wide as a digit)


def count(number: int | None) -> str:
    """Return a whole number: ``1,204,883``."""
    return UNKNOWN if number is None else f"{number:,}"


def rate(per_s: float | None) -> str:
    """Return records per second, with three digits that count."""
    if per_s is None:
        return UNKNOWN
    if per_s >= 100 or per_s == 0:
        return f"{per_s:,.0f}"
    return f"{per_s:.3g}"


def delay(time_ms: int | None) -> str:
    """Return a duration: ``350 ms``, ``2.4 s``, ``3 min``."""
    return UNKNOWN if time_ms is None else duration(time_ms)


def age(time_ms: int | None, now_ms: int) -> str:
    """Return how long ago a time is."""
    return UNKNOWN if time_ms is None else ago(time_ms, now_ms)


def size(size_bytes: int | None) -> str:
    """Return bytes: ``12.4 MiB``."""
    return UNKNOWN if size_bytes is None else size_of(size_bytes)


def clock(time_ms: int | None) -> str:
    """Return the time of day, UTC."""
    return _formatted(time_ms, "%H:%M:%S")


def day_and_clock(time_ms: int | None) -> str:
    """Return day and time, UTC."""
    return _formatted(time_ms, "%Y-%m-%d %H:%M:%S")


def _formatted(time_ms: int | None, form: str) -> str:
    if time_ms is None:
        return UNKNOWN
    try:
        return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime(form)
    except (OverflowError, ValueError, OSError):  # no year of ours
        return UNKNOWN
