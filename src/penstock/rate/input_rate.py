"""The rate of one input: combines its settings, its override and its controller."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from penstock.conf import RateSettings
from penstock.rate.controller import RateController, RateDecision
from penstock.rate.overrides import RateOverride
from penstock.rate.range_limit import RangeLimits


@dataclass(frozen=True, slots=True)
class ReceiveLimit:
    """The limit of each receiver of a stream."""

    rate: float | None = None
    """Records per second, None for no limit."""
    paused: bool = False

    def differs_noticeably(self, other: ReceiveLimit) -> bool:
        """Whether the difference from ``other`` is worth a new command."""
        if self.paused != other.paused or self.rate is None or other.rate is None:
            return self != other
        return abs(self.rate - other.rate) > _NOTICEABLE * other.rate


_NOTICEABLE = 0.02
"""Smaller changes of a rate are noise, and each command to a receiver writes a file."""
_MOST, _LEAST = 1.1, 0.5
"""Shares of the rate: with an empty journal, and with many waiting records."""
_SLOPE = 0.2
"""The reduction of the share for each waiting interval."""


class InputRate:
    """Keeps the effective limits of one input. Thread-safe; no I/O.

    Args:
        batch_interval_ms: length of a batch.
        settings: of the program; ``max_rate`` is that of this input, an override replaces it.
        controller: adapts the rate to the batches; None without back pressure.
        receivers: the number of receivers that share the input's rate equally.
    """

    def __init__(
        self,
        batch_interval_ms: int,
        settings: RateSettings,
        controller: RateController | None,
        receivers: int = 1,
    ) -> None:
        self._interval_ms = batch_interval_ms
        self._settings = settings
        self.controller = controller
        self._receivers = receivers
        self._lock = threading.Lock()
        self._override = RateOverride()
        self._waiting = 0

    @property
    def override(self) -> RateOverride:
        """The effective override."""
        with self._lock:
            return self._override

    @property
    def rate(self) -> float | None:
        """The records that a batch may take for each second of the interval, None for no limit."""
        return self._max_rate if self.controller is None else self.controller.latest_rate

    def follow(self, override: RateOverride) -> None:
        """Apply an override."""
        with self._lock:
            self._override = override
        if self.controller is not None:
            self.controller.set_max_rate(self._max_rate)

    def limits(self) -> RangeLimits:
        """Return the limits of the next batch, unless the input is paused."""
        settings = self._settings
        return RangeLimits(
            self._per_batch(self.rate),
            self._per_batch(settings.max_rate_per_partition),
            settings.min_records_per_partition,
        )

    def note_waiting(self, records: int) -> None:
        """Note the number of records that the last batch left in the journal."""
        with self._lock:
            self._waiting = records

    def receive_limit(self) -> ReceiveLimit:
        """Return the limit of each receiver.

        The limit is the receiver's share of the rate that follows from the batches, and of the
        highest rate. It never exceeds the rate of one partition: a receiver is one partition.
        """
        shared = [self._max_rate]
        rate, override = self.rate, self.override
        if rate is not None:
            with self._lock:
                shared.append(receive_rate(rate, self._waiting, self._interval_ms))
        bounds = [bound / self._receivers for bound in shared if bound is not None]
        if self._settings.max_rate_per_partition is not None:
            bounds.append(self._settings.max_rate_per_partition)
        return ReceiveLimit(min(bounds, default=None), override.paused)

    def on_batch_completed(
        self,
        time_ms: int,
        num_elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
    ) -> RateDecision | None:
        """Process a batch that ended; return the decision about the rate, None without a limit.

        The arguments are those of RateEstimator.compute.
        """
        batch = (time_ms, num_elements, processing_delay_ms, scheduling_delay_ms)
        if self.controller is not None:
            decision = self.controller.on_batch_completed(*batch)
            return replace(decision, why="paused") if self.override.paused else decision
        rate = self.rate
        why = "paused" if self.override.paused else "fixed limit"
        return None if rate is None else RateDecision(*batch, None, rate, why)

    @property
    def _max_rate(self) -> float | None:
        ordered = self.override.max_rate
        return self._settings.max_rate if ordered is None else ordered

    def _per_batch(self, rate: float | None) -> float | None:
        return None if rate is None else rate * self._interval_ms / 1000


def receive_rate(rate_records_per_s: float, waiting: int, batch_interval_ms: int) -> float:
    """Return the receivers' rate, records per second: near that of the batches.

    A batch takes the records that the rate allows for one interval. Receivers at exactly that rate
    would deliver sometimes more and sometimes less than a batch may take, and a deficit would never
    be recovered: batches would not be full although the source has more. So receivers may be 10%
    faster, until half an interval's worth of records waits in the journal.

    When batches take longer than the interval, fewer batches run than intervals pass, and records
    would accumulate in the journal for as long as the source has more. So receivers become slower
    the more records wait, down to half the rate: the rest waits at the source, and the journal
    stays bounded.

    Args:
        rate_records_per_s: the records that batches take for each second of the interval.
        waiting: records in the journal that the last batch left.
        batch_interval_ms: length of a batch.
    """
    intervals = waiting / (rate_records_per_s * batch_interval_ms / 1000)
    return rate_records_per_s * max(_MOST - _SLOPE * intervals, _LEAST)
