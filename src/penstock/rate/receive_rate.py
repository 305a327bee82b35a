"""How fast receivers may store: the rate of the batches, adapted to the records that wait.

A batch takes the records that the rate allows for one interval. Receivers at exactly that rate
would deliver sometimes more and sometimes less than a batch may take, and a deficit would never be
recovered: batches would not be full although the source has more. So receivers may be 10% faster,
until half an interval's worth of records waits in the journal.

When batches take longer than the interval, fewer batches run than intervals pass, and records would
accumulate in the journal for as long as the source has more. So receivers become slower the more
records wait, down to half the rate: the rest waits at the source, and the journal stays bounded.
Pure.
"""

from __future__ import annotations

_MOST, _LEAST = 1.1, 0.5
"""Shares of the rate: with an empty journal, and with many waiting records."""
_SLOPE = 0.2
"""The reduction of the share for each waiting interval."""


def receive_rate(rate_records_per_s: float, waiting: int, batch_interval_ms: int) -> float:
    """Return the receivers' rate, records per second.

    Args:
        rate_records_per_s: the records that batches take for each second of the interval.
        waiting: records in the journal that the last batch left.
        batch_interval_ms: length of a batch.
    """
    intervals = waiting / (rate_records_per_s * batch_interval_ms / 1000)
    return rate_records_per_s * max(_MOST - _SLOPE * intervals, _LEAST)
