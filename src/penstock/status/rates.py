"""How fast a location's batches are. Pure."""

from __future__ import annotations

from penstock.status.model import LocationStatus

__all__ = ["rate_out"]

_WINDOW_S = 60


def rate_out(status: LocationStatus) -> float | None:
    """Return the records per second of the batches that were committed in the last minute.

    None if no batch tells how many it had.
    """
    if all(each.records is None for each in status.batches):
        return None
    since_ms = status.read_ms - 1000 * _WINDOW_S
    recent = (
        each.records or 0
        for each in status.batches
        if each.state == "committed" and (each.ended_ms or 0) > since_ms
    )
    return sum(recent) / _WINDOW_S
