"""How fast a location's batches are. Pure."""

from __future__ import annotations

from penstock.status.model import LocationStatus

_WINDOW_MS = 60_000


def rate_in(status: LocationStatus) -> float | None:
    """Return what arrives: in its journal, or what its batches take where it has none."""
    if status.streams:
        return sum(each.rate for each in status.streams)
    return rate_out(status)


def rate_out(status: LocationStatus) -> float | None:
    """Return the records per second of the batches that were committed in the last minute.

    While a batch runs, at least one that was committed counts: where batches take longer than the
    minute, it begins when the last but one ended. None if no batch tells how many it had.
    """
    if all(each.records is None for each in status.batches):
        return None
    ended = [
        (each.ended_ms, each.records or 0)
        for each in status.batches
        if each.state == "committed" and each.ended_ms is not None
    ]
    since_ms = status.read_ms - _WINDOW_MS
    if status.batches[-1].state == "running" and len(ended) > 1:
        since_ms = min(since_ms, ended[-2][0])
    recent = sum(records for ended_ms, records in ended if ended_ms > since_ms)
    return 1000 * recent / (status.read_ms - since_ms)
