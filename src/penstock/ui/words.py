"""Numbers, times and sizes as people read them. A dash stands for what nothing tells."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from penstock.status import ago, duration
from penstock.status import size as size_of

UNKNOWN = "–"  # noqa: RUF001 (a dash as wide as a digit)


_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_TERM = re.compile(rf"\b(latestRate|historicalError|processingRate) = ({_NUMBER})")
_TERMS = 3
_COSTS = re.compile(
    r"([0-9]+\.[0-9]) ms \+ ([0-9]+\.[0-9]+) us a record, noise ([0-9]+%), "
    r"target ([0-9]+%) of the interval$"
)
_LONG_NUMBER = re.compile(r"[0-9]+\.[0-9]{3,}(?![0-9.])")


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


def reason(why: str) -> str:
    """Return an estimator's reason in words: of ``pid`` its terms, of ``fit`` its costs."""
    terms = {name: float(value) for name, value in _TERM.findall(why)}
    if len(terms) == _TERMS:
        begin = why.partition("latestRate")[0]
        took, allowed, waited = (
            rate(terms[name]) for name in ("processingRate", "latestRate", "historicalError")
        )
        late = f"; it began late, which is worth {waited}" if terms["historicalError"] else ""
        return f"{begin}the batch processed {took} records/s, and {allowed} were allowed{late}"
    if costs := _COSTS.search(why):
        fixed, record, noise, target = costs.groups()
        return (
            f"{why[: costs.start()]}a batch costs {float(fixed):.3g} ms and {float(record):.3g} µs "
            f"a record, give or take {noise}, and may take {target} of the interval"
        )
    return _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.4g}", why)


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
