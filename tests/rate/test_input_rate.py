"""One input's rate: settings, overrides and back pressure combined, and the receivers' share."""

from __future__ import annotations

import pytest

from penstock.conf import RateSettings
from penstock.rate import (
    InputRate,
    RateController,
    RateEstimator,
    RateLimiter,
    RateOverride,
    ReceiveLimit,
)
from penstock.rate.input_rate import receive_rate
from penstock.testing import ManualClock

INTERVAL_MS = 500


class Fixed(RateEstimator):
    """Wants 300 records a second."""

    def compute(self, *batch: int) -> float | None:
        return 300.0


def with_controller(settings: RateSettings) -> InputRate:
    controller = RateController(
        "clicks", Fixed(), initial_rate=80.0, min_rate=1.0, max_rate=settings.max_rate
    )
    return InputRate(INTERVAL_MS, settings, controller)


def test_without_settings_nothing_is_limited_or_noted() -> None:
    rate = InputRate(INTERVAL_MS, RateSettings(), None)
    assert rate.limits().records is None
    assert rate.receive_limit() == ReceiveLimit()
    assert rate.on_batch_completed(1000, 10, 100, 0) is None


def test_a_highest_rate_limits_without_back_pressure() -> None:
    rate = InputRate(INTERVAL_MS, RateSettings(max_rate=50.0), None)
    assert rate.limits().records == 25.0
    decision = rate.on_batch_completed(1000, 25, 100, 0)
    assert decision is not None
    assert (decision.rate, decision.why) == (50.0, "fixed limit")


def test_back_pressure_moves_the_limit_of_batches_and_receivers() -> None:
    rate = with_controller(RateSettings())
    assert rate.limits().records == 40.0
    rate.on_batch_completed(1000, 40, 100, 0)
    assert rate.limits().records == 150.0
    assert rate.receive_limit() == ReceiveLimit(pytest.approx(330.0))


@pytest.mark.parametrize("controlled", [True, False])
def test_an_override_goes_before_the_settings_and_its_end_brings_them_back(
    controlled: bool,
) -> None:
    settings = RateSettings(max_rate=100.0)
    rate = with_controller(settings) if controlled else InputRate(INTERVAL_MS, settings, None)
    rate.on_batch_completed(1000, 40, 100, 0)
    assert rate.rate == 100.0
    rate.follow(RateOverride(max_rate=200.0))
    assert rate.rate == 200.0
    rate.follow(RateOverride(max_rate=20.0, paused=True))
    assert rate.receive_limit() == ReceiveLimit(20.0, paused=True)
    decision = rate.on_batch_completed(2000, 40, 100, 0)
    assert decision is not None
    assert (decision.rate, decision.why) == (20.0, "paused")
    rate.follow(RateOverride())
    assert rate.rate == 100.0


def test_the_limit_of_a_partition_is_for_each_batch_and_for_its_receiver() -> None:
    settings = RateSettings(max_rate_per_partition=30.0, min_records_per_partition=2)
    rate = InputRate(INTERVAL_MS, settings, None)
    limits = rate.limits()
    assert (limits.records, limits.records_per_lane, limits.min_records_per_lane) == (None, 15.0, 2)
    assert rate.receive_limit() == ReceiveLimit(30.0)


@pytest.mark.parametrize(("per_partition", "each"), [(None, 16.7), (10.0, 10.0), (20.0, 16.7)])
def test_receivers_share_the_rate_in_equal_parts(per_partition: float | None, each: float) -> None:
    settings = RateSettings(max_rate=50.1, max_rate_per_partition=per_partition)
    rate = InputRate(INTERVAL_MS, settings, None, receivers=3)
    assert rate.receive_limit() == ReceiveLimit(pytest.approx(each))
    assert rate.limits().records == pytest.approx(25.05)


def test_a_share_of_less_than_a_record_is_carried_and_never_no_limit() -> None:
    """Three receivers of 0.5 records/s together: one record each in 6 seconds."""
    shared = InputRate(INTERVAL_MS, RateSettings(max_rate=0.5), None, receivers=3)
    clock = ManualClock()
    limiter = RateLimiter(shared.receive_limit().rate, 200, clock)
    let_through = 0
    for _ in range(600):
        clock.advance(100)
        let_through += limiter.try_acquire(1) == 0
    assert let_through in (10, 11)


@pytest.mark.parametrize(
    ("waiting", "expected"), [(0, 110), (25, 100), (50, 90), (125, 60), (150, 50), (10**9, 50)]
)
def test_receivers_keep_half_an_interval_waiting(waiting: int, expected: float) -> None:
    assert receive_rate(100.0, waiting, INTERVAL_MS) == pytest.approx(expected)


def test_receivers_never_exceed_the_highest_rate() -> None:
    rate = InputRate(INTERVAL_MS, RateSettings(max_rate=100.0), None)
    received = []
    for waiting in (0, 25, 125):
        rate.note_waiting(waiting)
        received.append(rate.receive_limit().rate)
    assert received == pytest.approx([100.0, 100.0, 60.0])


def test_the_smallest_rates_are_slowed_without_reaching_nothing() -> None:
    assert receive_rate(0.001, 10**12, 100) == 0.0005


@pytest.mark.parametrize(
    ("old", "new", "noticeable"),
    [
        (ReceiveLimit(100.0), ReceiveLimit(101.0), False),
        (ReceiveLimit(100.0), ReceiveLimit(103.0), True),
        (ReceiveLimit(0.1), ReceiveLimit(0.09), True),
        (ReceiveLimit(None), ReceiveLimit(None), False),
        (ReceiveLimit(None), ReceiveLimit(1e9), True),
        (ReceiveLimit(1e9), ReceiveLimit(None), True),
        (ReceiveLimit(100.0), ReceiveLimit(100.0, paused=True), True),
    ],
)
def test_what_receivers_are_told(old: ReceiveLimit, new: ReceiveLimit, noticeable: bool) -> None:
    assert new.differs_noticeably(old) is noticeable
