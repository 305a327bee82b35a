"""How fast receivers may store: the rate of the batches, less where much of it waits already.

A batch takes what the rate allows for one interval. When batches take longer than that, fewer are
run than intervals pass, and records that came at the full rate would pile up in the journal for as
long as the source has more. So the more waits, the slower it is received, down to half: the rest
waits at the source, and the journal stays bounded. Pure.
"""

from __future__ import annotations

__all__ = ["receive_rate"]

_LEAST_SHARE = 0.5
_INTERVALS_TO_LEAST = 5.0
"""So many intervals' worth of waiting records bring the share down to the least."""


def receive_rate(rate_records_per_s: float, waiting: int, batch_interval_ms: int) -> float:
    """Return the receivers' rate, records per second.

    Args:
        rate_records_per_s: how many records batches take, for each second of the interval.
        waiting: records in the journal that the last batch left.
        batch_interval_ms: length of a batch.
    """
    intervals = waiting / (rate_records_per_s * batch_interval_ms / 1000)
    lowered = (1 - _LEAST_SHARE) * min(intervals / _INTERVALS_TO_LEAST, 1.0)
    return rate_records_per_s * (1 - lowered)
