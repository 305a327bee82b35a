"""The rate of one input: its settings, the orders for it and its controller, brought together."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from penstock.conf import RateSettings
from penstock.rate.controller import RateController, RateDecision
from penstock.rate.orders import RateOrder
from penstock.rate.range_limit import RangeLimits
from penstock.rate.receive_rate import receive_rate

__all__ = ["InputRate", "ReceiveLimit"]


@dataclass(frozen=True, slots=True)
class ReceiveLimit:
    """What each receiver of a stream is held to."""

    rate: float | None = None
    """Records per second, None for no limit."""
    paused: bool = False

    def differs_noticeably(self, other: ReceiveLimit) -> bool:
        """Whether it is worth telling receivers that held to ``other``."""
        if self.paused != other.paused or self.rate is None or other.rate is None:
            return self != other
        return abs(self.rate - other.rate) > _NOTICEABLE * other.rate


_NOTICEABLE = 0.02
"""Smaller changes of a rate are noise, and each order is a file that is written."""


class InputRate:
    """Keeps the limits of one input in force. Thread-safe; no I/O.

    Args:
        batch_interval_ms: length of a batch.
        settings: of the program; ``max_rate`` is that of this input, ordered limits go before it.
        controller: follows the batches; None without back pressure.
        receivers: how many share the input's rate, in equal parts.
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
        self._order = RateOrder()
        self._waiting = 0

    @property
    def order(self) -> RateOrder:
        """The order in force."""
        with self._lock:
            return self._order

    @property
    def rate(self) -> float | None:
        """How many records batches may take for each second of the interval, None for no limit."""
        return self._max_rate if self.controller is None else self.controller.latest_rate

    def follow(self, order: RateOrder) -> None:
        """Put an order in force."""
        with self._lock:
            self._order = order
        if self.controller is not None:
            self.controller.set_max_rate(self._max_rate)

    def limits(self) -> RangeLimits:
        """Return what bounds the next batch, unless the input is paused."""
        settings = self._settings
        return RangeLimits(
            self._per_batch(self.rate),
            self._per_batch(settings.max_rate_per_partition),
            settings.min_records_per_partition,
        )

    def note_waiting(self, records: int) -> None:
        """Learn how many records the last batch left in the journal."""
        with self._lock:
            self._waiting = records

    def receive_limit(self) -> ReceiveLimit:
        """Return what each receiver is held to.

        It is its share of what the rate of the batches leads to, and of the highest rate, and never
        more than the rate of one partition: a receiver is one.
        """
        shared = [self._max_rate]
        rate, order = self.rate, self.order
        if rate is not None:
            with self._lock:
                shared.append(receive_rate(rate, self._waiting, self._interval_ms))
        bounds = [bound / self._receivers for bound in shared if bound is not None]
        if self._settings.max_rate_per_partition is not None:
            bounds.append(self._settings.max_rate_per_partition)
        return ReceiveLimit(min(bounds, default=None), order.paused)

    def on_batch_completed(
        self,
        time_ms: int,
        num_elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
    ) -> RateDecision | None:
        """Take in a batch that ended; return what became of the rate, None without any limit.

        The arguments are those of RateEstimator.compute.
        """
        batch = (time_ms, num_elements, processing_delay_ms, scheduling_delay_ms)
        if self.controller is not None:
            decision = self.controller.on_batch_completed(*batch)
            return replace(decision, why="paused") if self.order.paused else decision
        rate = self.rate
        why = "paused" if self.order.paused else "fixed limit"
        return None if rate is None else RateDecision(*batch, None, rate, why)

    @property
    def _max_rate(self) -> float | None:
        ordered = self.order.max_rate
        return self._settings.max_rate if ordered is None else ordered

    def _per_batch(self, rate: float | None) -> float | None:
        return None if rate is None else rate * self._interval_ms / 1000
