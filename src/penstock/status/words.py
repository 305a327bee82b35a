"""Numbers, times and sizes as people read them. A dash stands for what nothing tells."""

from __future__ import annotations

from datetime import datetime, timezone

UNKNOWN = "–"  # noqa: RUF001 (a dash as wide as a digit)
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")


def ago(time_ms: int | None, now_ms: int) -> str:
    """Return how long ago a time is: ``just now``, ``12 s ago``."""
    if time_ms is None:
        return UNKNOWN
    seconds = (now_ms - time_ms) // 1000
    return f"{duration(1000 * seconds)} ago" if seconds > 0 else "just now"


def duration(time_ms: int | None) -> str:
    """Return a duration as people say it: ``350 ms``, ``12 s``, ``3 min``, ``2.5 h``."""
    if time_ms is None:
        return UNKNOWN
    if time_ms < 1000:
        return f"{time_ms} ms"
    seconds = time_ms / 1000
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            amount = seconds / length
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.2g} {unit}"
    return f"{seconds:.3g} s"


def size(size_bytes: int | None) -> str:
    """Return bytes as people say it: ``512 bytes``, ``12.4 MiB``."""
    if size_bytes is None:
        return UNKNOWN
    amount = float(size_bytes)
    for unit in _SIZES:
        if amount < 1024 or unit == _SIZES[-1]:
            break
        amount /= 1024
    if unit == "bytes":
        return f"{size_bytes} bytes"
    return f"{amount:,.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"


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
