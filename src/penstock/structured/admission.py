"""How far a batch goes: its limits, and the last offsets of a query that ends by itself.

Pure but for what it carries from one batch to the next.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import ConfigError
from penstock.model import Offsets
from penstock.rate import Carry, Lane, RangeLimits, cut_range


class Admission:
    """Decides the end of each batch of one query over one source."""

    def __init__(self) -> None:
        self._carry = Carry()
        self._last: Offsets | None = None

    def end_at(self, last: Offsets) -> None:
        """Take no record behind ``last`` from now on (Trigger.AvailableNow)."""
        self._last = last

    def end_of_batch(
        self,
        start: Offsets,
        available: Offsets,
        limit: float | None,
        lane: Callable[[str], Lane],
        starts: Offsets | None = None,
    ) -> Offsets:
        """Return the end of a batch: ``start`` itself if it takes no records.

        So a writer that comes or goes makes no batch.

        Args:
            start: where it begins.
            available: the end of all there is, with each partition that the end has to have.
            limit: the most records; None for all of them, 0 while the source is paused.
            lane: the lane of a partition.
            starts: from where on records count; None for ``start``.

        Raises:
            ConfigError: the source is paused, there are records, and the query ends by itself.
        """
        begin = start if starts is None else starts
        end = self._within_last(begin, available)
        if limit == 0:
            if self._last is not None and _takes(begin, end):
                raise _paused()
            return start
        if limit is not None:
            if self._last is not None:
                limit = max(1, limit)  # a batch of no records would end the query
            cut = cut_range(begin, end, RangeLimits(limit), self._carry, lane)
            end, self._carry = cut.end, cut.carry
        return end if _takes(start, end) else start

    def _within_last(self, start: Offsets, available: Offsets) -> Offsets:
        if self._last is None:
            return available
        last = self._last
        return {
            partition: min(end, max(start.get(partition, 0), last.get(partition, 0)))
            for partition, end in available.items()
        }


def _takes(start: Offsets, end: Offsets) -> bool:
    return any(offset > start.get(partition, 0) for partition, offset in end.items())


def _paused() -> ConfigError:
    return ConfigError(
        "the source is paused, and the query ends by itself (Trigger.AvailableNow): it would end "
        "without the records that wait",
        operation="plan batch",
        hint="run `penstock rate resume --checkpoint <checkpointLocation>`, and start it again",
    )
