"""How fast receivers may store: the rate of the batches, more or less after what waits already.

A batch takes what the rate allows for one interval. Receivers that kept to exactly that rate would
bring a batch now more than it may take, now less, and what it lacks is never made up for: batches
would not be full although the source has more. So receivers may be a tenth faster, until half an
interval's worth waits in the journal.

When batches take longer than the interval, fewer are run than intervals pass, and records would
pile up in the journal for as long as the source has more. So the more waits, the slower it is
received, down to half: the rest waits at the source, and the journal stays bounded. Pure.
"""

from __future__ import annotations

__all__ = ["receive_rate"]

_MOST, _LEAST = 1.1, 0.5
"""Shares of the rate: of an empty journal, and of one where much waits."""
_SLOPE = 0.2
"""By how much each waiting interval lowers the share."""


def receive_rate(rate_records_per_s: float, waiting: int, batch_interval_ms: int) -> float:
    """Return the receivers' rate, records per second.

    Args:
        rate_records_per_s: how many records batches take, for each second of the interval.
        waiting: records in the journal that the last batch left.
        batch_interval_ms: length of a batch.
    """
    intervals = waiting / (rate_records_per_s * batch_interval_ms / 1000)
    return rate_records_per_s * max(_MOST - _SLOPE * intervals, _LEAST)
